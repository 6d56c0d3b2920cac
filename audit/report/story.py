"""The run as five answers: may I migrate, what blocks, are the numbers the same, what does a step cost, what to change.

Each is of the judged run alone and says no more than its evidence can: only a run that was measured on an AMD GPU may
answer the first with yes or no.
"""

from __future__ import annotations

from dataclasses import dataclass

from audit.report import text
from audit.report.accuracy import Tally, accuracy_of, tally
from audit.report.answers import Answer, Point, Tone, answered
from audit.report.changes import changes
from audit.report.legend import READING_ORDER
from audit.report.rows import CaseRow, calls_text, case_rows, coverage_of
from audit.report.step_cost import step_cost
from audit.schema import IMPORTED, Status
from audit.verdicts import Judgement

#: What stops a move, and what costs time.
BLOCKING: tuple[Status, ...] = ("unsupported", "divergent")
COSTLY: tuple[Status, ...] = ("falling_back", "slow")
#: Characters of a finding's message; the case has the rest.
MAX_MESSAGE = 140
#: Replays the run's own cases where the GPU is; of a recording, which is no such file, the program itself.
ON_AMD = "rocm-audit run cases.audit --device hip"
PROGRAM_ON_AMD = "rocm-audit run PROGRAM.py --device hip"


@dataclass(frozen=True)
class Story:
    """``claim`` is the first answer in one line, as a heading; ``answers`` are in the order in which people ask."""

    claim: str
    answers: tuple[Answer, ...]


def story(judgement: Judgement) -> Story:
    """The five answers."""
    rows = case_rows(judgement)
    counted = tally(accuracy_of(row, judgement) for row in rows)
    first = _migrate(judgement, rows)
    others = (_blocks(judgement, rows), _numbers(judgement, counted), step_cost(judgement), changes(judgement, rows))
    return Story(f"May I migrate? {first.short}", (first, *others))


# --- may I migrate? --------------------------------------------------------------------------------------------


def _migrate(judgement: Judgement, rows: list[CaseRow]) -> Answer:
    header = judgement.run.header
    ask = "May I migrate?"
    evidence = ("first", "coverage", "operators", "left-out")
    if not rows:
        said = f"No case came of {text.plural(header.n_recorded, 'recorded call')}; why stands under Not audited."
        how = "To know, audit the program itself on the AMD machine:"
        short = "This run cannot say: no case was judged."
        return answered(ask, "open", short, [said, how], ("first", "left-out"), commands=(PROGRAM_ON_AMD,))
    if header.source.kind == IMPORTED:
        said_of_it, commands = _recording(judgement, rows), (PROGRAM_ON_AMD,)
        return answered(ask, "open", "This recording cannot say.", said_of_it, evidence, commands=commands)
    if header.evidence != "measured":
        commands = (ON_AMD,)
        return answered(ask, "open", "This run cannot say.", _elsewhere(judgement, rows), evidence, commands=commands)
    tone, short = _on_amd(judgement, rows)
    return answered(ask, tone, short, _support(judgement, rows), evidence)


def _on_amd(judgement: Judgement, rows: list[CaseRow]) -> tuple[Tone, str]:
    """Yes only where everything that was recorded has an answer, and it is a good one."""
    n_blocking = sum(row.status in BLOCKING for row in rows)
    if n_blocking:
        n_ops = len({row.verdict.op for row in rows if row.status in BLOCKING})
        return "bad", f"Not as it is: {text.plural(n_blocking, 'case')} of {text.plural(n_ops, 'op')} block."
    causes = [cause for cause in judgement.root_causes if cause.status in BLOCKING]
    if causes:
        of_step = all(cause.code.startswith("NUM") for cause in causes)
        return "bad", "Not as it is: the step's error grows." if of_step else "Not as this machine is set up."
    open_ends = _open_ends(judgement, rows)
    if open_ends:
        return "open", f"Nothing found blocks, but {open_ends[0]}."
    n_costly = sum(row.status in COSTLY for row in rows)
    cost = f" {n_costly:,} {'costs' if n_costly == 1 else 'cost'} time." if n_costly else ""
    return "good", f"Yes: nothing in {text.plural(len(rows), 'case')} blocks.{cost}"


def _open_ends(judgement: Judgement, rows: list[CaseRow]) -> list[str]:
    """What keeps a good run from being a whole answer."""
    found = []
    n_unknown = sum(row.status == "inconclusive" for row in rows)
    if n_unknown:
        found.append(f"{n_unknown:,} of {text.plural(len(rows), 'case')} have no answer")
    if judgement.run.end is None or not judgement.run.end.complete:
        found.append("the audit did not reach its end")
    if judgement.run.header.source.error:
        found.append("the program ended early")
    n_left = sum(item.n_calls + item.n_seen for item in judgement.run.header.not_audited if item.computes)
    if n_left:
        found.append(
            f"{text.plural(n_left, 'thing that the program did is', 'things that the program did are')} not audited"
        )
    if any(cause.status == "inconclusive" for cause in judgement.root_causes):
        found.append("what is named first on this page is in doubt")
    return found


