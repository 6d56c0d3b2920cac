"""Runs over differently filled fresh memory: what was never written, what did not repeat, and in how many runs."""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass

import torch

from audit.places import Places
from audit.replay.compare import flat, packed, unravel
from audit.replay.pattern import places_of
from audit.replay.tally import same_elements


@dataclass(frozen=True)
class MemoryFacts:
    """Counts over one output, and where these elements sit; ``first_unwritten`` is an index into it.

    ``n_runs`` and ``n_runs_differing`` as in ``audit.schema.Comparison``.
    """

    n_unwritten: int = 0
    first_unwritten: tuple[int, ...] = ()
    n_not_repeated: int = 0
    unwritten: Places | None = None
    not_repeated: Places | None = None
    n_runs: int = 0
    n_runs_differing: int = 0


class OutputRuns:
    """One output over several runs, of which the first is kept whole; the memory of the first two was filled otherwise.

    ``written`` and ``repeats``: whether the output must be. An element equal to the fill in both runs was not written,
    since the fills differ in every bit; NaN equals NaN when asking whether it repeated.
    """

    def __init__(self, first: torch.Tensor, written: bool, repeats: bool) -> None:
        self._first = first
        self._written = written
        self._repeats = repeats
        self._unwritten: torch.Tensor | None = None
        self._changed: torch.Tensor | None = None
        self._n_runs = self._n_like_first = 1
        self._others: Counter[bytes] = Counter()
        self._n_of_other_shape = 0

    def add(self, other: torch.Tensor, fills: tuple[int, int] | None = None) -> bool:
        """Host copy of the output from another run; ``fills`` of memory in the first and in this one, where they tell
        what was not written. Whether there are elements to be compared that did not repeat."""
        self._n_runs += 1
        if other.shape != self._first.shape or other.dtype != self._first.dtype:
            self._n_of_other_shape = max(self._n_of_other_shape, self._first.numel(), other.numel())
            self._others[str((other.shape, other.dtype)).encode()] += 1
            return False
        first, second = _bits(self._first), _bits(other)
        if torch.equal(first, second):
            self._n_like_first += 1
            return False
        if fills is not None:
            self._unwritten = (first == fills[0]).all(1) & (second == fills[1]).all(1)
        changed = ~same_elements(flat(self._first), flat(other))
        if self._unwritten is not None:
            changed &= ~self._unwritten
        if not bool(changed.any()):
            self._n_like_first += 1
            return False
        self._changed = changed if self._changed is None else self._changed | changed
        self._others[_digest(flat(other), changed)] += 1
        return self._repeats

    def facts(self) -> MemoryFacts:
        n_unwritten = 0 if self._unwritten is None or not self._written else int(self._unwritten.sum())
        n_changed = 0 if self._changed is None else int(self._changed.sum())
        unwritten = self._where(self._unwritten) if n_unwritten else None
        first = unravel(int(self._unwritten.nonzero()[0]), tuple(self._first.shape)) if n_unwritten else ()  # type: ignore[union-attr]
        return MemoryFacts(
            n_unwritten=n_unwritten,
            first_unwritten=first,
            n_not_repeated=max(n_changed, self._n_of_other_shape) if self._repeats else 0,
            unwritten=unwritten,
            not_repeated=self._where(self._changed) if self._repeats else None,
            n_runs=self._n_runs,
            n_runs_differing=self._n_differing() if self._repeats else 0,
        )

    def _n_differing(self) -> int:
        """Runs that did not give what most of them gave; all where no two agree."""
        most = max(self._n_like_first, *self._others.values(), 0) if self._others else self._n_runs
        return self._n_runs - most if most > 1 or self._n_runs == 1 else self._n_runs

    def _where(self, mask: torch.Tensor | None) -> Places | None:
        """``mask`` is flat, in logical order."""
        if mask is None:
            return None
        return places_of(mask.reshape(self._first.shape), tuple(self._first.stride()))


def memory_facts(
    first: torch.Tensor, second: torch.Tensor, fills: tuple[int, int], written: bool, repeats: bool
) -> MemoryFacts:
    """Of two runs over memory filled with ``fills``."""
    runs = OutputRuns(first, written, repeats)
    runs.add(second, fills)
    return runs.facts()


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    """Elements by bytes, [elements, itemsize] uint8, in logical order."""
    plain = packed(tensor.detach().resolve_conj().resolve_neg())
    return plain.view(torch.uint8).reshape(plain.numel(), plain.element_size())


def _digest(elements: torch.Tensor, changed: torch.Tensor) -> bytes:
    """The same for equal results: of what changed from the first run, with one NaN and one zero."""
    index, values = changed.nonzero().flatten(), elements[changed]
    if values.is_floating_point():
        values = torch.where(torch.isnan(values), torch.nan, values) + 0.0
    content = hashlib.blake2b(index.numpy().tobytes())
    content.update(values.contiguous().view(torch.uint8).numpy().tobytes() if values.numel() else b"")
    return content.digest()
