"""What a run means: the findings of rules, verdicts, coverage, the judgement. Data only, made anew at each judging.

``_us`` is in microseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from audit.run_records import Run, RunHeader
from audit.schema import Case, Measurement, Phase, Status

#: What holds a call at the least time that it can take.
Bound: TypeAlias = Literal["compute", "memory", "launch"]


@dataclass(frozen=True)
class Known:
    """A documented hardware behaviour or public issue that explains a finding."""

    title: str
    link: str
    remedy: str = ""


@dataclass(frozen=True)
class Finding:
    """One rule's statement about one case. ``code`` is permanent: SUP1xx NUM2xx FBK3xx SPD4xx INC9xx.

    A finding with status ``supported`` is a note: shown, and of no weight in the verdict.
    """

    code: str
    status: Status
    message: str
    data: Mapping[str, str | int | float | bool | None] = field(default_factory=dict)
    known: Known | None = None


#: What a rule finds in one case, measured or not, once it has looked at the whole run.
CaseRule: TypeAlias = Callable[[Case, Measurement | None], Iterator[Finding]]


#: What an alternative did for a case: had a better status than the case as it was, was only faster, did nothing for it,
#: or could not be had here. ``as before`` and ``did not recur`` are of the case run again as it was.
Effect: TypeAlias = Literal["cures", "faster", "no help", "not available", "as before", "did not recur"]


@dataclass(frozen=True)
class Tried:
    """What one alternative gave. ``status`` and ``reason`` are what the rules say of it: its worst finding, or what is
    known to make its numbers.

    Times in microseconds and peaks in bytes, None where nothing was measured or times mean nothing.
    """

    name: str
    what: str
    effect: Effect
    status: Status
    reason: str = ""
    worst_ratio: float | None = None
    device_us: float | None = None
    peak_bytes: int | None = None


@dataclass(frozen=True)
class Verdict:
    """A case with its findings; ``status`` is the worst finding about the device, else inconclusive, else supported.

    ``device_us`` is the median of a call, ``total_us`` the device time of all calls of the program. ``floor_us`` is the
    least that a call can take at the rates measured there, else at datasheet peaks, ``bound`` what holds it there.
    ``flops`` and ``moved_bytes`` are the least that a call does; ``op_class`` is a word of ``knowledge.op_classes``.
    ``tried`` are the alternatives that were run, the case as it was before them.
    """

    key: str
    op: str
    status: Status
    n_calls: int
    phase: Phase
    modules: tuple[str, ...]
    sources: tuple[str, ...]
    signature: str
    findings: tuple[Finding, ...]
    device_us: float | None = None
    reference_us: float | None = None
    library: str | None = None
    total_us: float | None = None
    floor_us: float | None = None
    bound: Bound | None = None
    flops: float | None = None
    moved_bytes: float | None = None
    op_class: str | None = None
    tried: tuple[Tried, ...] = ()


@dataclass(frozen=True)
class Coverage:
    """Totals by status for one denominator. ``unit``: cases, ops, calls, device_time (microseconds)."""

    unit: str
    total: float
    by_status: Mapping[Status, float]


@dataclass(frozen=True)
class SideRow:
    """One kind of call on this device and on another: the same op, phase, sizes, dtypes and numbers.

    ``here_us`` and ``there_us`` are the mean device time of a call, in microseconds; ``cost_us`` is what the calls of
    one step take longer here (less where negative). ``keys`` are this run's cases of the kind. None: not run there.
    """

    op: str
    phase: Phase
    signature: str
    keys: tuple[str, ...]
    n_here: int
    n_there: int
    here_us: float | None
    there_us: float | None
    cost_us: float
    here_library: str | None = None
    there_library: str | None = None


@dataclass(frozen=True)
class SideBySide:
    """This run beside that of ``other``, dearest row first. Sums are of one step, in microseconds, over all cases."""

    other: RunHeader
    rows: tuple[SideRow, ...]
    only_here: tuple[SideRow, ...]
    only_there: tuple[SideRow, ...]
    here_step_us: float
    there_step_us: float


@dataclass(frozen=True)
class ModuleDrift:
    """A module of the step that was played, in one phase. Errors are relative; ``error`` and ``noise`` are those of its
    last floating output, ``largest_ratio`` the worst of the two's quotients within, ``own_ratio`` the worst call's own.

    ``wrong`` counts elements that must be equal and are not, ``n_fed`` calls that were fed with the program's numbers.
    """

    module: str
    phase: Phase
    n_calls: int
    first_call: int
    error: float | None
    noise: float | None
    largest_ratio: float | None
    own_ratio: float | None
    wrong: int = 0
    n_fed: int = 0


@dataclass(frozen=True)
class DriftJudgement:
    """The step that was played whole: in one sentence, what is wrong in it, and its modules in order."""

    sentence: str
    findings: tuple[Finding, ...]
    modules: tuple[ModuleDrift, ...]


@dataclass(frozen=True)
class Judgement:
    """A judged run: what every reporter, gate and dashboard reads. ``headline`` is the verdict in one sentence."""

    run: Run
    verdicts: tuple[Verdict, ...]
    coverage: tuple[Coverage, ...]
    headline: str
    root_causes: tuple[Finding, ...] = ()
    thresholds: tuple[tuple[str, str, str], ...] = ()
    beside: SideBySide | None = None
    drift: DriftJudgement | None = None

    def has_any(self, statuses: Collection[Status]) -> bool:
        """Whether a case or a root cause has one of these."""
        found = {verdict.status for verdict in self.verdicts} | {cause.status for cause in self.root_causes}
        return not found.isdisjoint(statuses)