def _support(judgement: Judgement, rows: list[CaseRow]) -> list[str]:
    """Of the calls, with the inconclusive share beside it: the headline above it has the ops and what is left out."""
    ends = _open_ends(judgement, rows)
    more = f"What keeps this from being a whole answer: {'; '.join(ends)}." if ends else ""
    total = coverage_of(judgement, "calls")
    if total is None:
        return [_costs(rows), more]
    good, unknown = total.by_status.get("supported", 0.0), total.by_status.get("inconclusive", 0.0)
    calls = (
        f"With {_stack(judgement)}, {text.count_text(good)} of {text.count_text(total.total)} calls "
        f"({text.share_text(good, total.total)}) are supported, {text.count_text(unknown)} "
        f"({text.share_text(unknown, total.total)}) inconclusive."
    )
    return [calls, _costs(rows), more]


def _costs(rows: list[CaseRow]) -> str:
    """What does not block and is not as it should be."""
    counts = {status: sum(row.status == status for row in rows) for status in COSTLY}
    named = [f"{text.plural(n, 'case')} {status.replace('_', ' ')}" for status, n in counts.items() if n]
    return f"{' and '.join(named)}: right, and they cost time." if named else ""


def _stack(judgement: Judgement) -> str:
    environment = judgement.run.header.environment
    versions = [f"{name} {environment[name]}" for name in ("torch", "hip", "rocm", "cuda") if environment.get(name)]
    return ", ".join(versions) or "versions unknown"


def _recording(judgement: Judgement, rows: list[CaseRow]) -> list[str]:
    device = judgement.run.header.device
    amd = "" if judgement.run.header.evidence == "measured" else ", which is no AMD GPU"
    return [
        f"The program ran on {device.name}{amd}: {_cases_and_calls(judgement, rows)} took time there. Nothing was "
        "replayed, so nobody has looked at whether their results are right.",
        "To know, audit the program itself on the AMD machine:",
    ]


def _cases_and_calls(judgement: Judgement, rows: list[CaseRow]) -> str:
    """``198 cases (1,098 of 1,288 recorded calls)``."""
    return f"{text.plural(len(rows), 'case')} ({calls_text(judgement, rows)})"


def _elsewhere(judgement: Judgement, rows: list[CaseRow]) -> list[str]:
    """What a stand-in, a simulation or a prediction is worth."""
    header = judgement.run.header
    ran = [row for row in rows if row.measurement is not None and row.measurement.device.kind != "not_run"]
    among = f" of {len(rows):,}" if len(ran) < len(rows) else ""
    replayed = f"{len(ran):,}{among} {'case' if len(rows) == 1 else 'cases'} ({calls_text(judgement, ran)})"
    n_found = sum(row.status not in ("supported", "inconclusive") for row in rows)
    found = f"{n_found:,} {'has' if n_found == 1 else 'have'} a finding"
    if header.evidence == "stand-in":
        said = (
            f"No AMD GPU ran: {header.device.name} stood in, with {_stack(judgement)}. {replayed} were replayed there; "
            f"{found}. That shows that the program can be audited, and what of it troubles an accelerator of another "
            "maker."
        )
    elif header.evidence == "simulated":
        said = (
            f"No GPU ran. {replayed} were replayed on a simulated device; {found}. That shows what the audit records "
            "and would catch, and nothing of AMD's libraries."
        )
    else:
        said = (
            f"Nothing ran. {_cases_and_calls(judgement, rows)} were matched with what is known of "
            f"{header.device.arch}; {n_found:,} {'meets' if n_found == 1 else 'meet'} something that is known to go "
            "wrong there. What is not known may go wrong all the same."
        )
    return [said, "The cases lie beside this page. To know, replay them on the AMD machine:"]


# --- what blocks? ----------------------------------------------------------------------------------------------


