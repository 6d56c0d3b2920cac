"""A text that is ready for an upstream issue, of a finding that was measured on an AMD GPU; else what to do before.

What a simulated device, a stand-in or a prediction gave is no fault of AMD's, and no text here may read like one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from audit.comparison import Comparison
from audit.report import text
from audit.report.markdown import code_span, escaped
from audit.report.minimal_script import minimal_script
from audit.report.rows import CaseRow
from audit.run_records import RunHeader
from audit.schema import IMPORTED
from audit.verdicts import Finding

#: Lines of a message, of the environment and of findings in a text.
MAX_FINDINGS, MAX_ENVIRONMENT = 4, 30
#: Characters of what the device said.
MAX_LOG = 1500
#: What PyTorch's template asks for beside versions; only the machine itself can give it.
COLLECT = "python -m torch.utils.collect_env"
#: (what a title says, what was expected), by the rule code, else by its letters.
_WORDS: Mapping[str, tuple[str, str]] = {
    "SUP": ("fails", "It returns, as it does on the CPU."),
    "NUM204": ("gives another result than the CPU", "The CPU's result, bit for bit."),
    "NUM208": ("gives another result each time", "The same bits each time."),
    "NUM214": ("draws numbers of another law", "Numbers of the law that the op documents."),
    "NUM": ("gives another result than the CPU", "The CPU's result, within what dtype and algorithm explain."),
    "FBK": ("does not take the expected path", "The library or fused kernel that other calls of the op take."),
    "SPD": ("is slow", "A time that is nearer to what the device can do."),
}


@dataclass(frozen=True)
class BugReport:
    """``text`` is Markdown with a title where ``is_ready``, else empty. ``first`` says what has to be done before.

    ``script`` is the case in a few lines, empty where it does not fit in them; ``command`` runs the whole proof.
    """

    is_ready: bool
    title: str
    text: str
    first: str
    script: str
    command: str


def bug_report(row: CaseRow, header: RunHeader) -> BugReport | None:
    """None of a case without a finding about the device, or of which the run does not hold the call."""
    if not row.has_repro or row.case is None or not row.findings:
        return None
    worst = row.findings[0]
    device = f"{header.device.name} ({header.device.arch})"
    is_ready = header.evidence == "measured"
    title = _title(row, worst, device)
    told = f"{text.one_line(row.verdict.op, 90)}\n{_seen_on(header, device)}"
    script = minimal_script(row.case, worst.code, told)
    command = f"python repro/{row.anchor}.py"
    body = "\n".join(_body(row, header, script)) if is_ready else ""
    return BugReport(is_ready, title if is_ready else "", body, "" if is_ready else _first(header), script, command)


def _seen_on(header: RunHeader, device: str) -> str:
    if header.evidence == "measured":
        return f"Seen on {device}."
    seen = {"stand-in": f"Seen on {device}, an NVIDIA GPU", "simulated": "Seen on a simulated device"}
    return f"{seen.get(header.evidence, 'Predicted')}, not on an AMD GPU."


def _first(header: RunHeader) -> str:
    seen = {
        "stand-in": f"This was seen on {header.device.name}, which is no AMD GPU.",
        "simulated": "This was seen on a simulated device, and no GPU ran.",
    }.get(header.evidence, "This is predicted, and nothing ran.")
    return (
        f"{seen} Reproduce on AMD first: where the script exits 1 on an AMD GPU, audit there; that report has a text "
        "for an issue here."
    )


def _title(row: CaseRow, worst: Finding, device: str) -> str:
    what = _words(worst.code)[0]
    dtypes = ", ".join(row.dtypes[:2])
    return text.one_line(f"[ROCm] {row.verdict.op} {what} on {device}" + (f" ({dtypes})" if dtypes else ""), 160)


def _words(code: str) -> tuple[str, str]:
    return _WORDS.get(code, _WORDS.get(code[:3], ("has a finding", "What the CPU does.")))


def _body(row: CaseRow, header: RunHeader, script: str) -> Iterator[str]:
    findings = [finding for finding in row.findings if finding.status != "inconclusive"][:MAX_FINDINGS]
    yield "### What happens"
    yield ""
    yield from (f"- {escaped(finding.message, 500)} ({escaped(finding.code, 20)})" for finding in findings)
    yield ""
    yield f"The call: {code_span(row.verdict.op)} with {code_span(row.verdict.signature, 300)}, in {row.verdict.phase}."
    yield ""
    yield "### To reproduce"
    yield ""
    if script:
        yield from ("```python", script.strip(), "```")
        yield ""
        yield "Its inputs are made up; the attached script holds recorded values where there are any."
        yield ""
    yield f"Attached: `{row.anchor}.py`, which needs only torch and exits 1 where this recurs."
    yield ""
    yield "### Expected"
    yield ""
    yield _words(findings[0].code)[1]
    yield from _why_expected(row)
    yield ""
    yield "### Actual"
    yield ""
    yield from _actual(row)
    yield ""
    yield "### Versions"
    yield ""
    yield from _versions(header)
    yield ""
    yield "### Evidence"
    yield ""
    yield _evidence(row, header)
    for finding in findings:
        if finding.known is not None:
            yield f"Perhaps known: {escaped(finding.known.title, 200)} {code_span(finding.known.link, 200)}"


def _why_expected(row: CaseRow) -> Iterator[str]:
    """Why the CPU's numbers are the right ones: PyTorch asks for that of every report about numbers."""
    if row.findings[0].code[:3] != "NUM" or row.measurement is None:
        return
    for c in [c for c in row.measurement.comparisons if c.standard == "numeric" and c.reference == "fp64"][:2]:
        own = f"The CPU in the dtypes of the call is off from that by {text.error_text(c.cpu_max_abs_error)} at most"
        yield f"{escaped(c.name)} is compared with the same call in double precision on the CPU. {own}."


