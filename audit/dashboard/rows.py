"""What pages, badges and downloads are made of: data only, in field words. Times are in microseconds.

Texts come from strangers' run files: a page escapes them, and shows them through ``audit.report.text``. Only slugs are
safe as they stand: in a path, an id, an address. Evidence levels never meet in one cell or one count.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from typing import Literal, TypeAlias

from audit.rules.coverage import percentage
from audit.schema import Backend, Evidence, Phase, Status

#: Findings of an op that are listed.
MAX_FINDINGS = 50
#: What is shown of a run's date: ``future`` and ``past`` (before rocm-audit was) cannot be, ``unread`` is no date.
Clock: TypeAlias = Literal["ok", "future", "past", "unread"]


# --- how many -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tally:
    """Cases by status in reading order, zeros left out. All of one evidence level."""

    by_status: tuple[tuple[Status, int], ...] = ()

    @property
    def total(self) -> int:
        """The denominator."""
        return sum(count for _, count in self.by_status)

    def count(self, status: Status) -> int:
        return dict(self.by_status).get(status, 0)

    @property
    def n_with_finding(self) -> int:
        """Those that are neither supported nor inconclusive."""
        return self.total - self.count("supported") - self.count("inconclusive")


@dataclass(frozen=True)
class CaseSet:
    """Which cases a share is of. ``version`` is the opset's digest: the same cases, the same 12 hex digits.

    ``audit_versions`` are those that measured, in order.
    """

    name: str
    version: str
    n_cases: int
    audit_versions: tuple[str, ...]

    @property
    def text(self) -> str:
        """``198 cases of llama_train.py (set 5f0c6d1a2b3c, rocm-audit 0.1.0)``."""
        if not self.n_cases:
            return f"no case of {self.name}"
        versions = ", ".join(self.audit_versions)
        return f"{self.n_cases:,} cases of {self.name} (set {self.version}, rocm-audit {versions})"


@dataclass(frozen=True)
class Share:
    """A share with everything that a percentage must name. Only ``measured`` says what works on AMD."""

    evidence: Evidence
    is_imported: bool
    tally: Tally
    cases: CaseSet

    @property
    def text(self) -> str:
        """``97.5 % supported: 193 of 198 cases; 1 % inconclusive``; without a support percentage where none may be."""
        total = self.tally.total
        if not total:
            return f"{'imported, ' if self.is_imported else ''}{self.evidence}: no case"
        unknown = f"{percentage(self.tally.count('inconclusive'), total)} inconclusive"
        if self.is_imported or self.evidence != "measured":
            how = f"imported, {self.evidence}" if self.is_imported else self.evidence
            why = ", since no number was compared" if self.is_imported else ""
            return f"{how}: findings in {self.tally.n_with_finding:,} of {total:,} cases; {unknown}{why}"
        supported = self.tally.count("supported")
        return f"{percentage(supported, total)} supported: {supported:,} of {total:,} cases; {unknown}"


# --- where --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Stack:
    """What tells columns of the matrix apart: evidence, GPU, runtime, torch.

    ``gpu`` is the name for people; a simulated device says so in it, with its fault file. ``runtime``: ``ROCm 7.2.1``,
    ``CUDA 12.8``, or empty. ``is_imported``: another tool has measured, and no numbers were compared.
    """

    slug: str
    evidence: Evidence
    is_imported: bool
    backend: Backend
    gpu: str
    gpu_slug: str
    arch: str
    runtime: str
    torch: str

    @property
    def evidence_text(self) -> str:
        """``measured``, ``simulated``; ``measured, imported``."""
        return f"{self.evidence}, imported" if self.is_imported else self.evidence


@dataclass(frozen=True)
class Gpu:
    """All stacks of one GPU at one evidence level, oldest versions first."""

    slug: str
    name: str
    arch: str
    evidence: Evidence
    is_imported: bool
    stacks: tuple[Stack, ...]
    n_runs: int
    share: Share


@dataclass(frozen=True)
class MatrixCell:
    """Cases of one op and dtype on one stack, each with the status of its newest run there.

    ``status`` is the worst of them. ``dtype`` is that of the first floating tensor, else of the first. ``varies``: runs
    of this stack disagree on a case. ``newest`` is the date of the newest run in it as ``2026-12-01``, empty where no
    run has a date that can be.
    """

    op_slug: str
    dtype: str
    stack_slug: str
    status: Status
    tally: Tally
    n_runs: int
    varies: bool
    newest: str


@dataclass(frozen=True)
class OpOnGpu:
    """Cases of one op on one GPU at one evidence level, each with its newest run there, whatever the versions."""

    gpu_slug: str
    op: str
    op_slug: str
    op_class: str
    tally: Tally


# --- ops ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class EvidenceTally:
    """Cases of one op at one evidence level, each once for each stack, with the newest status there."""

    evidence: Evidence
    is_imported: bool
    tally: Tally
    worst: Status
    n_stacks: int


@dataclass(frozen=True)
class OpRow:
    """One op, ``aten::addmm.default``, over all runs. ``n_cases`` counts signatures."""

    op: str
    slug: str
    op_class: str
    n_cases: int
    n_runs: int
    dtypes: tuple[str, ...]
    by_evidence: tuple[EvidenceTally, ...]


@dataclass(frozen=True)
class Observation:
    """One case on one stack: its newest run there, and whether older ones disagree.

    ``statuses`` are all that were seen there, newest first, each once. ``worst_ratio`` is the largest error over its
    noise floor, ``allowance`` what the standard allows. ``efficiency`` is floor over time, at most 1; None: not known.
    """

    stack_slug: str
    status: Status
    statuses: tuple[Status, ...]
    n_runs: int
    run_slug: str
    newest: str
    n_calls: int
    worst_ratio: float | None
    allowance: float | None
    device_us: float | None
    floor_us: float | None
    bound: str
    library: str
    codes: tuple[str, ...]
    reason: str

    @property
    def varies(self) -> bool:
        return len(self.statuses) > 1

    @property
    def efficiency(self) -> float | None:
        return efficiency(self.device_us, self.floor_us)


@dataclass(frozen=True)
class SignatureRow:
    """One case of an op with all that was seen of it, stacks in their order. ``key`` is a plain name (checked)."""

    key: str
    signature: str
    phase: Phase
    dtype: str
    dtypes: tuple[str, ...]
    observations: tuple[Observation, ...]


@dataclass(frozen=True)
class KnownRow:
    """A documented behaviour or public issue that explains a finding: from the knowledge base, not from a run file."""

    title: str
    link: str
    remedy: str


@dataclass(frozen=True)
class OpFinding:
    """The finding that made the status of ``n_cases`` (case, stack) pairs of an op, in the words of one of them.

    Those with one code and one message are one. ``key`` is the signature of the first of them.
    """

    code: str
    status: Status
    message: str
    known: KnownRow | None
    n_cases: int
    stack_slugs: tuple[str, ...]
    key: str


def efficiency(device_us: float | None, floor_us: float | None) -> float | None:
    """The least time over the time taken, at most 1; None where one is not known."""
    if device_us is None or floor_us is None or device_us <= 0:
        return None
    return min(floor_us / device_us, 1.0)


# --- runs and models ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RunRow:
    """A run in a list. ``created`` is as the file says, ``date`` as ``2026-12-01`` (empty unless ``clock`` is ok).

    ``path`` is where the file lay, below what was given, for people.
    """

    slug: str
    model_slug: str
    source: str
    stack: Stack
    created: str
    date: str
    clock: Clock
    audit_version: str
    is_complete: bool
    path: str
    share: Share
    headline: str

    @property
    def time(self) -> str:
        """``07:09`` of its date, in UTC; empty where it has none."""
        if not self.date:
            return ""
        made = datetime.datetime.fromisoformat(self.created.replace("Z", "+00:00"))
        return (made if made.tzinfo is None else made.astimezone(datetime.timezone.utc)).strftime("%H:%M")


@dataclass(frozen=True)
class CauseRow:
    """A root cause of a run: one headline instead of many verdicts."""

    code: str
    status: Status
    message: str
    known: KnownRow | None = None


@dataclass(frozen=True)
class NotAuditedRow:
    """What the program did that has no case."""

    what: str
    reason: str
    n_calls: int
    n_seen: int
    computes: bool


@dataclass(frozen=True)
class RunPage:
    """All of one run but its cases. ``copies`` are other files with the same run, counted once."""

    row: RunRow
    source_kind: str
    ops: Tally
    environment: tuple[tuple[str, str], ...]
    settings: tuple[tuple[str, str], ...]
    root_causes: tuple[CauseRow, ...]
    not_audited: tuple[NotAuditedRow, ...]
    n_recorded: int
    end: str
    warnings: tuple[str, ...]
    copies: tuple[str, ...]
    content_sha256: str


@dataclass(frozen=True)
class RunCase:
    """A case in its run."""

    key: str
    op: str
    op_slug: str
    signature: str
    phase: Phase
    dtype: str
    status: Status
    n_calls: int
    worst_ratio: float | None
    allowance: float | None
    device_us: float | None
    floor_us: float | None
    total_us: float | None
    bound: str
    library: str
    codes: tuple[str, ...]
    reason: str
    modules: tuple[str, ...]

    @property
    def efficiency(self) -> float | None:
        return efficiency(self.device_us, self.floor_us)


@dataclass(frozen=True)
class ModelRow:
    """Runs of one source by its name. ``newest`` is the newest run on each GPU, in the order of GPUs."""

    slug: str
    name: str
    kind: str
    n_runs: int
    n_sets: int
    newest: tuple[RunRow, ...]


@dataclass(frozen=True)
class SiteFacts:
    """What the site as a whole says of itself. Nothing here depends on when or where it was built."""

    audit_version: str
    n_runs: int
    n_ops: int
    n_cases: int
    n_copies: int
    n_left_out: int
    n_odd_clocks: int
    newest: str
    shares: tuple[Share, ...]
