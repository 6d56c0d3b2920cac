"""Where in a tensor some of its elements sit, as facts: data of ``audit.comparison``, without torch."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class IndexRun:
    """Consecutive indices, both ends included."""

    first: int
    last: int


@dataclass(frozen=True)
class IndexSet:
    """The ``n`` different indices along one dimension of ``size`` at which something is; ``last`` is the greatest.

    They form ``n_runs`` runs of consecutive indices, of which ``runs`` are the first few. Where all
    runs are ``width`` long (one that the end of the dimension cuts short apart) and begin ``step`` after each other,
    these say so; 0 where they differ, and ``step`` also where there is one run only.
    """

    size: int
    n: int
    n_runs: int
    runs: tuple[IndexRun, ...]
    last: int
    width: int = 0
    step: int = 0


@dataclass(frozen=True)
class Places:
    """Where in an output ``n`` of the ``n_seen`` elements that were looked at sit: what they are is the field's name.

    ``along`` has an entry for each dimension. ``n_box`` elements lie at the combinations of those indices (as far as
    they were looked at); where that is ``n``, ``along`` says it all. ``n_astray`` or more of the ``n`` lie elsewhere,
    so few at each index that ``along`` leaves it out. ``diagonal``: from the least to the greatest
    column - row over them, of the last two dimensions. In memory they lie from ``first_offset`` to ``last_offset``
    (elements, by the output's strides) at multiples of ``step`` after the first: all of these where ``fills_steps``.
    """

    n: int
    n_seen: int
    along: tuple[IndexSet, ...]
    n_box: int
    diagonal: IndexRun | None = None
    first_offset: int = 0
    last_offset: int = 0
    step: int = 0
    fills_steps: bool = False
    n_astray: int = 0
