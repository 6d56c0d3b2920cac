"""Measures how far a device's output is from the reference, block by block; judges nothing.

The metric and every field are defined in the docstring of ``audit.comparison.Comparison``.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from audit.comparison import Comparison, Layout, Rounding, Standard, TensorFact
from audit.replay.anatomy import Anatomy, is_off, wrong_elements
from audit.replay.roundings import roundings
from audit.replay.tally import Tally, add_block, same_elements, widened
from audit.replay.ties import Tie, really_different
from audit.replay.ulp import spacing_above_one

#: Elements looked at in one go: 2 MB of fp64, so that temporaries stay in the cache.
BLOCK = 1 << 18


class Sampled(Protocol):
    """The reference of an output that is too large to be computed whole."""

    def compare(self, result: Comparison, actual: torch.Tensor) -> Comparison:
        """``result`` with what was found; ``actual`` holds all of the device's elements, flat."""


@dataclass(frozen=True)
class LocalNoise:
    """Noise that differs over an output: ``values`` (1-D) has one for each ``group`` of consecutive elements."""

    values: torch.Tensor
    group: int

    def of(self, start: int, stop: int) -> torch.Tensor:
        """The noise of the elements from ``start`` to ``stop``, fp64."""
        first, last = start // self.group, -(-stop // self.group)
        spread = self.values[first:last].double().repeat_interleave(self.group)
        return spread[start - first * self.group : stop - first * self.group]


@dataclass(frozen=True)
class Expected:
    """What the reference says about one output.

    ``same`` is the CPU run in the case's own dtype, ``wide`` the fp64 (complex128) one; both flat and contiguous, and
    either may be missing. ``noise``, ``cpu_max_abs_error`` and ``cpu_rms_error`` as in Comparison. Where
    ``facts_known`` is false the dtype and strides are those of a stand-in, and the device's own are taken for right.
    ``signed_zeros``: exact, and -0.0 is not 0.0.
    ``free`` elements (flat mask) may have any value; ``why`` says for what reason. ``sampled`` stands in place of
    ``same`` and ``wide`` where these would be too large. ``local`` is the noise where it differs over the output;
    ``rounded_once``, ``layout`` and ``rounding`` as in Comparison; ``spread`` as in ``audit.replay.roundings``.
    """

    name: str
    fact: TensorFact
    standard: Standard
    why: str = ""
    same: torch.Tensor | None = None
    wide: torch.Tensor | None = None
    noise: float = 0.0
    cpu_max_abs_error: float = 0.0
    cpu_rms_error: float = 0.0
    tie: Tie | None = None
    facts_known: bool = True
    free: torch.Tensor | None = None
    sampled: Sampled | None = None
    local: LocalNoise | None = None
    rounded_once: bool = False
    layout: Layout = ""
    signed_zeros: bool = False
    rounding: Rounding = ""
    spread: torch.Tensor | None = None


def fact_of(tensor: torch.Tensor) -> TensorFact:
    return TensorFact(tuple(tensor.shape), tuple(tensor.stride()), str(tensor.dtype).removeprefix("torch."))


def flat(tensor: torch.Tensor) -> torch.Tensor:
    """All elements in logical order, contiguous, on the CPU; fp8 and the like as float32, since few ops know them."""
    tensor = tensor.detach().resolve_conj().resolve_neg()
    if tensor.dtype.is_floating_point and tensor.dtype.itemsize == 1:
        tensor = tensor.to(torch.float32)
    return packed(tensor)


def packed(tensor: torch.Tensor) -> torch.Tensor:
    """All elements in logical order, 1-D with stride 1; a single element counts as contiguous with any stride."""
    line = tensor.reshape(-1).contiguous()
    return line.as_strided(line.size(), (1,))


def eps_of(dtype_name: str) -> float:
    """Spacing of the dtype's numbers just above 1; 0 for integers and booleans."""
    dtype = getattr(torch, dtype_name)
    return spacing_above_one(dtype) if dtype.is_floating_point or dtype.is_complex else 0.0


