"""``gate.md``: the outcome for a job summary or a pull request, within GitHub's size limit. Nothing in it is markup."""

from __future__ import annotations

from audit.gate.outcome import GateOutcome, Judged
from audit.report import text
from audit.report.markdown import MAX_BYTES, code_span, escaped, fitting, table
from audit.schema import DEVICE_STATUSES

MAX_DIFFERENCES = 60
MAX_ENVIRONMENT = 30
_PROBLEM_BYTES, _ENVIRONMENT_BYTES = 8_000, 12_000
#: For the sentence that counts what was left out.
_SPARE_BYTES = 500
_MARKS = {"fail": "❌ fails", "warn": "⚠️ warning", "note": "note"}
_TITLES = {"passed": "✅", "failed": "❌", "not finished": "❔"}


def render(outcome: GateOutcome) -> str:
    """Headline, whether it is of one trace, what differs around the runs, then the differences, worst first."""
    first = [
        f"# {_TITLES[outcome.conclusion]} {escaped(outcome.headline, 600)}",
        f"**{escaped(outcome.trace.sentence, 900)}.**" if outcome.trace is not None else "",
        *(f"> {escaped(remark, 400)}" for remark in outcome.remarks),
        _sides(outcome),
        _environment(outcome),
        _problems(outcome),
    ]
    last = _policy(outcome)
    room = MAX_BYTES - _SPARE_BYTES - len("\n\n".join([*first, last]).encode())
    return "\n\n".join(part for part in (*first, _differences(outcome, room), last) if part) + "\n"


def _problems(outcome: GateOutcome) -> str:
    lines = fitting(([f"- ❌ {escaped(problem, 300)}"] for problem in outcome.problems), _PROBLEM_BYTES)
    left = len(outcome.problems) - len(lines)
    more = [f"- ❌ and {left} more"] if left else []
    return "\n".join([*(line for [line] in lines), *more])


def _sides(outcome: GateOutcome) -> str:
    rows = []
    for name, side in (("baseline", outcome.baseline), ("candidate", outcome.candidate)):
        statuses = [case.status for case in side.cases]
        counted = [(statuses.count(status), status) for status in (*DEVICE_STATUSES, "inconclusive")]
        counts = ", ".join(f"{n} {status.replace('_', ' ')}" for n, status in counted if n)
        where = f"{escaped(side.device.name, 60)} ({escaped(side.device.arch, 30)})"
        torch = escaped(side.environment.get("torch", "unknown"), 40)
        rows.append([name, code_span(side.name, 60), where, side.evidence, torch, f"{len(side.cases)}: {counts}"])
    return table(["", "Program", "Device", "Evidence", "torch", "Cases"], rows)


def _environment(outcome: GateOutcome) -> str:
    if not outcome.environment:
        return "Nothing around the two runs differs."
    rows = [
        [one.group, escaped(one.name, 60), escaped(one.baseline or "–", 120), escaped(one.candidate or "–", 120)]
        for one in outcome.environment[:MAX_ENVIRONMENT]
    ]
    rows = fitting(rows, _ENVIRONMENT_BYTES)
    left = len(outcome.environment) - len(rows)
    more = f"\n\nand {text.plural(left, 'more difference')}, in gate.json" if left > 0 else ""
    return "## What differs around them\n\n" + table(["Ask about", "What", "Baseline", "Candidate"], rows) + more


def _differences(outcome: GateOutcome, room: int) -> str:
    if not outcome.judged:
        return f"All {text.plural(outcome.n_same, 'case')} are as they were."
    rows = fitting((_row(item) for item in outcome.judged[:MAX_DIFFERENCES]), room)
    left = len(outcome.judged) - len(rows)
    more = f"; {text.plural(left, 'more difference')} in gate.json" if left > 0 else ""
    same = f"\n\n{text.plural(outcome.n_same, 'case')} as before{more}."
    return "## Cases\n\n" + table(["", "Change", "Op", "Case", "What"], rows) + same


def _row(item: Judged) -> list[str]:
    difference, waiver = item.difference, item.waiver
    waived = (
        f"; waived until {waiver.expires} by {escaped(waiver.owner, 40)}: {escaped(waiver.reason, 80)}, "
        f"{escaped(waiver.link, 100)}"
        if waiver is not None
        else ""
    )
    return [
        "waived" if waiver is not None else _MARKS[item.level],
        difference.kind,
        code_span(text.short_op(difference.op), 60),
        code_span(difference.key, 80),
        escaped(difference.message, 240) + waived,
    ]


def _policy(outcome: GateOutcome) -> str:
    policy = outcome.policy
    return (
        f"Slower: by more than both spreads, {policy.slower_floor_us:g} µs a call and {policy.slower_ratio:g} times. "
        f"Less exact: an error over {policy.error_floor:g} noise floors grown over {policy.error_ratio:g} times."
    )
