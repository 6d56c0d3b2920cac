"""GitHub's workflow commands: a line on stdout for each difference, shown beside the line of the program."""

from __future__ import annotations

from audit.gate.outcome import GateOutcome, Judged
from audit.gate.place import place_of
from audit.report import text

#: GitHub shows so many of each level for a step.
MAX_EACH = 10
_COMMANDS = {"fail": "error", "warn": "warning"}


def render(outcome: GateOutcome) -> str:
    """Failures and warnings; notes are none. What is left out is counted in a notice."""
    lines = []
    if outcome.conclusion == "not finished":
        lines.append(f"::error title=rocm-audit gate::{_data(outcome.headline)}")
    lines += [f"::error title=rocm-audit gate%3A waiver::{_data(problem)}" for problem in outcome.problems]
    n_left = 0
    for level in _COMMANDS:
        items = [item for item in outcome.judged if item.level == level]
        lines += [_line(item) for item in items[:MAX_EACH]]
        n_left += max(0, len(items) - MAX_EACH)
    if n_left:
        lines.append(f"::notice title=rocm-audit gate::{n_left} more, in the job summary")
    return "".join(f"{line}\n" for line in lines)


def _line(item: Judged) -> str:
    difference = item.difference
    place = place_of(difference)
    where = f"file={_property(place.file)},line={place.line}," if place is not None else ""
    title = f"rocm-audit gate: {difference.kind}"
    message = text.one_line(f"{text.short_op(difference.op)} {difference.message} [{difference.key}]", 500)
    return f"::{_COMMANDS[item.level]} {where}title={_property(title)}::{_data(message)}"


def _data(message: str) -> str:
    """One line, escaped as GitHub's own toolkit does: a message can end no command and begin none."""
    return text.printable(message).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(value: str) -> str:
    return _data(value).replace(":", "%3A").replace(",", "%2C")
