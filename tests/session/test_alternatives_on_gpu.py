"""Choices that cost time on a real GPU: what they cost, what cures them, and why a fused kernel refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from audit.cli import main
from audit.store import read_run

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no HIP or CUDA GPU here"),
]

PROGRAM = """
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
F = torch.nn.functional
torch.manual_seed(0)
query = torch.randn(4, 16, 2048, 64, device="cuda", dtype=torch.bfloat16)
with sdpa_kernel(SDPBackend.MATH):
    F.scaled_dot_product_attention(query, query, query)
image, weight = torch.randn(32, 64, 56, 56, device="cuda"), torch.randn(64, 64, 3, 3, device="cuda")
with torch.backends.cudnn.flags(enabled=False):
    F.conv2d(image, weight, padding=1)
    F.conv2d(image.bfloat16(), weight.bfloat16(), padding=1)
wide = torch.randn(2, 8, 512, 64, device="cuda")
F.scaled_dot_product_attention(wide, wide[:, :2], wide[:, :2], enable_gqa=True)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("alternatives")
    (home / "prog.py").write_text(PROGRAM)
    assert main(["run", str(home / "prog.py"), "--device", "auto", "-q", "-o", str(home / "run")]) == 0
    return home / "run"


def notes(folder: Path, op: str, dtype: str = "") -> list[dict[str, Any]]:
    """What FBK320 says of the cases of an op, and of a dtype, under settings of the program first."""
    verdicts = json.loads((folder / "summary.json").read_text())["verdicts"]
    found = [
        (" under " not in verdict["signature"], finding)
        for verdict in verdicts
        for finding in verdict["findings"]
        if verdict["op"] == op and verdict["signature"].startswith(dtype) and finding["code"] == "FBK320"
    ]
    return [finding for _, finding in sorted(found, key=lambda item: item[0])]


def test_attention_held_to_math_is_cured_with_less_time_and_memory(folder: Path) -> None:
    data = notes(folder, "aten::scaled_dot_product_attention.default")[0]["data"]
    assert (data["effect"], data["status_with"]) == ("cures", "supported")
    assert data["device_us_with"] < data["device_us_without"] / 2
    assert data["peak_bytes_with"] < data["peak_bytes_without"] / 2


@pytest.mark.parametrize("dtype", ["bf16", "f32"])
def test_a_convolution_without_its_library_is_cured_by_the_switch_being_left_on(folder: Path, dtype: str) -> None:
    [note] = notes(folder, "aten::convolution.default", dtype)
    assert note["data"]["effect"] == "cures"
    assert note["data"]["device_us_with"] < note["data"]["device_us_without"]


@pytest.mark.skipif(torch.version.hip is not None, reason="MIOpen computes float32 convolutions in float32")
def test_a_cure_that_is_less_exact_says_so(folder: Path) -> None:
    [note] = notes(folder, "aten::convolution.default", "f32")
    assert "TF32" in note["message"]


def test_an_attention_of_grouped_queries_in_float32_says_why_it_went_to_math(folder: Path) -> None:
    run = read_run(folder)
    reasons = [
        run.measurements[case.key].path.refusals
        for case in run.cases
        if case.op == "aten::scaled_dot_product_attention.default" and not case.settings
    ]
    assert len(reasons) == 1
    assert any(reason.startswith("flash attention: ") for reason in reasons[0]), reasons
