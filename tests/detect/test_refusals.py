"""Why an attention went to math: torch's own answers, by whatever way they are given."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from audit.detect.detector import Evidence, OpCall
from audit.detect.refusals import ATTENTION, RefusalDetector, refusals
from audit.device.cpu import CpuDevice
from audit.device.fused_attention import refusals as refusals_by_rule
from audit.schema import Path as OpPath

ON_GPU = SimpleNamespace(device=SimpleNamespace(type="cuda"))
ARGUMENTS = {"query": ON_GPU, "key": ON_GPU, "value": ON_GPU, "attn_mask": None, "dropout_p": 0.0, "is_causal": True}
MATH = OpPath(chosen_ops=("aten::_scaled_dot_product_attention_math.default",))


@contextmanager
def fd_2_at(path: Path) -> Iterator[None]:
    """Lets this process's fd 2 append to a file meanwhile, as in a worker."""
    kept, file = os.dup(2), os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
    os.dup2(file, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(file)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A torch whose flash attention warns in Python, whose memory-efficient one writes, and whose cuDNN accepts."""

    def flash(params: object, debug: bool) -> bool:
        warnings.warn(
            "Head dim 600 is too large. (Triggered internally at sdp_utils.cpp:1.)", UserWarning, stacklevel=1
        )
        return False

    def efficient(params: object, debug: bool) -> bool:
        os.write(2, b"[W1130 22:22:08.3 sdp_utils.cpp:2] Warning: Nested tensors have gaps. (function operator())\n")
        return False

    monkeypatch.setattr(torch.backends.cuda, "SDPAParams", lambda *given: given, raising=False)
    monkeypatch.setattr(torch.backends.cuda, "can_use_flash_attention", flash, raising=False)
    monkeypatch.setattr(torch.backends.cuda, "can_use_efficient_attention", efficient, raising=False)
    monkeypatch.setattr(torch.backends.cuda, "can_use_cudnn_attention", lambda params, debug: True, raising=False)


def test_reasons_come_by_warning_and_by_fd_2_and_leave_no_trace_there(gpu: None, tmp_path: Path) -> None:
    with fd_2_at(tmp_path / "stderr"):
        os.write(2, b"of the op itself\n")
        found = list(refusals(ARGUMENTS))
    assert found == [
        "flash attention: Head dim 600 is too large.",
        "memory-efficient attention: Nested tensors have gaps.",
    ]
    assert (tmp_path / "stderr").read_bytes() == b"of the op itself\n"


def test_an_older_torch_that_cannot_be_asked_gives_no_reason(gpu: None, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("can_use_flash_attention", "can_use_efficient_attention", "can_use_cudnn_attention"):
        monkeypatch.delattr(torch.backends.cuda, name)
    assert list(refusals(ARGUMENTS)) == []


@pytest.mark.parametrize(
    ("op", "path", "n_kept"), [(ATTENTION, MATH, 2), (ATTENTION, OpPath(), 0), ("aten::mm.default", MATH, 0)]
)
def test_reasons_are_kept_only_of_an_attention_that_went_to_math(
    gpu: None, tmp_path: Path, op: str, path: OpPath, n_kept: int
) -> None:
    detector, evidence = RefusalDetector(), Evidence(path=path)
    detector.begin(CpuDevice())
    with fd_2_at(tmp_path / "stderr"):
        detector.watch(OpCall(op, ARGUMENTS, lambda: None))
    detector.end(CpuDevice(), evidence)
    assert len(evidence.refusals) == n_kept


@pytest.mark.parametrize(
    ("dtype", "heads", "mask", "reasons"),
    [
        (torch.bfloat16, 4, None, []),
        (torch.float32, 4, None, ["flash attention: it does not take float32"]),
        (
            torch.float32, 2, None,
            [
                "flash attention: it does not take float32",
                "memory-efficient attention: 4 heads of queries over 2 of keys",
            ],
        ),
        (
            torch.bfloat16, 4, torch.zeros(8, 8),
            ["flash attention: it takes no mask", "memory-efficient attention: a mask of float32"],
        ),
    ],
)  # fmt: skip
def test_the_simulated_device_refuses_by_the_rules_of_its_route_table(
    dtype: torch.dtype, heads: int, mask: torch.Tensor | None, reasons: list[str]
) -> None:
    query, key = torch.zeros(2, 4, 8, 16, dtype=dtype), torch.zeros(2, heads, 8, 16, dtype=dtype)
    assert list(refusals_by_rule(query, key, key, mask, is_causal=False, enable_gqa=True)) == reasons