def error_between(a: torch.Tensor, b: torch.Tensor) -> tuple[float, float]:
    """Largest and root-mean-square absolute difference over the elements finite in both (flat tensors of any dtype)."""
    largest, squares, n = 0.0, 0.0, 0
    for start in range(0, a.numel(), BLOCK):
        x, y = widened(a[start : start + BLOCK]), widened(b[start : start + BLOCK])
        error = x - y if not x.is_complex() else (x - y).abs()
        worst = _largest(error)
        if not math.isfinite(worst):  # rare, and three more passes over the block
            error = error[torch.isfinite(x) & torch.isfinite(y)]
            worst = _largest(error) if error.numel() else 0.0
        largest = max(largest, worst)
        squares += float(torch.dot(error, error))
        n += error.numel()
    return largest, math.sqrt(squares / n) if n else 0.0


def _largest(error: torch.Tensor) -> float:
    """The largest magnitude, NaN where one is among them; a third of what ``abs`` and ``max`` take."""
    low, high = torch.aminmax(error)
    return max(-float(low), float(high))


def compare(
    expected: Expected,
    actual: torch.Tensor | None,
    actual_fact: TensorFact | None,
    anatomy: Anatomy | None = None,
) -> Comparison:
    """``actual`` holds the device's elements flat; ``actual_fact`` the shape, strides and dtype they came in.

    ``anatomy``: of the whole output, of which this is a part; what is off is added to it.
    """
    fact = expected.fact
    if actual_fact is not None and not expected.facts_known and actual_fact.sizes == fact.sizes:
        fact = actual_fact
    result = Comparison(
        name=expected.name,
        standard=expected.standard,
        expected=fact,
        actual=actual_fact,
        why=expected.why,
        layout=expected.layout,
    )
    if actual is None or actual_fact is None or expected.standard == "metadata":
        return result
    if actual_fact.sizes != fact.sizes or actual_fact.dtype != fact.dtype:
        return result
    if expected.sampled is not None:
        return expected.sampled.compare(dataclasses.replace(result, n_elements=actual.numel()), actual)
    if expected.free is not None:
        actual = _without_free(expected, expected.free, actual)
    n_free = 0 if expected.free is None else int(expected.free.sum())
    result = dataclasses.replace(result, n_elements=actual.numel() - n_free)
    if expected.standard == "exact":
        return _exact(result, expected, actual, anatomy)
    return with_roundings(numeric(result, expected, actual, anatomy=anatomy), expected, actual)


def with_roundings(result: Comparison, expected: Expected, actual: torch.Tensor) -> Comparison:
    """With what parts of a narrow output look like, where any of it differs from the CPU's."""
    if not (expected.rounding and result.n_different) or expected.wide is None or expected.same is None:
        return result
    found = roundings(expected.rounding, expected.fact.sizes, actual, expected.wide, expected.same, expected.spread)
    return dataclasses.replace(
        result,
        rounding=expected.rounding,
        parts=found.parts,
        typical_part=found.typical,
        misrounded_fraction=found.misrounded_fraction,
        scale_error=found.scale_error,
        scale_deviation=found.scale_deviation,
    )


def _without_free(expected: Expected, free: torch.Tensor, actual: torch.Tensor) -> torch.Tensor:
    """The device's elements with the reference's own where any value is right."""
    reference = expected.same if expected.same is not None else expected.wide
    return actual if reference is None else torch.where(free, reference.to(actual.dtype), actual)


def worse(results: Sequence[Comparison]) -> Comparison:
    """The one of several runs that is further from the reference."""

    def distance(result: Comparison) -> tuple[float, ...]:
        return result.n_nan_mismatch + result.n_inf_mismatch, result.worst_ratio, result.n_different

    return max(results, key=distance)


# --- exact -----------------------------------------------------------------------------------------------------


