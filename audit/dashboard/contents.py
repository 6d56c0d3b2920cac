"""What pages may ask of the runs that a site is built from. The catalog answers; nothing else needs to be known of it.

What is iterated may be long and is read piece by piece; what is a tuple is short. Every order is stable.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, Protocol, TypeAlias

from audit.dashboard.change_rows import LeftOut, ReleaseChange, Transition, Untested
from audit.dashboard.rows import (
    Gpu,
    MatrixCell,
    ModelRow,
    OpFinding,
    OpOnGpu,
    OpRow,
    RunCase,
    RunPage,
    RunRow,
    SignatureRow,
    SiteFacts,
    Stack,
)

#: What a digest is asked of: one thing by its slug, or all there is.
About: TypeAlias = Literal["op", "run", "model", "gpu", "site"]


class Contents(Protocol):
    """All runs of a site. A slug that is not there raises KeyError."""

    def site(self) -> SiteFacts: ...

    def gpus(self) -> tuple[Gpu, ...]:
        """By evidence (measured first), then by name; each with its stacks, oldest versions first."""

    def stacks(self) -> tuple[Stack, ...]:
        """Those of all GPUs, in their order: the columns of the matrix."""

    def ops(self) -> tuple[OpRow, ...]:
        """By name."""

    def matrix(self, op: str = "") -> Iterator[MatrixCell]:
        """By op, dtype and stack; of one op's slug, or of all."""

    def on_gpus(self) -> tuple[OpOnGpu, ...]:
        """By GPU, then by op: the same cases as in the shares of the GPUs."""

    def signatures(self, op: str) -> Iterator[SignatureRow]:
        """Every case of the op (by its slug): phase, dtype, signature."""

    def findings(self, op: str) -> tuple[OpFinding, ...]:
        """Of the newest observation on each stack: worst first, then by how many; at most ``MAX_FINDINGS``."""

    def models(self) -> tuple[ModelRow, ...]:
        """By name."""

    def runs(self, model: str = "", gpu: str = "") -> Iterator[RunRow]:
        """Newest first; of one model, one GPU, or all."""

    def run(self, run: str) -> RunPage: ...

    def cases(self, run: str) -> Iterator[RunCase]:
        """Of one run: worst first, then by device time."""

    def summary(self, run: str) -> bytes:
        """The run's ``summary.json``, packed with gzip."""

    def transitions(self, model: str = "", op: str = "", limit: int = 200) -> tuple[Transition, ...]:
        """Newest first: successive runs between which a status moved; of one model, one op's changes, or all.

        Of one model also those where nothing moved, so that its history is whole.
        """

    def releases(self) -> tuple[ReleaseChange, ...]:
        """What changed since the last release: one of each GPU that was seen with two."""

    def untested(self) -> tuple[Untested, ...]:
        """One of each GPU."""

    def left_out(self) -> tuple[LeftOut, ...]:
        """By path."""

    def digest(self, about: About, slug: str = "") -> str:
        """Changes whenever an answer about it may: the ``depends`` of a page that shows nothing else."""
