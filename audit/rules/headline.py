"""The verdict in one sentence, held to the evidence: only a measured run states what works on AMD."""

from __future__ import annotations

from audit.rules.coverage import percentage
from audit.rules.not_audited import not_audited_sentence
from audit.rules.wording import duration, plural
from audit.run_records import Run
from audit.schema import DEVICE_STATUSES, IMPORTED, Status
from audit.verdicts import Coverage, Finding, Verdict

WORDS: dict[Status, str] = {
    "supported": "supported",
    "slow": "slow",
    "falling_back": "falling back",
    "divergent": "divergent",
    "unsupported": "unsupported",
    "inconclusive": "inconclusive",
}


def headline(run: Run, verdicts: tuple[Verdict, ...], totals: tuple[Coverage, ...], causes: tuple[Finding, ...]) -> str:
    """Root causes (not mere warnings) come first; every percentage names its denominator and has the inconclusive
    share beside it."""
    ops = next(total for total in totals if total.unit == "ops")
    parts = [f"{cause.message}." for cause in causes if cause.status != "supported"]
    if not verdicts:
        parts.append(_nothing(run))
    else:
        parts.append(_sentence(run, verdicts, ops))
    parts += [_left_out(run), not_audited_sentence(run.header.not_audited)]
    first, *others = [part for part in parts if part]
    text = " ".join([first, *map(_capital, others)])
    return _capital(text) if run.header.evidence == "measured" else f"not measured on AMD: {text}"


def _capital(sentence: str) -> str:
    """As it begins after a full stop; the name of an op stays as it is."""
    return sentence if sentence.startswith("aten::") else sentence[:1].upper() + sentence[1:]


def _sentence(run: Run, verdicts: tuple[Verdict, ...], ops: Coverage) -> str:
    if run.header.source.kind == IMPORTED:
        return _imported(run, verdicts, ops)
    return _support(run, ops) if run.header.evidence == "measured" else _findings(run, ops)


def _imported(run: Run, verdicts: tuple[Verdict, ...], ops: Coverage) -> str:
    """No support is claimed: nobody has looked at a number."""
    device = run.header.device
    total_us = sum(verdict.total_us or 0.0 for verdict in verdicts)
    elsewhere_us = sum(kernel.us for item in run.header.not_audited for kernel in item.kernels)
    unowned = f", and {duration(elsewhere_us)} in what is no case" if elsewhere_us else ""
    return (
        f"imported from a profile of {device.name} ({device.arch}), nothing was replayed and no numbers were compared: "
        f"{plural(len(verdicts), 'case')} of {plural(int(ops.total), 'op')} took {duration(total_us)}{unowned}; "
        f"path: {_listed(ops)}."
    )


def _nothing(run: Run) -> str:
    """A run without cases: nothing was recorded, or nothing of it can be replayed."""
    n = run.header.n_recorded
    if not n:
        return "no op was recorded, so nothing was judged."
    return f"nothing was judged: no case came of {plural(n, 'recorded call')}."


def _support(run: Run, ops: Coverage) -> str:
    device = run.header.device
    share = percentage(ops.by_status["supported"], ops.total)
    unknown = percentage(ops.by_status["inconclusive"], ops.total)
    return (
        f"On {device.name} ({device.arch}) {ops.by_status['supported']:g} of {ops.total:g} ops are supported "
        f"({share} of ops; {unknown} of ops inconclusive); {_listed(ops)}."
    )


def _findings(run: Run, ops: Coverage) -> str:
    device = run.header.device
    where = f"{device.name or device.backend} ({device.arch})"
    how = f"{where} ran in place of a GPU" if run.header.evidence == "simulated" else f"{where} stood in"
    if run.header.evidence == "predicted":
        how = f"predicted for {device.arch} from the knowledge base"
    n_found = sum(ops.by_status[status] for status in DEVICE_STATUSES if status != "supported")
    unknown = f"{ops.by_status['inconclusive']:g} of {ops.total:g} ops inconclusive"
    return f"{how}; findings in {n_found:g} of {ops.total:g} ops ({unknown}): {_listed(ops)}."


def _listed(ops: Coverage) -> str:
    """``1 op unsupported, 2 ops divergent``, worst first."""
    found = [
        f"{plural(int(ops.by_status[status]), 'op')} {WORDS[status]}"
        for status in reversed(DEVICE_STATUSES)
        if status != "supported" and ops.by_status[status]
    ]
    return ", ".join(found) if found else "no op with a finding"


def _left_out(run: Run) -> str:
    if run.header.evidence == "predicted":
        return ""
    n_missing = sum(case.key not in run.measurements for case in run.cases)
    reason = run.end.reason if run.end is not None else ""
    if not n_missing:
        return f"Partial: {reason}." if reason and run.end is not None and not run.end.complete else ""
    reason = f" ({reason})" if reason else ""
    return f"Partial: {n_missing} of {plural(len(run.cases), 'case')} not measured{reason}."
