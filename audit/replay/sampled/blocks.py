"""Large cases whose rows, elements or list entries have nothing to do with each other, as many small cases.

Each block of rows is a case of its own, on its part of the operands, and is measured as any other case is: every
element is compared, and no operand is widened whole.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from audit.comparison import Comparison, TensorFact
from audit.replay.anatomy import Anatomy
from audit.replay.compare import Expected, compare, numeric, unravel, with_roundings
from audit.replay.inputs import elements_of, reach, torch_dtype
from audit.replay.roundings import RUN, TILE
from audit.replay.sampled import rounded_blocks
from audit.replay.sampled.independent import Independent
from audit.replay.sampled.reductions import Moments, Sums
from audit.schema import Arg, Case, TensorSpec

#: Bytes of the operands and outputs of one block. Some forty times that is held while it is measured, in double
#: precision and moved: each tensor still below what the allocator maps anew and clears for every use, which takes
#: longer than the arithmetic on it.
BLOCK_BYTES = 4 << 20
#: Rows of a block, where it has so many, are a multiple of these: then its parts are those of the whole output.
_WHOLE_PARTS = RUN, TILE

#: Measures a small case on the contents of its storages: what is expected of each output.
Measure = Callable[[Case, Mapping[str, Tensor]], Mapping[str, Expected]]


@dataclass(frozen=True)
class Block:
    """A part of a case: from the entry ``first`` of its lists on (0 without lists), and some rows of them.

    ``case`` has storages that begin where the block does: at ``starts``, bytes into the storages of the whole. Those of
    operands that are ``scattered`` in it, as a few channels are in all images, hold their elements alone.
    """

    case: Case
    starts: Mapping[str, tuple[int, int]]
    scattered: Mapping[str, TensorSpec]
    first: int
    rows: tuple[int, int] | None

    def contents(self, whole: Mapping[str, Tensor]) -> dict[str, Tensor]:
        found = {name: whole[name][start:stop] for name, (start, stop) in self.starts.items()}
        for name, spec in self.scattered.items():
            line = elements_of(whole[name], torch_dtype(spec.dtype))
            part = line.as_strided(spec.sizes, spec.strides, line.storage_offset() + spec.offset)
            found[name] = part.permute(_order(spec)).contiguous().flatten().view(torch.uint8)
        return found


def _order(spec: TensorSpec) -> list[int]:
    """Its dimensions from the largest stride to the smallest."""
    return sorted(range(len(spec.sizes)), key=lambda dim: -spec.strides[dim])


def _gathered(spec: TensorSpec) -> TensorSpec:
    """The same with its elements side by side, in the same order in memory."""
    strides, step = [0] * len(spec.sizes), 1
    for dim in reversed(_order(spec)):
        strides[dim], step = step, step * spec.sizes[dim]
    return dataclasses.replace(spec, strides=tuple(strides), offset=0, extent=step)


# --- taking a case apart ---------------------------------------------------------------------------------------------


def blocks_of(case: Case, independent: Independent) -> Iterator[Block]:
    """The blocks of a case, in order. Raises ValueError where operands share a storage in different dtypes."""
    entries = independent.entries(case)
    if entries is None:
        yield from _by_rows(case, independent, 0)
        return
    first, total = 0, 0
    for entry, nbytes in enumerate(entries):
        if nbytes > BLOCK_BYTES and independent.n_rows(case, entry) > 1:
            if first < entry:
                yield _block(case, independent, (first, entry), None)
            yield from _by_rows(case, independent, entry)
            first, total = entry + 1, 0
            continue
        if total and total + nbytes > BLOCK_BYTES:
            yield _block(case, independent, (first, entry), None)
            first, total = entry, 0
        total += nbytes
    if first < len(entries):
        yield _block(case, independent, (first, len(entries)), None)


def _by_rows(case: Case, independent: Independent, entry: int) -> Iterator[Block]:
    n_rows = independent.n_rows(case, entry)
    row_bytes = max(1, independent.nbytes(case, entry) // max(n_rows, 1))
    step = max(1, BLOCK_BYTES // row_bytes)
    step -= step % next((part for part in _WHOLE_PARTS if step >= part), 1)
    for start in range(0, n_rows, step):
        yield _block(case, independent, (entry, entry + 1), (start, min(start + step, n_rows)))


def _block(case: Case, independent: Independent, entries: tuple[int, int], rows: tuple[int, int] | None) -> Block:
    part = independent.part(case, entries, rows)
    spans: dict[str, tuple[int, int]] = {}
    members: dict[str, TensorSpec | None] = {}
    dtypes: dict[str, str] = {}

    def measured(spec: TensorSpec) -> TensorSpec:
        name, stop = _storage(spec), spec.offset + reach(spec.sizes, spec.strides)
        if dtypes.setdefault(name, spec.dtype) != spec.dtype:
            raise ValueError("operands of different dtypes share a storage")
        low, high = spans.get(name, (spec.offset, stop))
        spans[name] = min(low, spec.offset), max(high, stop)
        members[name] = spec if members.get(name, spec) == spec else None  # different ones are left as they lie
        return spec

    def shifted(spec: TensorSpec) -> TensorSpec:
        if _storage(spec) in scattered:
            return _gathered(spec)
        low, high = spans[_storage(spec)]
        return dataclasses.replace(spec, offset=spec.offset - low, extent=high - low)

    each_spec(part, measured)
    scattered = {name: spec for name, spec in members.items() if spec is not None and _is_scattered(spec)}
    starts = {}
    for name, (low, high) in spans.items():
        itemsize = torch_dtype(dtypes[name]).itemsize
        if name not in scattered:
            starts[name] = low * itemsize, high * itemsize
    return Block(each_spec(part, shifted), starts, scattered, entries[0], rows)


def _storage(spec: TensorSpec) -> str:
    return f"{spec.storage}{'h' if spec.host else ''}"


def _is_scattered(spec: TensorSpec) -> bool:
    """Whether most of what lies between its first and its last element is not its own."""
    return 0 not in spec.strides and reach(spec.sizes, spec.strides) > 2 * math.prod(spec.sizes)


def each_spec(case: Case, change: Callable[[TensorSpec], TensorSpec]) -> Case:
    """The case with every tensor in its arguments changed."""

    def walk(arg: Arg) -> Arg:
        if isinstance(arg, TensorSpec):
            return change(arg)
        return tuple(walk(item) for item in arg) if isinstance(arg, tuple) else arg

    args, kwargs = tuple(walk(arg) for arg in case.args), tuple((name, walk(arg)) for name, arg in case.kwargs)
    grads = None if case.grads is None else tuple(None if g is None else change(g) for g in case.grads)
    return dataclasses.replace(case, args=args, kwargs=kwargs, grads=grads)


# --- putting what was found together ---------------------------------------------------------------------------------


@dataclass
class Blocked:
    """All blocks of a case, and what was found of each output when these were last compared."""

    case: Case
    independent: Independent
    whole: Mapping[str, Tensor]
    facts: Mapping[str, TensorFact]
    measure: Measure
    found: dict[str, Comparison] = field(default_factory=dict)
    seen: dict[str, int] = field(default_factory=dict)
    n_placed: dict[str, int] = field(default_factory=dict)
    anatomies: dict[str, Anatomy] = field(default_factory=dict)

    def read(self, actual: Mapping[str, Tensor]) -> None:
        """Compares outputs (flat, by name), each block of all of them at a time."""
        wanted = {name: tensor for name, tensor in actual.items() if name in self.facts}
        for name, tensor in wanted.items():
            self.found.pop(name, None)
            self.anatomies.pop(name, None)
            self.n_placed[name] = 0
            self.seen[name] = tensor.data_ptr()
        sums, moments = Sums(self.facts, self.independent.reduced), Moments(self.case, self.facts)
        for block in blocks_of(self.case, self.independent):
            found = self.measure(block.case, block.contents(self.whole))
            n_rows = self.independent.n_rows(self.case, block.first)
            share = 1.0 if block.rows is None else (block.rows[1] - block.rows[0]) / n_rows
            if self.independent.reduced == "moments":
                moments.add(found, share)
                continue
            for name, expected in found.items():
                target = _renumbered(name, block.first)
                if target not in wanted:
                    continue
                place = _place(self.facts[target], expected.fact, block.rows, n_rows)
                if place is None:
                    sums.add(target, expected, share)
                else:
                    self._add(target, expected, place, wanted[target])
        reduced = moments if self.independent.reduced == "moments" else sums
        for name, expected in reduced.expected().items():
            if name in wanted:
                self._add(name, expected, _Place(1, 1, wanted[name].numel(), 0, 1), wanted[name])

    def _add(self, name: str, expected: Expected, place: _Place, output: Tensor) -> None:
        actual, places = place.of(output), place.elements()
        self.n_placed[name] += actual.numel()
        sizes = self.facts[name].sizes
        fact = dataclasses.replace(self.facts[name], dtype=str(actual.dtype).removeprefix("torch."))
        anatomy = self.anatomies.setdefault(name, Anatomy(fact))
        anatomy.move_to(places)
        if expected.standard == "numeric" and expected.free is None:
            result = Comparison(name, "numeric", fact, fact, n_elements=actual.numel())
            found = with_roundings(numeric(result, expected, actual, places, anatomy), expected, actual)
        else:
            found = compare(expected, actual, dataclasses.replace(expected.fact, dtype=fact.dtype), anatomy)
            steps = _steps(expected.fact.sizes) if found.worst_index else []
            worst = sum(index * step for index, step in zip(found.worst_index, steps, strict=True))
            at = unravel(int(places[worst]), sizes) if found.worst_index else ()
            found = dataclasses.replace(found, worst_index=at)
        parts = rounded_blocks.moved(found.parts, len(sizes), place.dim, place.start)
        found = dataclasses.replace(found, parts=parts)
        self.found[name] = together(self.found[name], found) if name in self.found else found

    def of(self, name: str, result: Comparison, actual: Tensor) -> Comparison:
        if self.seen.get(name) != actual.data_ptr():
            self.read({name: actual})
        found = self.found.get(name)
        if found is None:
            return result
        found = dataclasses.replace(found, name=result.name, expected=result.expected, actual=result.actual)
        found = self.anatomies[name].told(found, found.n_elements)
        missing = result.n_elements - self.n_placed[name]  # of a block that could not be measured
        if missing <= 0:
            return found
        return dataclasses.replace(
            found,
            n_elements=result.n_elements,
            n_compared=found.n_elements,
            unseen_fraction=missing / result.n_elements,
        )


@dataclass(frozen=True)
class BlockOutput:
    """One output of a case that is measured in blocks."""

    blocked: Blocked
    name: str

    def compare(self, result: Comparison, actual: Tensor) -> Comparison:
        return self.blocked.of(self.name, result, actual)


def read_together(expected: Mapping[str, Expected], actual: Mapping[str, Tensor]) -> None:
    """Compares all outputs of a case in blocks at once, so that no block is measured for each of them again."""
    outputs = [e.sampled for e in expected.values() if isinstance(e.sampled, BlockOutput)]
    if outputs:
        outputs[0].blocked.read(actual)


def _renumbered(name: str, first: int) -> str:
    """The name of a list's entry in the whole: ``self[0] (mutated)`` of a block from entry 7 on is ``self[7] ...``."""
    before, bracket, rest = name.partition("[")
    number, _, after = rest.partition("]")
    return f"{before}[{int(number) + first}]{after}" if bracket and number.isdigit() else name


