"""A long product in float32 whose sums are made in plain order is healthy: partial sums are rounded at every step."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from audit.replay.sampled import plan
from tests.replay.conftest import Build
from tests.replay.test_fast_convolutions import judged
from tests.sensitivity.trials import codes

ROWS, DEPTH, COLUMNS = 40, 14336, 48


def chained(left: Tensor, right: Tensor) -> Tensor:
    """One fused multiplication and addition after the other."""
    total = torch.zeros(left.shape[0], right.shape[1])
    for column, row in zip(left.double().unbind(1), right.double().unbind(0), strict=True):
        total = (total.double() + torch.outer(column, row)).float()
    return total


def narrowed(tensor: Tensor) -> Tensor:
    """With ten bits behind the leading one, as TF32 has."""
    return (tensor.view(torch.int32) & ~0x1FFF).view(torch.float32)


CASE = Build.case("aten::mm.default", Build.tensor((ROWS, DEPTH)), Build.tensor((DEPTH, COLUMNS), storage=1))


@pytest.mark.parametrize("parts", [False, True])
def test_plain_order_passes_and_fewer_bits_of_the_factors_do_not(
    parts: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    if parts:
        monkeypatch.setattr(plan, "_BYTES_LIMIT", 1)
        monkeypatch.setattr(plan, "FLOPS_LIMIT", 1.0)
    healthy = judged(CASE, tmp_path, lambda a: {"output": chained(a["self"], a["mat2"])})["output"]
    assert (healthy.sketch is not None) == parts
    assert codes(healthy) == ()
    found = judged(CASE, tmp_path, lambda a: {"output": narrowed(a["self"]) @ narrowed(a["mat2"])})["output"]
    assert "NUM201" in codes(found)
