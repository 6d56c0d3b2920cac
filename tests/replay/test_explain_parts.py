"""Documented mechanisms in outputs that were compared in parts: TF32 is known, and what is wrong besides is not."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from audit.replay.sampled import plan
from audit.rules.judge import judge
from audit.run_records import Run, RunHeader
from audit.schema import Case, DeviceInfo, Measurement, Outcome, Source
from audit.verdicts import Verdict
from tests.replay.conftest import Build
from tests.replay.test_fast_convolutions import case_of, judged

TF32 = (("torch.backends.cuda.matmul.fp32_precision", "tf32"),)
PRODUCT = Build.case("aten::mm.default", Build.tensor((600, 512)), Build.tensor((512, 700), storage=1))

Device = Callable[[dict[str, Any]], dict[str, Tensor]]


@pytest.fixture(autouse=True)
def in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "_BYTES_LIMIT", 1)
    monkeypatch.setattr(plan, "FLOPS_LIMIT", 1.0)


def verdict_of(case: Case, folder: Path, device: Device, arch: str, settings: Any = ()) -> Verdict:
    """Of what ``device`` makes of the arguments, as if it were a GPU of that architecture."""
    comparisons = judged(case, folder, device)
    assert all(comparison.n_compared is not None for comparison in comparisons.values())
    measurement = Measurement(case.key, Outcome("ok"), Outcome("ok"), tuple(comparisons.values()))
    gpu = DeviceInfo("hip", "", arch)
    header = RunHeader("measured", Source("script", "x.py"), gpu, {}, {}, "now", "0", 1, 1)
    case = dataclasses.replace(case, settings=settings)
    [verdict] = judge(Run(header, (case,), {case.key: measurement})).verdicts
    return verdict


def codes(verdict: Verdict) -> set[str]:
    """Of the findings that call the device's numbers wrong."""
    return {finding.code for finding in verdict.findings if finding.status == "divergent"}


def rounded(tensor: Tensor) -> Tensor:
    """Float32 to ten bits behind the leading one, to the nearest."""
    return ((tensor.view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)


def narrowed(tensor: Tensor) -> Tensor:
    """Float32 cut to ten bits behind the leading one."""
    return (tensor.view(torch.int32) & ~0x1FFF).view(torch.float32)


def product(change: Callable[[Tensor], Tensor], spoil: Callable[[Tensor], object] = lambda out: None) -> Device:
    def device(a: dict[str, Any]) -> dict[str, Tensor]:
        out = change(a["self"]) @ change(a["mat2"])
        spoil(out)
        return {"output": out}

    return device


@pytest.mark.parametrize("change", [rounded, narrowed])
@pytest.mark.parametrize("arch", ["gfx942", "sm_90"])
def test_a_product_in_tf32_is_known_where_it_was_allowed(change: Callable[[Tensor], Tensor], arch: str, tmp_path: Path):
    found = verdict_of(PRODUCT, tmp_path, product(change), arch, TF32)
    explained = {finding.code for finding in found.findings if finding.known is not None}
    assert (codes(found), explained) == (set(), {"NUM201", "NUM212"})
    assert codes(verdict_of(PRODUCT, tmp_path, product(change), arch)) == {"NUM201", "NUM212"}


def a_tile(out: Tensor) -> None:
    out[64:80, 128:144] *= 1.02


def another_tile(out: Tensor) -> None:
    out[64:80, 128:144] = out[80:96, 128:144].clone()


def one_element(out: Tensor) -> None:
    out[65, 129] = 0.0


def a_column(out: Tensor) -> None:
    out[:, 100] *= 1.01


@pytest.mark.parametrize("spoil", [a_tile, another_tile, one_element, a_column])
def test_what_is_wrong_besides_tf32_is_found(spoil: Callable[[Tensor], object], tmp_path: Path):
    assert "NUM212" in codes(verdict_of(PRODUCT, tmp_path, product(rounded, spoil), "gfx942", TF32))


def test_a_product_with_fewer_bits_than_tf32_is_not_known(tmp_path: Path):
    as_bfloat16 = product(lambda factor: factor.bfloat16().float())
    assert codes(verdict_of(PRODUCT, tmp_path, as_bfloat16, "gfx942", TF32)) == {"NUM201", "NUM212"}


def test_a_convolution_in_tf32_is_known(tmp_path: Path):
    def device(a: dict[str, Any]) -> dict[str, Tensor]:
        image, weight = rounded(a["input"]), rounded(a["weight"])
        return {"output": torch.nn.functional.conv2d(image, weight, padding=1, groups=a["groups"])}

    case = case_of("convolution")
    assert codes(verdict_of(case, tmp_path, device, "sm_90")) == set()
    assert codes(verdict_of(case, tmp_path, device, "gfx942")) != set()