def _blocks(judgement: Judgement, rows: list[CaseRow]) -> Answer:
    header = judgement.run.header
    ask = "What blocks?"
    evidence = ("first", "operators")
    causes = [
        Point(cause.status, cause.code, text.one_line(cause.message, 300), anchor="first")
        for cause in judgement.root_causes
        if cause.status in BLOCKING
    ]
    blocking = [row for row in rows if row.status in BLOCKING]
    points = causes + _grouped(blocking)
    n_unknown = sum(row.status == "inconclusive" for row in rows)
    are = "is" if n_unknown == 1 else "are"
    unknown = (
        f"{n_unknown:,} of {text.plural(len(rows), 'case')} {are} inconclusive, and may block." if n_unknown else ""
    )
    if not rows and not points:
        return answered(ask, "open", "Not known: no case was judged.", [], ())
    if header.source.kind == IMPORTED and not points:
        said = "The recorded calls returned. Their results were not compared with anything."
        return answered(ask, "open", "Not known.", [said], evidence)
    where = {"measured": "", "stand-in": f" on {header.device.name}, standing in", "predicted": ", predicted"}.get(
        header.evidence, " on the simulated device"
    )
    if not points:
        short = {"measured": "Nothing that was found.", "predicted": "Nothing that is known."}.get(
            header.evidence, f"Nothing{where}."
        )
        n_known = len(rows) - n_unknown
        if n_unknown:
            short = f"Nothing in {n_known:,} of {text.plural(len(rows), 'case')}{where}."
        said = f"None of {text.plural(n_known, 'case')} is unsupported or divergent."
        if header.evidence == "predicted":
            said = f"None of {text.plural(len(rows), 'case')} meets a failure that is known of {header.device.arch}."
        tone: Tone = "good" if header.evidence == "measured" and not n_unknown else "open"
        return answered(ask, tone, short, [said, unknown], evidence)
    n_ops = len({row.verdict.op for row in blocking})
    counts = [
        f"{text.plural(n, 'case')} {status}" for status in BLOCKING if (n := sum(r.status == status for r in rows))
    ]
    short = f"{text.plural(n_ops, 'op')}{where}." if blocking else f"{text.plural(len(causes), 'cause')}{where}."
    said = f"{' and '.join(counts)}, of {text.plural(len(rows), 'case')}." if counts else ""
    return answered(ask, "bad" if header.evidence == "measured" else "open", short, [said, unknown], evidence, points)


def _grouped(rows: list[CaseRow]) -> list[Point]:
    """Equal findings of an op as one: fifty shapes of one broken op are one line."""
    groups: dict[tuple[Status, str, str], list[CaseRow]] = {}
    for row in rows:
        code = row.findings[0].code if row.findings else ""
        groups.setdefault((row.status, row.verdict.op, code), []).append(row)
    ordered = sorted(groups.items(), key=lambda item: (READING_ORDER.index(item[0][0]), -len(item[1])))
    return [
        Point(
            status,
            text.short_op(op),
            _first_clause(members[0].findings[0].message if members[0].findings else "no reason given"),
            f"{text.plural(len(members), 'case')}, {text.plural(sum(row.verdict.n_calls for row in members), 'call')}",
            f"case-{members[0].anchor}",
        )
        for (status, op, _), members in ordered
    ]


def _first_clause(message: str) -> str:
    """What happened stands first in a message, then where and how."""
    return text.one_line(message.partition("; ")[0], MAX_MESSAGE)


# --- are the numbers the same? ---------------------------------------------------------------------------------


def _numbers(judgement: Judgement, counted: Tally) -> Answer:
    header = judgement.run.header
    ask = "Are the numbers the same?"
    evidence = ("errors", "drift")
    drift = text.capital(judgement.drift.sentence) if judgement.drift is not None else ""
    if not counted.n_compared:
        return answered(ask, "open", "No number was compared.", [_why_not(counted), drift], evidence)
    n, kinds = counted.n_compared, counted.by_kind
    said = (
        f"Of {text.plural(counted.n, 'case')}, {n:,} {'was' if n == 1 else 'were'} compared with the CPU: "
        f"{kinds['identical']:,} the same bit for bit, {kinds['within']:,} within what dtype and algorithm explain, "
        f"{kinds['differs']:,} beyond it."
    )
    nearest = ""
    if counted.worst is not None and counted.worst.ratio is not None:
        nearest = (
            f"The largest error within is {text.error_text(counted.worst.ratio)} times its noise floor, where "
            f"{text.error_text(counted.worst.allowed or 0.0)} are allowed."
        )
    where = {"measured": "", "stand-in": f" on {header.device.name}"}.get(header.evidence, " on the simulated device")
    if kinds["differs"]:
        tone: Tone = "bad" if header.evidence == "measured" else "open"
        short = f"Not in {kinds['differs']:,} of {text.plural(n, 'compared case')}{where}."
    else:
        tone = "good" if header.evidence == "measured" else "open"
        same = "The same but for rounding" if kinds["within"] else "The same bit for bit"
        short = f"{same}, in {'all ' if n > 1 else ''}{text.plural(n, 'compared case')}{where}."
    return answered(ask, tone, short, [said, nearest, _why_not(counted), drift], evidence)


def _why_not(counted: Tally) -> str:
    if not counted.why_not:
        return ""
    several = len(counted.why_not) > 1
    reasons = ", ".join(f"{n:,} {why}" if several else why for why, n in counted.why_not)
    return f"Not compared: {text.plural(counted.by_kind['not compared'], 'case')} ({reasons})."
