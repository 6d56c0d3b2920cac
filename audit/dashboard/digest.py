"""A judged run, reduced to what a site shows of it: small, printable, without the measurements.

Everything from the file is a stranger's: texts are made printable and short here, at the border.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from audit.codec import tensors_of
from audit.comparison import Comparison
from audit.dashboard.links import slug
from audit.dashboard.rows import CauseRow, KnownRow, NotAuditedRow, Stack
from audit.gate.side import incomplete
from audit.report.legend import READING_ORDER
from audit.report.summary import summary
from audit.report.text import one_line
from audit.rules.accuracy import allowed_ratio
from audit.rules.thresholds import DEFAULT
from audit.run_records import RunHeader
from audit.schema import IMPORTED, Case, DeviceInfo, Measurement, Named, Phase, Status
from audit.verdicts import Judgement, Known, Verdict

#: Characters of a text that is shown: versions and names, signatures, messages.
SHORT, LONG = 100, 600
#: Entries of an environment, lines of what was not audited, modules of a case.
_MAX_ROWS, _MAX_MODULES = 300, 8
_FLOATS = ("float", "bfloat", "complex")


@dataclass(frozen=True)
class FindingDigest:
    """The finding that made a case's status."""

    code: str
    status: Status
    message: str
    known: KnownRow | None


@dataclass(frozen=True)
class CaseDigest:
    """A verdict with the numbers that stand beside it. Times in microseconds; see ``rows.RunCase``."""

    key: str
    op: str
    op_class: str
    phase: Phase
    signature: str
    dtype: str
    dtypes: tuple[str, ...]
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
    finding: FindingDigest | None
    modules: tuple[str, ...]


@dataclass(frozen=True)
class RunDigest:
    """What a run is, beside its cases. ``opset`` tells its set of cases from any other, 12 hex digits.

    ``ops`` are ops by their worst status. ``end`` says why it is no whole run, else empty.
    """

    source: str
    source_kind: str
    created: str
    audit_version: str
    opset: str
    n_cases: int
    n_recorded: int
    ops: tuple[tuple[Status, int], ...]
    headline: str
    root_causes: tuple[CauseRow, ...]
    environment: tuple[tuple[str, str], ...]
    settings: tuple[tuple[str, str], ...]
    not_audited: tuple[NotAuditedRow, ...]
    end: str
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class Digest:
    """One run file, judged. ``summary`` is its ``summary.json``, packed."""

    stack: Stack
    run: RunDigest
    cases: tuple[CaseDigest, ...]
    summary: bytes


def digest(judgement: Judgement) -> Digest:
    """Reduces a judged run; the same judgement gives the same digest."""
    run = judgement.run
    cases = {case.key: case for case in run.cases}
    text = json.dumps(summary(judgement), separators=(",", ":"), allow_nan=False) + "\n"
    return Digest(
        stack_of(run.header),
        _run_digest(judgement),
        tuple(
            _case_digest(verdict, cases[verdict.key], run.measurements.get(verdict.key))
            for verdict in judgement.verdicts
        ),
        gzip.compress(text.encode(), 6, mtime=0),
    )


def _run_digest(judgement: Judgement) -> RunDigest:
    run, header = judgement.run, judgement.run.header
    ops = next(total.by_status for total in judgement.coverage if total.unit == "ops")
    not_audited = (
        NotAuditedRow(one_line(item.what), one_line(item.reason), item.n_calls, item.n_seen, item.computes)
        for item in header.not_audited[:_MAX_ROWS]
    )
    return RunDigest(
        source=one_line(header.source.name, SHORT) or "(unnamed)",
        source_kind=one_line(header.source.kind, SHORT),
        created=one_line(header.created, SHORT),
        audit_version=one_line(header.audit_version, SHORT),
        opset=opset_version((case.key, case.op, case.phase) for case in run.cases),
        n_cases=len(run.cases),
        n_recorded=header.n_recorded,
        ops=tuple((status, int(ops[status])) for status in READING_ORDER if ops[status]),
        headline=one_line(judgement.headline, 2 * LONG),
        root_causes=tuple(
            CauseRow(cause.code, cause.status, one_line(cause.message, LONG), _known(cause.known))
            for cause in judgement.root_causes
        ),
        environment=_texts(header.environment),
        settings=_texts(header.settings),
        not_audited=tuple(not_audited),
        end=one_line(incomplete(run), LONG),
        warnings=tuple(one_line(warning, LONG) for warning in run.warnings),
    )