@dataclass(frozen=True)
class _Place:
    """Where a block's output lies in the whole one: a range of dimension ``dim``, which is ``size`` long and has so
    many places ``before`` it and elements ``behind``."""

    before: int
    size: int
    behind: int
    start: int
    stop: int
    dim: int = 0

    def of(self, flat: Tensor) -> Tensor:
        """Its elements, flat."""
        return flat.view(self.before, self.size, self.behind)[:, self.start : self.stop].reshape(-1)

    def elements(self) -> Tensor:
        """Their flat indices."""
        within = torch.arange(self.start * self.behind, self.stop * self.behind)
        return (torch.arange(self.before).view(-1, 1) * (self.size * self.behind) + within).flatten()


def _place(whole: TensorFact, part: TensorFact, rows: tuple[int, int] | None, n_rows: int) -> _Place | None:
    """None where the whole output is made of those of all blocks."""
    if rows is None or rows == (0, n_rows):
        return _Place(1, 1, math.prod(whole.sizes), 0, 1)
    pairs = list(zip(whole.sizes, part.sizes, strict=False))
    differing = [dim for dim, (all_of_it, some) in enumerate(pairs) if all_of_it != some]
    if len(whole.sizes) != len(part.sizes) or len(differing) != 1:
        return None
    [dim] = differing
    size, n_some = pairs[dim]
    if size % n_rows or n_some * n_rows != size * (rows[1] - rows[0]):
        return None
    before, behind, each = math.prod(whole.sizes[:dim]), math.prod(whole.sizes[dim + 1 :]), size // n_rows
    return _Place(before, size, behind, rows[0] * each, rows[1] * each, dim)


