"""Changes between runs and releases, and what is missing, as pages get them. Data only, like ``rows``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from audit.dashboard.rows import Gpu, RunRow, Stack
from audit.schema import Status

#: Changes of a transition or a release that are listed; all are counted.
MAX_CHANGES = 200


@dataclass(frozen=True)
class EnvironmentChange:
    """One thing that differs between two runs. ``group``: torch, ROCm, driver, GPU, settings, machine, audit."""

    group: str
    name: str
    before: str
    after: str


#: By the rules' own order; ``unknown`` where one of the two is inconclusive, which is neither broken nor mended.
Direction: TypeAlias = Literal["worse", "better", "unknown"]


@dataclass(frozen=True)
class CaseChange:
    """A case whose status differs between two runs or stacks. ``reason`` is that of the finding after, or of
    the one before (``before: ...``) where the case is fine now."""

    op: str
    op_slug: str
    key: str
    signature: str
    dtype: str
    before: Status
    after: Status
    reason: str
    direction: Direction


@dataclass(frozen=True)
class Transition:
    """Two successive runs of one source on one GPU at one evidence level, and what moved between them.

    ``environment`` is what differs around them, and empty where nothing known does. ``changes`` are those asked for,
    worse ones first and at most ``MAX_CHANGES``; ``n_worse``, ``n_better`` and ``n_unknown`` count all of the two runs.
    ``n_common`` cases are in both, ``n_new`` are in no run before, ``n_gone`` are not in the later one.
    """

    before: RunRow
    after: RunRow
    environment: tuple[EnvironmentChange, ...]
    changes: tuple[CaseChange, ...]
    n_common: int
    n_worse: int
    n_better: int
    n_unknown: int
    n_new: int
    n_gone: int

    @property
    def cause(self) -> str:
        """``torch 2.12.1 → 2.13.0; driver 6.14 → 6.16``, or that nothing known changed."""
        told = [f"{one.name} {one.before or '(none)'} → {one.after or '(none)'}" for one in self.environment]
        return "; ".join(told) if told else "nothing known changed"


@dataclass(frozen=True)
class ReleaseChange:
    """The newest release seen on a GPU against the one before: cases that both have, newest status on each stack."""

    gpu: Gpu
    before: Stack
    after: Stack
    n_common: int
    n_inconclusive: int
    n_only_before: int
    n_only_after: int
    changes: tuple[CaseChange, ...]
    n_worse: int
    n_better: int
    n_unknown: int


# --- what is missing ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class UnknownCases:
    """Cases of one op on one GPU of which the newest status is inconclusive, with the most frequent reason."""

    op: str
    op_slug: str
    n_cases: int
    reason: str


@dataclass(frozen=True)
class Untested:
    """What was never tested on one GPU at one evidence level.

    ``ops`` are those of the knowledge base that no case was of, ``n_known_ops`` how many it has (``known_version`` is
    the torch they are of). ``by_class`` has (class, ops in no run, known ops). ``elsewhere`` are (op, dtype) pairs that
    other GPUs of this site have cases of.
    """

    gpu: Gpu
    known_version: str
    n_known_ops: int
    ops: tuple[str, ...]
    by_class: tuple[tuple[str, int, int], ...]
    elsewhere: tuple[tuple[str, str], ...]
    inconclusive: tuple[UnknownCases, ...]


@dataclass(frozen=True)
class LeftOut:
    """A file that is no part of the site: ``slug`` is the message's (docs/messages.md), ``reason`` its sentence."""

    path: str
    slug: str
    reason: str
