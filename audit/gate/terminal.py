"""The outcome on the terminal: what differs around the runs first, then the cases, worst first, on about a screen."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from audit.gate.outcome import GateOutcome
from audit.report import text
from audit.report.terminal import plain_console, printed

MAX_DIFFERENCES = 20
MAX_ENVIRONMENT = 12
_COLOURS = {"fail": "bold red", "warn": "yellow", "note": "bright_black"}
_CONCLUSIONS = {"passed": "bold green", "failed": "bold red", "not finished": "bold yellow"}


def render_terminal(outcome: GateOutcome, width: int = 80, colour: bool = False, every: bool = False) -> str:
    """``width`` columns wide, with ANSI colours only where asked; ``every`` difference, or the worst."""
    n_around = len(outcome.environment) if every else MAX_ENVIRONMENT
    n_shown = len(outcome.judged) if every else MAX_DIFFERENCES
    console = plain_console(width, colour)
    console.print(Text(text.one_line(outcome.headline, 600), style=_CONCLUSIONS[outcome.conclusion]))
    if outcome.trace is not None:
        console.print(Text(text.one_line(outcome.trace.sentence, 900), style="yellow"))
    for remark in outcome.remarks:
        console.print(Text(text.one_line(remark, 300)))
    for one in outcome.environment[:n_around]:
        change = f"{one.name}: {one.baseline or '–'} → {one.candidate or '–'}"
        console.print(Text(text.one_line(f"  {one.group:8} {change}", 200)), no_wrap=True, overflow="ellipsis")
    if (left := len(outcome.environment) - n_around) > 0:
        console.print(Text(f"  and {text.plural(left, 'more difference')} around them", style="dim"))
    for problem in outcome.problems:
        console.print(Text(text.one_line(f"✗ {problem}", 300), style=_COLOURS["fail"]))
    console.print(_table(outcome, n_shown))
    if (left := len(outcome.judged) - n_shown) > 0:
        console.print(Text(f"  and {text.plural(left, 'more difference')}", style="dim"))
    console.print(Text(f"  {text.plural(outcome.n_same, 'case')} as before"))
    return printed(console)


def _table(outcome: GateOutcome, n_shown: int) -> Table:
    grid = Table.grid(padding=(0, 1), expand=True)
    for ratio in (None, None, 1):
        grid.add_column(ratio=ratio, no_wrap=ratio is None, overflow="ellipsis" if ratio is None else "fold")
    for item in outcome.judged[:n_shown]:
        one = item.difference
        kind = f"{one.kind} (waived)" if item.waiver is not None else one.kind
        op = text.one_line(text.short_op(one.op), 40)
        grid.add_row(Text(kind, _COLOURS[item.level]), Text(op), Text(text.one_line(f"[{one.key}] {one.message}", 200)))
    return grid
