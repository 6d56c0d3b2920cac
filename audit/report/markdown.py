"""``report.md``: the run for a pull request, an issue or a CI job summary, within GitHub's size limit."""

from __future__ import annotations

import re
from collections.abc import Iterable

from audit.report import device_time, text
from audit.report.answers import MARKS, Point
from audit.report.legend import READING_ORDER, STATUS_TEXTS, evidence_text
from audit.report.lost_time import lost_share_text, lost_text, step_limits
from audit.report.rows import CaseRow, case_rows, coverage_of
from audit.report.story import story
from audit.rules.not_audited import shown_reason
from audit.verdicts import Coverage, Judgement

#: Of a comment on GitHub, whose limit is in characters, and which a job summary keeps far below. A character that is
#: escaped has five, so rows are counted as they are written.
MAX_BYTES = 65_536
#: Findings listed; the rest is counted.
MAX_FINDINGS = 100
_NOT_AUDITED_BYTES = 12_000
#: For the sentences that count what was left out.
_SPARE_BYTES = 500
#: Of what another device does faster, and of what it does slower.
MAX_SIDE_ROWS = 10
_PUNCTUATION = re.compile(r"([\\`*_{}\[\]#|>~$])")


def render(judgement: Judgement) -> str:
    """Headline, evidence, root causes, coverage, findings and what was not audited, as GitHub-flavoured Markdown."""
    header = judgement.run.header
    evidence = evidence_text(header)
    rows = case_rows(judgement)
    first = [
        f"# {escaped(judgement.headline, 800)}",
        f"> **{escaped(evidence.title)}.** {escaped(evidence.explanation, 400)}",
        f"{code_span(header.source.name)} on {escaped(header.device.name)} ({escaped(header.device.arch)}), "
        f"torch {escaped(header.environment.get('torch', 'unknown'), 40)}, {escaped(header.created, 40)}",
        _story(judgement),
        *_root_causes(judgement),
        _coverage_table(judgement, evidence.is_amd),
        *_beside(judgement),
        *_libraries(judgement),
        *_limits(judgement),
    ]
    last = _not_audited(judgement)
    room = MAX_BYTES - _SPARE_BYTES - len("\n\n".join([*first, *last]).encode())
    findings = _findings([row for row in rows if row.status != "supported"], room)
    return _bounded("\n\n".join(part for part in (*first, *findings, *last) if part) + "\n")


def _bounded(page: str) -> str:
    """The page, or its whole paragraphs that fit, of a run whose every name is made of what must be escaped."""
    if len(page.encode()) <= MAX_BYTES:
        return page
    kept, _, _ = page.encode()[: MAX_BYTES - _SPARE_BYTES].decode(errors="ignore").rpartition("\n\n")
    return f"{kept}\n\nThe rest does not fit: it is in report.html.\n"


def escaped(value: str, limit: int = 200) -> str:
    """One line in which nothing is markup: backslashes before punctuation, entities for ``<``, ``&`` and ``@``."""
    line = text.one_line(value, limit).replace("&", "&amp;").replace("<", "&lt;").replace("@", "&#64;")
    return _PUNCTUATION.sub(r"\\\1", line).replace("://", ":&#47;&#47;")


