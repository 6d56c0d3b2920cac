"""What was seen when the whole step was played on the device beside the CPU, call by call. No opinion.

Errors are root-mean-square, relative to the fp64 values, over all floating outputs and written operands of a call.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from audit.schema import Outcome, Phase

#: What about the real inputs of a call makes it go wrong: their strides, their values, or neither, since a copy of
#: them with the same strides in fresh memory is right: the memory itself, what ran just before, or the time.
Cause: TypeAlias = Literal["", "layout", "values", "memory or order"]


@dataclass(frozen=True)
class DriftStep:
    """One call of the step. ``index`` counts from 0; ``key`` is that of its case; ``before`` are the calls that made or
    wrote its operands last, by index.

    Accumulated, since the step began: ``error`` of the device and ``noise`` of the CPU in the program's own dtypes,
    both against the step in fp64; None where nothing floating came, or all of it is zero. ``eps`` is that of the
    coarsest dtype among their ``n_elements``. ``n_different`` counts integers and masks that are not the CPU's.

    Of this call alone, each the worst of its outputs as ``Comparison.worst_ratio``: ``ratio`` on the inputs that the
    device has come to, ``alone_ratio`` on the CPU's (None where it was not tried: it is at the first call of a case and
    wherever ``ratio`` is large). ``wrong`` and ``alone_wrong`` count elements that must be equal and are not, or are
    NaN or Inf on one side; ``alone_error`` is the error of the device on the CPU's inputs.

    ``failure``: the device raised, and goes on with the CPU's values. ``fed``: why the outputs are not the device's own
    but the program's. ``lost``: why the fp64 side has taken the CPU's values here and begins anew. ``layout``: operands
    whose strides are not those that the program had on the CPU.
    """

    index: int
    key: str
    op: str
    phase: Phase
    module: str = ""
    source: str = ""
    failure: Outcome | None = None
    error: float | None = None
    noise: float | None = None
    eps: float = 0.0
    n_elements: int = 0
    ratio: float | None = None
    wrong: int = 0
    alone_ratio: float | None = None
    alone_wrong: int | None = None
    alone_error: float | None = None
    n_different: int = 0
    worst: str = ""
    cause: Cause = ""
    before: tuple[int, ...] = ()
    layout: tuple[str, ...] = ()
    fed: str = ""
    lost: str = ""


@dataclass(frozen=True)
class DriftStarted:
    """Written before the device is touched for the call ``index``."""

    index: int
    op: str


@dataclass(frozen=True)
class DriftEnd:
    """``n_steps`` of the ``n_calls`` on the tape were played; ``reason`` says why not all, empty where all were.

    ``n_unseen`` calls of the step could not be put on the tape. ``tape_bytes`` are what the tape's values took.
    """

    n_calls: int
    n_steps: int
    n_unseen: int = 0
    tape_bytes: int = 0
    reason: str = ""


@dataclass(frozen=True)
class Drift:
    """The steps in order; ``started`` is the call that the device did not come back from. ``end`` None: cut short."""

    steps: tuple[DriftStep, ...]
    end: DriftEnd | None = None
    started: DriftStarted | None = None
