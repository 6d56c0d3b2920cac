"""Where in a tensor some of its elements sit: along each dimension, and in memory. Facts only, gathered in passes.

Memory is four bytes for each index of each dimension, whatever the number of elements.
"""

from __future__ import annotations

import math

import numpy as np
import torch

from audit.places import IndexRun, IndexSet, Places

#: Runs of indices told one by one.
N_TOLD_RUNS = 4
#: Elements may lie astray: indices with fewer than one in so many of the fullest index are left out, if that leaves out
#: few of the elements, and more of the indices than the ends of a triangle are.
_FEWEST, _MOST_ASTRAY, _MOST_KEPT = 16, 0.02, 0.9
#: Elements of a mask looked at in one go.
_BLOCK = 1 << 18


class PlaceTally:
    """Gathers elements of a tensor of these ``sizes`` and ``strides`` by their flat (row-major, logical) indices."""

    def __init__(self, sizes: tuple[int, ...], strides: tuple[int, ...]) -> None:
        self._sizes = sizes
        self._strides = strides
        self._counts: list[torch.Tensor] = []  # four bytes an index, made when there is something to count
        self._n = 0
        self._diagonal: tuple[int, int] | None = None
        self._offsets: tuple[int, int] | None = None
        self._step = 0

    def add(self, flat: torch.Tensor) -> None:
        """``flat``: int64 indices, 1-D, each element of the tensor at most once over all calls."""
        if not flat.numel():
            return
        self._n += flat.numel()
        if not self._counts:
            self._counts = [torch.zeros(size, dtype=torch.int32) for size in self._sizes]
        index = list(torch.unravel_index(flat, self._sizes)) if self._sizes else []
        for counts, along in zip(self._counts, index, strict=True):
            if counts.numel() <= along.numel():
                counts += torch.bincount(along, minlength=counts.numel())
            else:
                counts.index_add_(0, along, torch.ones_like(along, dtype=torch.int32))
        if len(index) >= 2:
            low, high = torch.aminmax(index[-1] - index[-2])
            self._diagonal = _widest(self._diagonal, (int(low), int(high)))
        offset = torch.zeros_like(flat)
        for along, stride in zip(index, self._strides, strict=True):
            offset += along * stride
        low, high = torch.aminmax(offset)
        start = self._offsets[0] if self._offsets is not None else int(low)
        self._offsets = _widest(self._offsets, (int(low), int(high)))
        self._step = math.gcd(self._step, int(np.gcd.reduce((offset - start).numpy())))

    def places(self, n_seen: int, box: torch.Tensor | None = None) -> Places | None:
        """What was gathered, None if nothing; of a tensor of which ``n_seen`` elements were looked at.

        ``box``: the flat indices of those, where they are not all.
        """
        if self._offsets is None:
            return None
        first, last = self._offsets
        kept = [_without_strays(counts) for counts in self._counts]
        astray = [self._n - int(counts[marked].sum()) for counts, marked in zip(self._counts, kept, strict=True)]
        return Places(
            n=self._n,
            n_seen=n_seen,
            along=tuple(index_set(marked) for marked in kept),
            n_box=_n_in_box(kept, self._sizes, box),
            n_astray=max(astray, default=0),
            diagonal=None if self._diagonal is None else IndexRun(*self._diagonal),
            first_offset=first,
            last_offset=last,
            step=self._step,
            fills_steps=self._n == 1 or (self._step > 0 and (last - first) // self._step + 1 == self._n),
        )


def _without_strays(counts: torch.Tensor) -> torch.Tensor:
    """Mask of the indices at which there are elements, but for those where a few lie astray."""
    marked = counts > 0
    main = counts * _FEWEST >= counts.max()
    n = int(counts.sum())
    few = n - int(counts[main].sum()) <= _MOST_ASTRAY * n
    return main if few and int(main.sum()) <= _MOST_KEPT * int(marked.sum()) else marked


def _n_in_box(kept: list[torch.Tensor], sizes: tuple[int, ...], seen: torch.Tensor | None) -> int:
    if seen is None:
        return math.prod(int(marked.sum()) for marked in kept)
    inside = torch.ones_like(seen, dtype=torch.bool)
    for marked, along in zip(kept, torch.unravel_index(seen, sizes), strict=True):
        inside &= marked[along]
    return int(inside.sum())


def _widest(known: tuple[int, int] | None, seen: tuple[int, int]) -> tuple[int, int]:
    return seen if known is None else (min(known[0], seen[0]), max(known[1], seen[1]))


def index_set(marked: torch.Tensor) -> IndexSet:
    """The true elements of a 1-D mask."""
    index = marked.nonzero().flatten()
    ends = torch.cat((torch.diff(index) != 1, torch.tensor([True])))
    last = index[ends]
    first = index[torch.cat((torch.tensor([True]), ends[:-1]))]
    widths, steps = last - first + 1, torch.diff(first)
    n_runs, width = first.numel(), int(widths[0])
    cut = int(last[-1]) == marked.numel() - 1 and int(widths[-1]) < width
    even = bool((widths[: n_runs - 1 if cut and n_runs > 1 else n_runs] == width).all())
    regular = n_runs > 1 and bool((steps == steps[0]).all())
    told = zip(first[:N_TOLD_RUNS].tolist(), last[:N_TOLD_RUNS].tolist(), strict=True)
    return IndexSet(
        size=marked.numel(),
        n=index.numel(),
        n_runs=n_runs,
        runs=tuple(IndexRun(*ends) for ends in told),
        last=int(last[-1]),
        width=width if even else 0,
        step=int(steps[0]) if even and regular else 0,
    )


def places_of(mask: torch.Tensor, strides: tuple[int, ...] | None = None) -> Places | None:
    """The true elements of ``mask``, which has the sizes of the tensor; ``strides`` are that tensor's, in elements."""
    tally = PlaceTally(tuple(mask.shape), tuple(mask.stride()) if strides is None else strides)
    line = mask.reshape(-1)
    for start in range(0, line.numel(), _BLOCK):
        tally.add(line[start : start + _BLOCK].nonzero().flatten() + start)
    return tally.places(mask.numel())