def _texts(pairs: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple((one_line(name, SHORT), one_line(value)) for name, value in sorted(pairs.items())[:_MAX_ROWS])


def opset_version(cases: Iterable[tuple[str, str, str]]) -> str:
    """Of the (key, op, phase) of cases: the same for the same cases in any order, on any machine. 12 hex digits."""
    lines = sorted(f"{key} {op} {phase}\n" for key, op, phase in cases)
    return hashlib.sha256("".join(lines).encode()).hexdigest()[:12]


# --- a case -------------------------------------------------------------------------------------------------------


def _case_digest(verdict: Verdict, case: Case, measurement: Measurement | None) -> CaseDigest:
    weighty = [finding for finding in verdict.findings if finding.status != "supported"]
    weighty.sort(key=lambda finding: READING_ORDER.index(finding.status))
    ratio, allowance = _worst(measurement.comparisons if measurement is not None else ())
    dtypes = _dtypes(case)
    return CaseDigest(
        key=verdict.key,
        op=verdict.op,
        op_class=verdict.op_class or "other",
        phase=verdict.phase,
        signature=one_line(verdict.signature, LONG),
        dtype=next((dtype for dtype in dtypes if dtype.startswith(_FLOATS)), dtypes[0] if dtypes else "none"),
        dtypes=dtypes,
        status=verdict.status,
        n_calls=verdict.n_calls,
        worst_ratio=ratio,
        allowance=allowance,
        device_us=verdict.device_us,
        floor_us=verdict.floor_us,
        total_us=verdict.total_us,
        bound=verdict.bound or "",
        library=one_line(verdict.library or "", SHORT),
        codes=tuple(dict.fromkeys(finding.code for finding in weighty)),
        finding=_finding(verdict),
        modules=tuple(one_line(module) for module in verdict.modules[:_MAX_MODULES]),
    )


def _finding(verdict: Verdict) -> FindingDigest | None:
    """The first with the status of the case; a supported one has none."""
    if verdict.status == "supported":
        return None
    found = next((finding for finding in verdict.findings if finding.status == verdict.status), None)
    if found is None:
        return None
    return FindingDigest(found.code, found.status, one_line(found.message, LONG), _known(found.known))


def _known(known: Known | None) -> KnownRow | None:
    return None if known is None else KnownRow(known.title, known.link, known.remedy)


def _dtypes(case: Case) -> tuple[str, ...]:
    """Of its tensors, each once; of a call without tensors, what it is asked to give."""
    found = dict.fromkeys(spec.dtype for spec in tensors_of(case.args, case.kwargs, case.grads))
    named = [arg for arg in (*case.args, *(value for _, value in case.kwargs)) if isinstance(arg, Named)]
    asked = dict.fromkeys(arg.name for arg in named if arg.kind == "dtype")
    return tuple(found or asked)


def _worst(comparisons: tuple[Comparison, ...]) -> tuple[float | None, float | None]:
    """(error ratio, allowed ratio) of the numeric output that is worst against what it is allowed."""
    pairs = [
        (comparison.worst_ratio, allowed_ratio(comparison, DEFAULT))
        for comparison in comparisons
        if comparison.standard == "numeric" and not math.isnan(comparison.worst_ratio)
    ]
    return max(pairs, key=lambda pair: pair[0] / pair[1]) if pairs else (None, None)


# --- where it ran -------------------------------------------------------------------------------------------------


def stack_of(header: RunHeader) -> Stack:
    """GPU, runtime and torch of a run; of the same stack on any machine it is the same."""
    device, environment = header.device, header.environment
    is_imported = header.source.kind == IMPORTED
    torch = one_line(environment.get("torch", ""), SHORT) or "unknown torch"
    runtime = one_line(runtime_of(header), SHORT)
    gpu = gpu_name(device)
    arch = one_line(device.arch, SHORT)
    told = (
        header.evidence,
        "imported" if is_imported else "",
        device.backend,
        arch,
        device.properties.get("faults", ""),
    )
    # Evidence leads, so that no name of a device can be made to share a slug with one of other evidence.
    place = slug(f"{told[0]} {told[1]} {gpu}", *told)
    name = slug(f"{told[0]} {told[1]} {gpu} {runtime} {torch}", *told)
    return Stack(name, header.evidence, is_imported, device.backend, gpu, place, arch, runtime, torch)


def gpu_name(device: DeviceInfo) -> str:
    """As people say it. A simulated device says that it has faults: it is another device than a healthy one."""
    name = one_line(device.name, SHORT) or f"unnamed {device.backend} device"
    faults = device.properties.get("faults", "none")
    if device.backend != "sim" or faults == "none":
        return name
    file = one_line(re.split(r"[/\\]", device.properties.get("fault_file", ""))[-1], SHORT)
    return f"{name}, faults of {file or 'an unnamed file'}"


def runtime_of(header: RunHeader) -> str:
    """``ROCm 7.2.1``, ``CUDA 12.8``; empty where none is known.

    A wheel brings its own ROCm, so what torch was built for counts; the installed version is told where it is that
    one, for it has the patch level. ROCm and HIP share major and minor.
    """
    environment = header.environment
    if header.device.backend == "cuda":
        return f"CUDA {environment['cuda']}" if "cuda" in environment else ""
    if header.device.backend != "hip":
        return ""
    built = re.search(r"\+rocm(\d+(?:\.\d+)*)", environment.get("torch", ""))
    hip = re.match(r"\d+\.\d+", environment.get("hip", ""))
    version = built[1] if built else hip[0] if hip else ""
    installed = re.match(r"\d+(?:\.\d+)*", environment.get("rocm", ""))
    if installed and (not version or installed[0] == version or installed[0].startswith(f"{version}.")):
        version = installed[0]
    return f"ROCm {version}" if version else ""
