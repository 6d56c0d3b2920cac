"""What stands on the terminal when an audit ends: the verdict, the counts and the worst findings, on one screen."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Mapping
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from audit.report import device_time, text
from audit.report.drift import drift_lines
from audit.report.legend import READING_ORDER, STATUS_TEXTS, evidence_text
from audit.report.lost_time import step_limits
from audit.report.rows import CaseRow, case_rows, status_counts
from audit.schema import IMPORTED, Status
from audit.verdicts import Judgement, Verdict

#: Findings shown; with headline, counts and root causes this stays below 24 lines at 80 columns.
MAX_FINDINGS = 6
MAX_LIBRARIES = 6
MAX_LOSING = 3
#: Of what another device does faster, and of what it does slower.
MAX_SIDE_ROWS = 4
_COLOURS: dict[Status, str] = {
    "unsupported": "bold red", "divergent": "red", "falling_back": "magenta", "slow": "yellow",
    "inconclusive": "bright_black", "supported": "green",
}  # fmt: skip


def render_terminal(
    judgement: Judgement, width: int = 80, colour: bool = False, report: Path | None = None, every: bool = False
) -> str:
    """The summary, ``width`` columns wide, with ANSI colours only where asked; ``report`` is named in the last line.

    ``every``: all findings and all that is inconclusive, not the worst of them.
    """
    console = plain_console(width, colour)
    evidence = evidence_text(judgement.run.header)
    rows = case_rows(judgement)
    console.print(Text(text.one_line(judgement.headline, 600), style="bold"))
    console.print(Text(evidence.title, style="green" if evidence.is_amd else "black on yellow"))
    console.print(_counts(judgement))
    _print_root_causes(console, judgement)
    wanted = [row for row in rows if row.status != "supported" and (every or row.status != "inconclusive")]
    _print_findings(console, wanted, len(wanted) if every else MAX_FINDINGS)
    _print_doubts(console, judgement, rows)
    _print_libraries(console, judgement)
    _print_limits(console, judgement)
    _print_beside(console, judgement)
    for line in drift_lines(judgement):
        console.print(Text(text.one_line(line, 300)))
    if report is not None:
        console.print(Text(f"report: {text.one_line(str(report), 400)}"), soft_wrap=True)
    return printed(console)


def plain_console(width: int, colour: bool) -> Console:
    """A console for text that is program text: nothing in it is taken for markup, a link or an emoji."""
    return Console(
        file=io.StringIO(), width=max(width, 40), force_terminal=colour, no_color=not colour,
        color_system="standard" if colour else None, highlight=False, markup=False, emoji=False, legacy_windows=False,
    )  # fmt: skip


def printed(console: Console) -> str:
    """What a ``plain_console`` has printed so far, without blanks at the ends of lines."""
    assert isinstance(console.file, io.StringIO)
    return "".join(line.rstrip() + "\n" for line in console.file.getvalue().splitlines())


def _counts(judgement: Judgement) -> Text:
    line = counts_text(status_counts(judgement), "   ")
    return line.append(f"{'   ' if line else ''}of {text.plural(len(judgement.verdicts), 'case')}")


def counts_text(counts: Mapping[Status, int], between: str) -> Text:
    """``✗ 1 unsupported   ✓ 12 supported``, in the colours of the statuses, in the order of reading."""
    parts = [
        Text(f"{STATUS_TEXTS[status].mark} {text.count_text(n)} {STATUS_TEXTS[status].label}", _COLOURS[status])
        for status in READING_ORDER
        if (n := counts.get(status, 0))
    ]
    return Text(between).join(parts)


def finding_text(verdict: Verdict) -> Text:
    """A case and its first finding, for a list of them as they come."""
    line = Text(f"{STATUS_TEXTS[verdict.status].mark} {STATUS_TEXTS[verdict.status].label}", _COLOURS[verdict.status])
    line.append(f" {text.one_line(text.short_op(verdict.op), 60)} {text.one_line(verdict.signature, 120)}", "default")
    if verdict.findings and verdict.status != "supported":
        line.append(f": {text.one_line(verdict.findings[0].message, 300)}", "default")
    return line


def _print_root_causes(console: Console, judgement: Judgement) -> None:
    causes = [cause.message for cause in judgement.root_causes]
    causes += [
        f"{check.message}. {check.remedy}".rstrip()
        for check in judgement.run.header.preflight
        if check.result == "failed"
    ]
    for cause in causes[:3]:
        console.print(Text(f"! {text.one_line(cause, 240)}", style="bold"))


def _print_findings(console: Console, rows: list[CaseRow], limit: int) -> None:
    """Two lines at most per op and rule code: fifty shapes of one broken op are one entry with a count."""
    groups: dict[tuple[Status, str, str], list[tuple[str, str]]] = {}
    for row in rows:
        code, message = (row.findings[0].code, row.findings[0].message) if row.findings else ("", "")
        groups.setdefault((row.status, text.short_op(row.verdict.op), code), []).append((message, row.remedy))
    if not groups:
        return
    op_width = min(32, console.width // 3)
    grid = Table.grid(padding=(0, 1), expand=True)
    grid.add_column(no_wrap=True)
    grid.add_column(no_wrap=True, overflow="ellipsis", max_width=op_width)
    grid.add_column(ratio=1, no_wrap=True)
    ordered = sorted(groups.items(), key=lambda item: (READING_ORDER.index(item[0][0]), -len(item[1])))
    room = console.width - op_width - 4
    for (status, op, _), messages in ordered[:limit]:
        count = f" ×{len(messages)}" if len(messages) > 1 else ""
        name = Text(text.one_line(op, op_width - len(count)) + count, _COLOURS[status])
        grid.add_row(Text(STATUS_TEXTS[status].mark, _COLOURS[status]), name, Text(_two_lines(*messages[0], room)))
    console.print(grid)
    if len(ordered) > limit:
        left = text.plural(len(ordered) - limit, "more finding")
        console.print(Text(f"  and {left} in the report", style="dim"))


def _print_libraries(console: Console, judgement: Judgement) -> None:
    totals = device_time.library_totals(judgement)
    if totals and judgement.run.header.source.kind == IMPORTED:
        shown = ", ".join(f"{row.name} {row.share}" for row in totals[:MAX_LIBRARIES])
        unowned = sum(row.us for row in device_time.unowned_rows(judgement))
        apart = f"; {text.time_text(unowned)} in what is no case" if unowned else ""
        console.print(Text(text.one_line(f"  device time: {shown}{apart}", 240)))


def _print_limits(console: Console, judgement: Judgement) -> None:
    """What a step would gain, and the three ops that lose most of it."""
    limits = step_limits(judgement)
    if limits is None:
        return
    ops = [group for group in limits.rankings[0].groups[:MAX_LOSING] if group.lost_us]
    named = ", ".join(f"{text.short_op(group.name)} {text.time_text(group.lost_us)}" for group in ops)
    console.print(Text(text.one_line(f"  {limits.sentences[0]}" + (f" Most: {named}." if named else ""), 240)))


def _print_beside(console: Console, judgement: Judgement) -> None:
    """The other device, what costs this one most against it, and what it gains most."""
    beside = judgement.beside
    if beside is None:
        return
    other = beside.other
    console.print(
        Text(
            text.one_line(
                f"beside {other.device.name} ({other.source.name}, {other.evidence}): the cases of a step take "
                f"{text.time_text(beside.here_step_us)} here, {text.time_text(beside.there_step_us)} there",
                300,
            ),
            style="bold",
        )
    )
    dearer, cheaper = device_time.sides(beside)
    if not dearer and not cheaper:
        console.print(
            Text("  no call that both have takes another time" if beside.rows else "  they have no call in common")
        )
        return
    grid = Table.grid(padding=(0, 1), expand=True)
    for _ in range(4):
        grid.add_column(no_wrap=True, justify="right")
    grid.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
    grid.add_row("a step", "a call", "there", "", "")
    for row in (*dearer[:MAX_SIDE_ROWS], *cheaper[:MAX_SIDE_ROWS]):
        times = (text.time_text(row.here_us), text.time_text(row.there_us), device_time.ratio_text(row))
        what = text.one_line(f"{text.short_op(row.op)} {row.signature}", 200)
        colour = "red" if row.cost_us > 0 else "green"
        grid.add_row(Text(device_time.cost_text(row.cost_us), colour), *times, Text(what))
    console.print(grid)


def _two_lines(message: str, remedy: str, width: int) -> str:
    """The message, in one line where a remedy takes the other."""
    lines = textwrap.wrap(text.one_line(message, 1000), width, max_lines=1 if remedy else 2, placeholder=" …")
    return "\n".join([*lines, *([text.one_line(f"→ {remedy}", width)] if remedy else [])])


def _print_doubts(console: Console, judgement: Judgement, rows: list[CaseRow]) -> None:
    doubts = [row for row in rows if row.status == "inconclusive"]
    if doubts:
        first = doubts[0].findings[0].message if doubts[0].findings else "no reason given"
        line = (
            f"? {text.plural(len(doubts), 'case')} inconclusive, first: {text.short_op(doubts[0].verdict.op)}: {first}"
        )
        console.print(Text(text.one_line(line, 200), style="bright_black"), no_wrap=True, overflow="ellipsis")
    skipped = [item for item in judgement.run.header.not_audited if item.computes]
    counts = (
        (sum(item.n_calls for item in skipped), "call"),
        (sum(bool(item.n_seen) for item in skipped), "other thing"),
    )
    if counted := " and ".join(text.plural(n, what) for n, what in counts if n):
        console.print(Text(f"  {counted} not audited, see the report", "dim"))
