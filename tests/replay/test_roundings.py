"""Parts of narrow outputs: what one rounding gives, and what stands out."""

from __future__ import annotations

import math

import pytest
import torch

from audit.comparison import Rounding
from audit.replay.rounding_kinds import rounding_of
from audit.replay.roundings import Roundings, roundings
from tests.replay.conftest import Build

SIZES = (96, 80)


def normal(*sizes: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(sizes, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def found(actual: torch.Tensor, wide: torch.Tensor, kind: Rounding = "once") -> Roundings:
    same = wide.to(actual.dtype).reshape(-1)
    return roundings(kind, tuple(wide.shape), actual.reshape(-1), wide.reshape(-1), same, None)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("kind", ["once", "elementwise", "mostly once"])
def test_one_rounding_has_no_coarse_part(dtype: torch.dtype, kind: Rounding) -> None:
    for seed in range(20):
        wide = normal(*SIZES, seed=seed)
        assert found(wide.to(dtype), wide, kind) == Roundings()


def test_four_roundings_have_none_either() -> None:
    wide = normal(*SIZES)
    actual = wide.to(torch.bfloat16)
    for seed in range(3):
        actual = (actual.double() + (other := normal(*SIZES, seed=seed + 1))).to(torch.bfloat16)
        wide = wide + other
    assert max((part.ratio for part in found(actual, wide).parts), default=0.0) < 5.0


def test_a_tile_that_is_two_per_cent_off_is_found_in_its_place() -> None:
    wide = normal(*SIZES)
    wrong = wide.clone()
    wrong[32:48, 16:32] *= 1.02
    parts = {part.kind: part for part in found(wrong.to(torch.bfloat16), wide).parts}
    assert parts["tile"].place == (2, 1)
    assert parts["tile"].n == 256
    assert 10 < parts["tile"].ratio < 16


def test_a_head_a_column_and_a_run_are_found_in_their_places() -> None:
    heads = normal(2, 4, 16, 32)
    wrong = heads.clone()
    wrong[:, 2] *= 1.02
    by_dim = {part.dim: part for part in found(wrong.bfloat16(), heads, "mostly once").parts if part.kind == "index"}
    assert by_dim[1].place == (2,)
    line = normal(1000)
    wrong = line.clone()
    wrong[960:] *= 1.03
    [run] = [part for part in found(wrong.bfloat16(), line, "elementwise").parts if part.kind == "run"]
    assert (run.place, run.n) == ((15,), 64)


def test_an_output_that_is_too_large_all_over_has_that_scale() -> None:
    wide = normal(*SIZES)
    seen = found((wide * 1.02).bfloat16(), wide, "mostly once")
    assert seen.scale_error == pytest.approx(0.02, rel=0.02)
    assert seen.scale_deviation < 1e-3


def test_cutting_leaves_half_of_the_results_beside_the_nearest_number() -> None:
    wide = normal(*SIZES).float().double()
    cut = (wide.float().view(torch.int32) & ~0xFFFF).view(torch.float32).bfloat16()
    assert found(cut, wide).misrounded_fraction == pytest.approx(0.5, abs=0.05)


def test_a_quiet_part_is_excused_where_intermediate_results_do_not_grow_small_with_it() -> None:
    wide = normal(*SIZES)
    wide[0] *= 1e-4
    actual = wide.bfloat16()
    actual[0] += 1e-5
    assert found(actual, wide, "mostly once").parts == ()
    assert found(actual, wide, "once").parts != ()


def test_numbers_that_are_not_finite_are_left_to_the_masks() -> None:
    wide = normal(*SIZES)
    wide[3, 3] = math.nan
    actual = wide.bfloat16()
    actual[5, 5] = math.inf
    assert found(actual, wide).parts == ()


@pytest.mark.parametrize(("op", "dtype", "kind"), [
    ("aten::mul.Tensor", torch.bfloat16, "one operation"), ("aten::gelu.default", torch.float16, "elementwise"),
    ("aten::mm.default", torch.bfloat16, "once"), ("aten::convolution.default", torch.bfloat16, "mostly once"),
    ("aten::mul.Tensor", torch.float32, ""), ("aten::tanh_backward.default", torch.float16, ""),
    ("aten::cumsum.default", torch.bfloat16, ""),
])  # fmt: skip
def test_how_ops_round(build: Build, op: str, dtype: torch.dtype, kind: str) -> None:
    case = build.case(op, build.tensor((4, 4)))
    element = "element" if op in ("aten::gelu.default", "aten::tanh_backward.default") else "output"
    assert rounding_of(case, element, op == "aten::mm.default", dtype) == kind