def _exact(result: Comparison, expected: Expected, actual: torch.Tensor, anatomy: Anatomy | None) -> Comparison:
    """A part at a time but where a tie is told from the whole: masks of large outputs would take more than these."""
    same = expected.same if expected.same is not None else expected.wide
    if same is None:
        return result
    counts = _Exact(actual.dtype)
    tied = None if expected.tie is None else _tied(expected.tie, actual, same, actual_sizes(result))
    for start in range(0, actual.numel(), BLOCK):
        part = slice(start, start + BLOCK)
        mine, theirs = actual[part], same[part].to(actual.dtype)
        counts.add(start, _wrong(mine, theirs, expected.signed_zeros) if tied is None else tied[part], mine, theirs)
    result = dataclasses.replace(result, reference="same-dtype", n_different=counts.n_different)
    if counts.first is None:
        return result
    if result.actual is not None:
        result = _located(result, expected, actual, same, tied, anatomy or Anatomy(result.actual))
    floating = actual.dtype.is_floating_point or actual.dtype.is_complex
    largest, rms = error_between(actual, same) if floating else (0.0, 0.0)
    return dataclasses.replace(
        result,
        max_abs_error=largest,
        rms_error=rms,
        n_nan_mismatch=counts.n_nan_mismatch,
        n_inf_mismatch=counts.n_inf_mismatch,
        worst_index=unravel(counts.first, actual_sizes(result)),
        worst_actual=_text(actual[counts.first]),
        worst_expected=_text(same[counts.first].to(actual.dtype)),
    )


@dataclass
class _Exact:
    """What differs, counted a part at a time; ``first``: the first element that does."""

    dtype: torch.dtype
    n_different: int = 0
    n_nan_mismatch: int = 0
    n_inf_mismatch: int = 0
    first: int | None = None

    def add(self, start: int, wrong: torch.Tensor, actual: torch.Tensor, same: torch.Tensor) -> None:
        n = int(wrong.sum())
        self.n_different += n
        if n and self.first is None:
            self.first = start + int(wrong.nonzero()[0])
        if n and (self.dtype.is_floating_point or self.dtype.is_complex):
            self.n_nan_mismatch += int((torch.isnan(actual) != torch.isnan(same)).sum())
            self.n_inf_mismatch += int((torch.isinf(actual) != torch.isinf(same)).sum())


def _tied(tie: Tie, actual: torch.Tensor, same: torch.Tensor, sizes: tuple[int, ...]) -> torch.Tensor:
    return really_different(tie, actual.reshape(sizes), same.to(actual.dtype).reshape(sizes)).reshape(-1)


def _wrong(actual: torch.Tensor, same: torch.Tensor, signed_zeros: bool) -> torch.Tensor:
    if not signed_zeros and _is_equal(actual, same):
        return torch.zeros_like(actual, dtype=torch.bool)
    wrong = ~same_elements(actual, same)
    return wrong | _of_other_sign(actual, same) if signed_zeros else wrong


def _is_equal(actual: torch.Tensor, same: torch.Tensor) -> bool:
    """By the parts of complex numbers: ``torch.equal`` has no kernel for those of half precision."""
    if actual.is_complex():
        return torch.equal(torch.view_as_real(actual.resolve_conj()), torch.view_as_real(same.resolve_conj()))
    return torch.equal(actual, same)


def _located(
    result: Comparison,
    expected: Expected,
    actual: torch.Tensor,
    same: torch.Tensor,
    tied: torch.Tensor | None,
    anatomy: Anatomy,
) -> Comparison:
    """``result`` with where wrong elements sit and how far off they are: a second pass over what is off."""
    for start in range(0, actual.numel(), BLOCK):
        part = slice(start, start + BLOCK)
        mine, theirs = actual[part], same[part].to(actual.dtype)
        anatomy.add(_wrong(mine, theirs, expected.signed_zeros) if tied is None else tied[part], mine, theirs)
    return anatomy.told(result)


