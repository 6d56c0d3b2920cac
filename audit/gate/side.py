"""One side of a gate: a judged run reduced to what is compared, and the expectations file that keeps it.

Times are in microseconds.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from audit import strict_json
from audit.codec import DecodeError, decode, encode
from audit.errors import UsageError
from audit.knowledge.kernels import classify_kernel
from audit.ordinary_file import read_ordinary
from audit.rules.speed import TIMED
from audit.run_records import UNCHANGED, Run
from audit.schema import EVIDENCE_BY_BACKEND, DeviceInfo, Evidence, Measurement, Phase, Status
from audit.schema import Path as PathTaken
from audit.validity import check_amounts
from audit.verdicts import Judgement, Tried, Verdict

EXPECTATIONS_VERSION = 1
#: Root causes that only sum up what the cases say.
SUMS = ("SUP115",)
#: A case has some 400 bytes in it.
MAX_EXPECTATIONS_BYTES = 1 << 26


@dataclass(frozen=True)
class CaseState:
    """What one case was in a run. None: not known there, so not compared.

    ``codes`` are of the findings with weight, ``reason`` the message of the worst. ``seen`` are the statuses of the
    case run again as it was, ``seen_us`` and ``seen_ratios`` its median and error then: the run's own spread.
    ``is_left_out``: never started. ``is_timed_once``: of its time no spread is known.
    """

    key: str
    op: str
    status: Status
    phase: Phase = "forward"
    signature: str = ""
    n_calls: int = 1
    codes: tuple[str, ...] = ()
    reason: str = ""
    sources: tuple[str, ...] = ()
    is_left_out: bool = False
    device_us: float | None = None
    iqr_us: float | None = None
    is_timed_once: bool = False
    worst_ratio: float | None = None
    libraries: tuple[str, ...] | None = None
    chosen_ops: tuple[str, ...] | None = None
    seen: tuple[Status, ...] = ()
    seen_us: tuple[float, ...] = ()
    seen_ratios: tuple[float, ...] = ()


@dataclass(frozen=True)
class Cause:
    """What is wrong with a run and not with one case of it: a played step that drifts, a failed preflight check."""

    code: str
    status: Status
    message: str = ""


@dataclass(frozen=True)
class Side:
    """A run, or the expectations written from one. ``incomplete`` says why it is no whole run, else empty.

    ``name`` is the program that was traced; ``settings`` steer the replay. ``cases`` are in the order of the file.
    """

    name: str
    evidence: Evidence
    device: DeviceInfo
    cases: tuple[CaseState, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    created: str = ""
    audit_version: str = ""
    incomplete: str = ""
    causes: tuple[Cause, ...] = ()
    format_version: int = EXPECTATIONS_VERSION


def side_of(judgement: Judgement) -> Side:
    """Reduces a judged run."""
    run = judgement.run
    header = run.header
    return Side(
        name=header.source.name,
        evidence=header.evidence,
        device=header.device,
        cases=tuple(_state(verdict, run) for verdict in judgement.verdicts),
        environment=header.environment,
        settings=header.settings,
        created=header.created,
        audit_version=header.audit_version,
        incomplete=incomplete(run),
        causes=tuple(
            Cause(cause.code, cause.status, cause.message)
            for cause in judgement.root_causes
            if cause.status != "supported" and cause.code not in SUMS
        ),
    )


def incomplete(run: Run) -> str:
    """Why a run is no whole one; empty where it is."""
    header = run.header
    if not run.cases:
        return "it has no case"
    if len(run.cases) < header.n_cases:
        return f"{header.n_cases - len(run.cases)} of its {header.n_cases} cases are missing"
    if run.end is None:
        return "it was stopped before its end"
    if not run.end.complete:
        return run.end.reason or "it ended early and gives no reason"
    if header.source.error:
        return f"its program ended early: {header.source.error}"
    if any(item.missed for item in header.not_audited):
        return "its trace holds an op that only one kind of device has"
    return ""


def _state(verdict: Verdict, run: Run) -> CaseState:
    measurement = run.measurements.get(verdict.key)
    weighty = [finding for finding in verdict.findings if finding.status != "supported"]
    worst = next((finding for finding in weighty if finding.status == verdict.status), None)
    again = [row for row in verdict.tried if row.name == UNCHANGED]
    timing = measurement.device_time if measurement is not None and run.header.device.backend in TIMED else None
    return CaseState(
        key=verdict.key,
        op=verdict.op,
        status=verdict.status,
        phase=verdict.phase,
        signature=verdict.signature,
        n_calls=verdict.n_calls,
        codes=tuple(sorted({finding.code for finding in weighty})),
        reason=worst.message if worst is not None else "",
        sources=verdict.sources,
        is_left_out=_is_left_out(verdict, run),
        device_us=timing.median_us if timing is not None else None,
        iqr_us=timing.iqr_us if timing is not None else None,
        is_timed_once=timing is not None and timing.n < 2,
        worst_ratio=_worst_ratio(measurement),
        libraries=_libraries(measurement.path) if measurement is not None else None,
        chosen_ops=_chosen_ops(measurement.path) if measurement is not None else None,
        seen=_seen(verdict, again),
        seen_us=tuple(row.device_us for row in again if row.device_us is not None),
        seen_ratios=tuple(row.worst_ratio for row in again if row.worst_ratio is not None),
    )


def _is_left_out(verdict: Verdict, run: Run) -> bool:
    """A predicted run measures nothing and leaves nothing out."""
    never = verdict.key not in run.measurements and verdict.key not in run.started
    return never and run.header.evidence != "predicted"


def _seen(verdict: Verdict, again: list[Tried]) -> tuple[Status, ...]:
    return tuple(dict.fromkeys(row.status for row in again if row.status != verdict.status))


def _worst_ratio(measurement: Measurement | None) -> float | None:
    ratios = [c.worst_ratio for c in measurement.comparisons if c.standard == "numeric"] if measurement else []
    return max(ratios, default=None)


def _libraries(path: PathTaken) -> tuple[str, ...] | None:
    """Of the kernels that compute; None where nobody saw them all."""
    if not path.complete:
        return None
    classes = [classify_kernel(kernel.name) for kernel in path.kernels]
    return tuple(sorted({kind.library or "unknown" for kind in classes if not kind.category.startswith("mem")}))


def _chosen_ops(path: PathTaken) -> tuple[str, ...] | None:
    return tuple(sorted(set(path.chosen_ops))) if path.observed else None


# --- the expectations file ----------------------------------------------------------------------------------------


def expectations_text(side: Side) -> str:
    """JSON with a line for each case, in the order of keys: made to be kept in a repository and read in a diff."""
    head = encode(side)
    head.pop("cases", None)
    cases = sorted(side.cases, key=lambda case: case.key)
    lines = ",\n  ".join(strict_json.dumps(encode(case)) for case in cases)
    body = json.dumps(head, indent=1, sort_keys=True, allow_nan=False)
    return f'{body[:-2]},\n "cases": [\n  {lines}\n ]\n}}\n'


def read_expectations(path: Path) -> Side:
    """Reads an expectations file. It may be written by hand: what a case does not say is not compared.

    Raises UsageError for a file that is none, or of a newer format.
    """
    try:
        content = strict_json.loads(read_ordinary(path, MAX_EXPECTATIONS_BYTES))
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}", "not-a-baseline") from error
    except ValueError as error:
        raise UsageError(f"{path} is no expectations file: {error}", "not-a-baseline") from error
    version = content.get("format_version") if isinstance(content, dict) else None
    if not isinstance(version, int) or isinstance(version, bool):
        raise UsageError(f"{path} is no expectations file: it has no format_version", "not-a-baseline")
    if version > EXPECTATIONS_VERSION:
        raise UsageError(
            f"{path} has format {version}, this rocm-audit reads up to {EXPECTATIONS_VERSION}; upgrade rocm-audit",
            "newer-format",
        )
    try:
        side = decode(Side, content)
        check_amounts(side)
    except DecodeError as error:
        reason = str(error).removesuffix(f" [{error.slug}]")
        raise UsageError(f"{path} is no expectations file: {reason}", "not-a-baseline") from error
    _check(side, path)
    return side


def _check(side: Side, path: Path) -> None:
    if side.evidence != EVIDENCE_BY_BACKEND[side.device.backend]:
        raise UsageError(
            f"{path} calls itself {side.evidence}, and a device {side.device.backend!r} gives "
            f"{EVIDENCE_BY_BACKEND[side.device.backend]} evidence; it was changed by hand",
            "not-a-baseline",
        )
    [(twice, n)] = Counter(case.key for case in side.cases).most_common(1) or [("", 0)]
    if n > 1:
        raise UsageError(f"{path} has the case {twice[:80]!r} twice", "not-a-baseline")
