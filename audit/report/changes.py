"""What to change: remedies that were tried and help, then those that are known, by what they are worth."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from audit.report import text
from audit.report.answers import Answer, Point, answered
from audit.report.legend import READING_ORDER
from audit.report.rows import CaseRow
from audit.rules.lost_time import lost_by_op, step_of
from audit.schema import Status
from audit.verdicts import Judgement

ASK = "What do I change?"
EVIDENCE = ("first", "limits", "operators")
#: Where the time of a call is a GPU's.
_TIMED = ("hip", "cuda")


@dataclass
class _Change:
    """One remedy and the cases that it is for. ``saved_us`` a step, as measured; ``tried``: it was run and helped."""

    remedy: str
    status: Status
    tried: bool
    rows: list[CaseRow] = field(default_factory=list)
    saved_us: float = 0.0


def changes(judgement: Judgement, rows: list[CaseRow]) -> Answer:
    """Equal remedies together: what cures comes first, then what saves most."""
    found = _remedies(judgement, rows)
    ordered = sorted(found, key=lambda c: (not c.tried, READING_ORDER.index(c.status), -c.saved_us, -len(c.rows)))
    points = _of_machine(judgement) + [_point(change) for change in ordered]
    wanting = [row for row in rows if row.status not in ("supported", "inconclusive")]
    helped = {id(row) for change in found for row in change.rows}
    helpless = [row for row in wanting if id(row) not in helped]
    said = [
        _tried_sentence(rows, found),
        _helpless(helpless, len(wanting), judgement.run.header.evidence == "measured"),
        _gain(judgement),
    ]
    if points:
        return answered(ASK, "open", _short(len(points), sum(change.tried for change in found)), said, EVIDENCE, points)
    if wanting:
        return answered(ASK, "open", "No remedy is known for what was found.", said, EVIDENCE)
    if not rows:
        return answered(ASK, "open", "Not known: no case was judged.", said, ())
    is_whole = judgement.run.header.evidence == "measured" and all(row.status == "supported" for row in rows)
    return answered(ASK, "good" if is_whole else "open", "Nothing that was found asks for it.", said, EVIDENCE)


def _short(n: int, n_tried: int) -> str:
    if not n_tried:
        return f"{text.plural(n, 'known remedy', 'known remedies')}, not tried here."
    helped = "it helped" if n == 1 else "all helped" if n == n_tried else f"{n_tried:,} of them helped"
    return f"{text.plural(n, 'remedy', 'remedies')}; tried here, {helped}."


def _remedies(judgement: Judgement, rows: list[CaseRow]) -> list[_Change]:
    by_text: dict[tuple[str, bool], _Change] = {}
    for row in rows:
        if row.status in ("supported", "inconclusive"):
            continue
        for remedy, tried in _of_case(row):
            change = by_text.setdefault((remedy, tried), _Change(remedy, row.status, tried))
            change.status = min(change.status, row.status, key=READING_ORDER.index)
            if row not in change.rows:
                change.rows.append(row)
                change.saved_us += _saved_us(judgement, row) if tried else 0.0
    return list(by_text.values())


def _of_case(row: CaseRow) -> Iterator[tuple[str, bool]]:
    """What was run and helped; where nothing did, what is known."""
    told = next((f for f in row.verdict.findings if f.code == "FBK320" and f.data.get("remedy")), None)
    if told is not None:
        yield str(told.data["remedy"]), True
        return
    for finding in row.findings:
        if remedy := str(finding.data.get("remedy") or ""):
            yield remedy, False
        elif finding.known is not None and finding.known.remedy:
            yield finding.known.remedy, False


def _saved_us(judgement: Judgement, row: CaseRow) -> float:
    """Device time a step that the alternative saved, where a GPU timed both."""
    note = next((f for f in row.verdict.findings if f.code == "FBK320"), None)
    if note is None or judgement.run.header.device.backend not in _TIMED:
        return 0.0
    with_it, without = note.data.get("device_us_with"), note.data.get("device_us_without")
    if not isinstance(with_it, (int, float)) or not isinstance(without, (int, float)):
        return 0.0
    return max(0.0, without - with_it) * row.verdict.n_calls / max(judgement.run.header.source.n_steps or 1, 1)


def _of_machine(judgement: Judgement) -> list[Point]:
    """What a failed check or a root cause asks for: it comes before any op."""
    found = [
        Point(cause.status, cause.code, cause.known.remedy, anchor="first")
        for cause in judgement.root_causes
        if cause.known is not None and cause.known.remedy
    ]
    checks = [check for check in judgement.run.header.preflight if check.result != "ok" and check.remedy]
    bad: dict[str, Status] = {"failed": "unsupported", "warning": "slow"}
    return found + [Point(bad[check.result], check.name, check.remedy, "before any op", "first") for check in checks]


def _point(change: _Change) -> Point:
    ops = list(dict.fromkeys(text.short_op(row.verdict.op) for row in change.rows))
    named = ", ".join(ops[:3]) + (f" and {len(ops) - 3} more" if len(ops) > 3 else "")
    worth = f"saves {text.time_text(change.saved_us)} a step, " if change.saved_us else ""
    how = "tried, helps" if change.tried else "not tried"
    amount = f"{worth}{text.plural(len(change.rows), 'case')}, {how}"
    return Point(change.status, named, change.remedy, amount, f"case-{change.rows[0].anchor}")


def _tried_sentence(rows: list[CaseRow], found: list[_Change]) -> str:
    """Of the cases that something else was run in place of, in how many that helped."""
    n_tried = sum(bool(row.verdict.tried) for row in rows)
    n_helped = len({id(row) for change in found if change.tried for row in change.rows})
    if not n_tried:
        return f"Something else was tried and helped in {text.plural(n_helped, 'case')}." if n_helped else ""
    helped = "helped in none" if not n_helped else f"helped in {'all' if n_helped >= n_tried else f'{n_helped:,}'}"
    if n_tried == 1:
        helped = "helped" if n_helped else "did not help"
    return f"Something else was tried in {text.plural(n_tried, 'case')} and {helped}."


def _helpless(rows: list[CaseRow], n_wanting: int, is_amd: bool) -> str:
    """Cases that no remedy is known for, and what to do with them."""
    if not rows:
        return ""
    n_scripts = sum(row.has_repro for row in rows)
    each = "It has" if len(rows) == 1 else "Each has" if n_scripts == len(rows) else f"{n_scripts:,} of them have"
    report = " and a text to report it" if is_amd else ""
    script = f" {each} a script that shows it again{report}." if n_scripts else ""
    of = "the one case" if n_wanting == 1 else f"{len(rows):,} of {n_wanting:,} cases"
    return f"No remedy is known for {of} with a finding.{script}"


def _gain(judgement: Judgement) -> str:
    """What faster kernels could give at most."""
    run, verdicts = judgement.run, judgement.verdicts
    step = step_of(run, verdicts) if run.header.device.backend in _TIMED else None
    groups = [group for group in lost_by_op(run, verdicts)[:3] if group.lost_us] if step is not None else []
    if step is None or not groups:
        return ""
    named = ", ".join(f"{text.short_op(group.name)} {text.time_text(group.lost_us)}" for group in groups)
    return f"Time above the device's limits is lost most in {named} a step."