def _of_other_sign(actual: torch.Tensor, same: torch.Tensor) -> torch.Tensor:
    """Mask of zeros whose sign differs; what is no float, or complex, has none that is asked for."""
    if not actual.dtype.is_floating_point:
        return torch.zeros_like(actual, dtype=torch.bool)
    return (torch.signbit(actual) != torch.signbit(same)).logical_and_(actual == 0).logical_and_(same == 0)


def actual_sizes(result: Comparison) -> tuple[int, ...]:
    return result.actual.sizes if result.actual is not None else ()


def unravel(index: int, sizes: tuple[int, ...]) -> tuple[int, ...]:
    """The place of the ``index``-th element in row-major order."""
    place: list[int] = []
    for size in reversed(sizes):
        index, rest = divmod(index, size)
        place.append(rest)
    return tuple(reversed(place))


def _text(element: torch.Tensor) -> str:
    return str(element.item())


# --- numeric ---------------------------------------------------------------------------------------------------


def numeric(
    result: Comparison,
    expected: Expected,
    actual: torch.Tensor,
    places: torch.Tensor | None = None,
    anatomy: Anatomy | None = None,
) -> Comparison:
    """``result`` with the errors of ``actual``. Of a part of the output, ``places`` has each element's flat index."""
    wide = expected.wide if expected.wide is not None else expected.same
    if wide is None:
        return result
    eps = eps_of(result.actual.dtype if result.actual is not None else "float32")
    tally = Tally()
    for start in range(0, actual.numel(), BLOCK):
        part = slice(start, start + BLOCK)
        same = None if expected.same is None else expected.same[part]
        add_block(tally, start, actual[part], wide[part], same, noise_of(expected, part), eps)
    worst = tally.first_mismatch if tally.first_mismatch is not None else tally.worst
    sizes = actual_sizes(result)
    place = worst if worst is None or places is None else int(places[worst])
    n_powers = max((power + 1 for power, count in enumerate(tally.counts) if count), default=0)
    result = dataclasses.replace(
        result,
        reference="fp64" if expected.wide is not None else "same-dtype",
        rounded_once=expected.rounded_once,
        n_different=tally.n_different,
        n_nan_mismatch=tally.n_nan_mismatch,
        n_inf_mismatch=tally.n_inf_mismatch,
        max_abs_error=tally.max_abs_error,
        rms_error=math.sqrt(tally.squares / tally.n_finite) if tally.n_finite else 0.0,
        cpu_max_abs_error=expected.cpu_max_abs_error,
        cpu_rms_error=expected.cpu_rms_error,
        noise=float(noise_of(expected, slice(worst or 0, (worst or 0) + 1))),
        eps=eps,
        worst_ratio=tally.worst_ratio,
        ratio_counts=tuple(tally.counts[:n_powers]),
        worst_index=() if place is None else unravel(place, sizes),
        worst_actual="" if worst is None else _text(actual[worst]),
        worst_expected="" if worst is None else _text(wide[worst]),
    )
    if not is_off(result) or result.actual is None:
        return result
    return _dissected(result, expected, actual, wide, anatomy or Anatomy(result.actual, places))


def _dissected(
    result: Comparison, expected: Expected, actual: torch.Tensor, wide: torch.Tensor, anatomy: Anatomy
) -> Comparison:
    """``result`` with where the wrong elements sit and the errors in ULP: a second pass over what is off."""
    for start in range(0, actual.numel(), BLOCK):
        part = slice(start, start + BLOCK)
        same = None if expected.same is None else expected.same[part]
        wrong = wrong_elements(actual[part], wide[part], same, noise_of(expected, part), result.eps)
        anatomy.add(wrong, actual[part], wide[part])
    return anatomy.told(result)


def noise_of(expected: Expected, part: slice) -> float | torch.Tensor:
    """The noise of a part of the elements: one for all, or one for each."""
    return expected.noise if expected.local is None else expected.local.of(part.start, part.stop)
