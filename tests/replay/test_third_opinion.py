"""The CPU is asked once more, in another way, where it and the device disagree."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from audit.codec import decode
from audit.comparison import Comparison
from audit.replay.reference import Reference
from audit.replay.spool import second_run, write_spool
from audit.replay.third_opinion import third_way
from audit.schema import Case, TensorSpec

SPEC = TensorSpec((8, 16), (16, 1), "float32", extent=128)
SILU = Case("silu-0", "aten::silu.default", (SPEC,))
FLIP = Case("flip-0", "aten::flip.default", (TensorSpec((8, 16), (1, 8), "float32", extent=128), (0,)))


@pytest.fixture
def wrong_silu() -> Iterator[None]:
    """A CPU kernel of this process that is wrong in one element, in every dtype."""

    def silu(x: torch.Tensor) -> torch.Tensor:
        result = x * torch.sigmoid(x)
        result.view(-1)[5] += 1.0
        return result

    library = torch.library.Library("aten", "IMPL")
    library.impl("silu", silu, "CPU")
    yield
    library._destroy()


def compared(case: Case, folder: Path, change: float = 0.0, later: float = 0.0) -> Comparison:
    """What the reference says of a device that gives the truth, one element changed by so much, and ``later`` more."""
    reference = Reference(None, folder, seed=0)
    prepared = reference.prepare(case)
    assert prepared["device_may_run"]
    [(start, length)] = prepared["index"].values()
    content = (folder / f"{case.key}.inputs").read_bytes()[start : start + length]
    operand = torch.frombuffer(bytearray(content), dtype=torch.float32).as_strided(
        case.args[0].sizes, case.args[0].strides
    )
    given = operand * torch.sigmoid(operand) if case is SILU else operand.flip(0).contiguous()
    given.view(-1)[7] += change
    runs = {"output": given.reshape(-1).view(torch.uint8)}
    if later:
        runs[second_run("output")] = (given.reshape(-1) + later).view(torch.uint8)
    index = write_spool(folder / f"{case.key}.outputs", runs)
    fact = {"sizes": list(given.shape), "strides": list(given.stride()), "dtype": "float32"}
    memory = {"n_unwritten": 0, "first_unwritten": (), "unwritten": None, "n_not_repeated": 0, "not_repeated": None}
    said = {"fact": fact, "stored_dtype": "float32", "n_runs": 2, "n_runs_differing": 0, **memory}
    [comparison] = reference.compare(case.key, {"output": said}, folder / f"{case.key}.outputs", index)
    return decode(Comparison, comparison)


@pytest.mark.usefixtures("wrong_silu")
def test_a_cpu_kernel_that_is_wrong_accuses_nobody(tmp_path: Path) -> None:
    comparison = compared(SILU, tmp_path)
    assert comparison.worst_ratio > 8
    assert (comparison.third, comparison.third_n_different) == ("torch's decomposition", 0)
    assert comparison.third_ratio < 1


def test_a_device_that_is_wrong_is_contradicted_twice(tmp_path: Path) -> None:
    comparison = compared(SILU, tmp_path, change=1.0)
    assert comparison.third == "torch's decomposition"
    assert comparison.third_ratio == pytest.approx(comparison.worst_ratio)
    assert comparison.third_ratio > 8


def test_bits_are_asked_for_once_more_too(tmp_path: Path) -> None:
    comparison = compared(FLIP, tmp_path, change=1.0)
    assert (comparison.n_different, comparison.third_n_different) == (1, 1)
    assert comparison.third


def test_nothing_is_asked_where_both_agree(tmp_path: Path) -> None:
    assert compared(SILU, tmp_path).third == ""


def test_an_op_without_a_decomposition_is_run_on_plain_operands() -> None:
    way, how = third_way(torch.ops.aten.sort.default)
    assert how == "the same op on contiguous operands, without oneDNN"
    x = torch.tensor([[3.0, 1.0, 2.0], [6.0, 5.0, 4.0]]).t()
    assert way(x, 0)[0].tolist() == [[1.0, 4.0], [2.0, 5.0], [3.0, 6.0]]


def test_a_device_that_was_right_once_is_not_right(tmp_path: Path) -> None:
    comparison = compared(SILU, tmp_path, later=0.5)
    assert comparison.worst_ratio > 1000
    assert comparison.third_ratio > 1000