def _actual(row: CaseRow) -> Iterator[str]:
    """The error's own words where it raised, the worst element where numbers differ, else the finding."""
    measurement = row.measurement
    if measurement is not None and measurement.device.kind != "ok":
        device = measurement.device
        yield f"The device {device.kind.replace('_', ' ')}."
        raised = ": ".join(filter(None, (device.error_type, device.message)))
        if said := text.clipped("\n".join(filter(None, (raised, device.stderr))), MAX_LOG):
            yield from ("```", said.replace("```", "` ` `"), "```")
        return
    wrong = [c for c in measurement.comparisons if c.worst_actual or c.n_nan_mismatch] if measurement else []
    for c in sorted(wrong, key=lambda c: -c.worst_ratio)[:2]:
        values = f"{escaped(c.worst_actual)} where {escaped(c.worst_expected)} is expected"
        yield f"{escaped(c.name)}: {values}, at {list(c.worst_index)}; {_how_wrong(c)}."
    if row.findings[0].code[:3] in ("FBK", "SPD") or not wrong:
        yield escaped(row.findings[0].message, 500)
    for kernel in (measurement.path.kernels if measurement else ())[:4]:
        yield f"Kernel: {code_span(kernel.name, 200)} {text.time_text(kernel.us)}"


def _how_wrong(c: Comparison) -> str:
    if c.standard != "numeric":
        return f"{c.n_different:,} of {c.n_elements:,} elements differ"
    return f"error {text.error_text(c.max_abs_error)}, {text.error_text(c.worst_ratio)} times the noise floor"


def _versions(header: RunHeader) -> Iterator[str]:
    """The run's allow-list, nothing else of the machine."""
    yield f"- GPU: {escaped(header.device.name, 80)} ({escaped(header.device.arch, 40)})"
    for name, value in list(header.environment.items())[:MAX_ENVIRONMENT]:
        yield f"- {escaped(name, 60)}: {escaped(value, 200)}"
    yield from ("", f"Output of `{COLLECT}`:", "", "```", "(paste it here)", "```")


def _evidence(row: CaseRow, header: RunHeader) -> str:
    if header.source.kind == IMPORTED:
        return (
            f"Measured on AMD: a profiler recorded it there ({row.verdict.n_calls:,} calls). It was not replayed, and "
            "its numbers were not compared."
        )
    confirmed = row.measurement is not None and row.measurement.device.confirmed
    again = " It was seen again, alone in a fresh process." if confirmed else ""
    by = f"rocm-audit {header.audit_version}"
    return f"Measured on AMD: replayed alone by {by} beside a CPU reference, {header.created}.{again}"