def _steps(sizes: tuple[int, ...]) -> list[int]:
    return [math.prod(sizes[dim + 1 :]) for dim in range(len(sizes))]


def together(one: Comparison, other: Comparison) -> Comparison:
    """Two parts of an output as one: counts added. The worst place is that of the worse part; where wrong elements sit,
    and their distances in ULP, are known to the anatomy of the whole."""

    def trouble(c: Comparison) -> tuple[int, float]:
        n_different = c.n_different if c.standard == "exact" else 0
        return c.n_nan_mismatch + c.n_inf_mismatch + n_different, c.worst_ratio

    def rms(name: str) -> float:
        n = one.n_elements + other.n_elements
        squares = one.n_elements * getattr(one, name) ** 2 + other.n_elements * getattr(other, name) ** 2
        return math.sqrt(squares / n) if n else 0.0

    worse = other if trouble(other) > trouble(one) else one
    longest = max(len(one.ratio_counts), len(other.ratio_counts))
    counts = (c.ratio_counts + (0,) * (longest - len(c.ratio_counts)) for c in (one, other))
    added = ("n_elements", "n_different", "n_nan_mismatch", "n_inf_mismatch")
    return dataclasses.replace(
        worse,
        **{name: getattr(one, name) + getattr(other, name) for name in added},
        **{name: max(getattr(one, name), getattr(other, name)) for name in ("max_abs_error", "cpu_max_abs_error")},
        rms_error=rms("rms_error"),
        cpu_rms_error=rms("cpu_rms_error"),
        worst_ratio=max(one.worst_ratio, other.worst_ratio),
        ratio_counts=tuple(a + b for a, b in zip(*counts, strict=True)),
        **rounded_blocks.together(one, other),
    )