def code_span(value: str, limit: int = 120) -> str:
    """A code span that no backtick inside can close, fit for a table cell."""
    line = text.one_line(value, limit).replace("|", "\\|")
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", line)), default=0))
    pad = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{fence}{pad}{line}{pad}{fence}"


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A pipe table; a head cell that ends in ``:`` is right-aligned."""
    cells = list(head)
    marks = ["---:" if cell.endswith(":") else "---" for cell in cells]
    lines = [[cell.rstrip(":") for cell in cells], marks, *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def fitting(rows: Iterable[list[str]], room: int) -> list[list[str]]:
    """The first rows that have so many bytes together, as a table writes them."""
    kept = []
    for row in rows:
        room -= len(" | ".join(row).encode()) + len("|  |\n")
        if room < 0:
            break
        kept.append(row)
    return kept


def _story(judgement: Judgement) -> str:
    """The five answers, as the page gives them."""
    return "\n\n".join(
        "\n".join(
            [
                f"**{escaped(answer.question)} {escaped(answer.short, 300)}** "
                + " ".join(escaped(sentence, 900) for sentence in answer.sentences),
                *(_point(point) for point in answer.points),
                *([f"- and {answer.n_left} more"] if answer.n_left else []),
                *(f"- {code_span(command)}" for command in answer.commands),
            ]
        )
        for answer in story(judgement).answers
    )


def _point(point: Point) -> str:
    amount = f" ({escaped(point.amount, 120)})" if point.amount else ""
    return f"- {MARKS[point.mark]} {code_span(point.name, 90)}: {escaped(point.text, 300)}{amount}"


def _root_causes(judgement: Judgement) -> list[str]:
    troubles = [check for check in judgement.run.header.preflight if check.result != "ok"]
    lines = [f"- **{escaped(cause.message, 300)}** ({escaped(cause.code)})" for cause in judgement.root_causes]
    lines += [
        f"- **Preflight {check.result}: {escaped(check.name)}.** {escaped(f'{check.message}. {check.remedy}', 500)}"
        for check in troubles
    ]
    return ["## Look at this first\n\n" + "\n".join(lines)] if lines else []


def _coverage_table(judgement: Judgement, with_shares: bool) -> str:
    found = [c for unit in ("ops", "cases", "calls", "device_time") if (c := coverage_of(judgement, unit))]
    if not found:
        return "No case was judged."
    head = ["Status", *(f"{c.unit.replace('_', ' ')} (of {text.amount_text(c.unit, c.total)}):" for c in found)]
    body = [
        [f"{STATUS_TEXTS[status].mark} {STATUS_TEXTS[status].label}", *(_cell(c, status, with_shares) for c in found)]
        for status in ("supported", *READING_ORDER[:-1])
    ]
    return "## Coverage\n\n" + table(head, body)


def _cell(coverage: Coverage, status: str, with_share: bool) -> str:
    amount = next((value for name, value in coverage.by_status.items() if name == status), 0.0)
    shown = text.amount_text(coverage.unit, amount)
    return f"{shown} ({text.share_text(amount, coverage.total)})" if with_share and amount else shown


def _findings(rows: list[CaseRow], room: int) -> list[str]:
    if not rows:
        return []
    lines = (
        [
            f"{STATUS_TEXTS[row.status].mark} {STATUS_TEXTS[row.status].label}",
            code_span(text.short_op(row.verdict.op), 80),
            code_span(row.verdict.signature, 100),
            text.count_text(row.verdict.n_calls),
            escaped("; ".join(f.message for f in row.findings) or "no reason given", 240)
            + (f"; {escaped(row.remedy, 100)}" if row.remedy else ""),
        ]
        for row in rows[:MAX_FINDINGS]
    )
    body = fitting(lines, room)
    more = f"\n\nand {len(rows) - len(body):,} more, in report.html" if len(rows) > len(body) else ""
    return ["## Findings\n\n" + table(["Status", "Op", "Arguments", "Calls:", "Finding"], body) + more]


def _beside(judgement: Judgement) -> list[str]:
    """What costs this device most against the other, and what it gains most."""
    beside = judgement.beside
    if beside is None:
        return []
    dearer, cheaper = device_time.sides(beside)
    body = [
        [
            device_time.cost_text(row.cost_us),
            text.time_text(row.here_us),
            text.time_text(row.there_us),
            device_time.ratio_text(row),
            code_span(text.short_op(row.op), 80),
            code_span(row.signature, 100),
        ]
        for row in (*dearer[:MAX_SIDE_ROWS], *cheaper[:MAX_SIDE_ROWS])
    ]
    other = beside.other
    title = f"## Beside {escaped(other.device.name, 80)} ({code_span(other.source.name, 80)}, {other.evidence})"
    return [f"{title}\n\n" + table(["A step:", "A call here:", "There:", "Ratio:", "Op", "Arguments"], body)]


def _libraries(judgement: Judgement) -> list[str]:
    rows = device_time.library_totals(judgement)
    body = [[escaped(row.name, 60), text.time_text(row.us), row.share, text.count_text(row.count)] for row in rows]
    head = ["Library", "Device time:", "Share:", "Kernels:"]
    return ["## Device time by library\n\n" + table(head, body)] if rows else []


def _limits(judgement: Judgement) -> list[str]:
    """What a step could gain, and which ops lose it."""
    limits = step_limits(judgement)
    if limits is None:
        return []
    body = [
        [
            escaped(group.name, 80),
            lost_text(group),
            lost_share_text(group, limits.step),
            text.time_text(group.us),
            text.count_text(group.n_calls),
        ]
        for group in limits.rankings[0].groups
    ]
    head = ["Op", "Above the limit:", "Of the step:", "Device time:", "Calls:"]
    said = escaped(" ".join(limits.sentences), 800)
    return [f"## What the step could gain\n\n{said}\n\n" + table(head, body)]


def _not_audited(judgement: Judgement) -> list[str]:
    skipped = judgement.run.header.not_audited
    if not skipped:
        return []
    lines = (
        [escaped(n.what), escaped(shown_reason(n)), text.count_text(n.n_calls or n.n_seen)]
        for n in skipped[:MAX_FINDINGS]
    )
    body = fitting(lines, _NOT_AUDITED_BYTES)
    more = f"\n\nand {len(skipped) - len(body):,} more, in report.html" if len(skipped) > len(body) else ""
    return ["## Not audited\n\n" + table(["What", "Why", "Times:"], body) + more]
