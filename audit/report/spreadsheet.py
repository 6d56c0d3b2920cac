"""``cases.csv``: one line per case, for spreadsheets and data frames."""

from __future__ import annotations

import pandas

from audit.report.rows import CaseRow, case_rows
from audit.schema import Judgement

COLUMNS = (
    "key", "op", "status", "phase", "calls", "device_us", "reference_us", "total_device_us", "error_ratio", "library",
    "dtypes", "signature", "codes", "messages", "modules", "sources", "evidence",
)  # fmt: skip

#: A cell that begins so is run as a formula by spreadsheets (OWASP, "CSV Injection").
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")


def render(judgement: Judgement) -> str:
    """A header line, then one line per case, worst first. Several values in a cell are separated by newlines."""
    return str(frame(judgement).to_csv(index=False, lineterminator="\n"))


def frame(judgement: Judgement) -> pandas.DataFrame:
    """The table behind the file: one row per case, ``COLUMNS`` as columns; texts are safe to open in a spreadsheet."""
    evidence = judgement.run.header.evidence
    rows = [tuple(_cell(value) for value in (*_values(row), evidence)) for row in case_rows(judgement)]
    # Objects, so that a count stays an integer beside an empty cell.
    table: pandas.DataFrame = pandas.DataFrame(rows, columns=list(COLUMNS), dtype=object)
    return table


def _values(row: CaseRow) -> tuple[str | float | None, ...]:
    v = row.verdict
    return (
        v.key, v.op, v.status, v.phase, v.n_calls, v.device_us, v.reference_us, row.total_us, row.worst_ratio,
        v.library, " ".join(row.dtypes), v.signature, " ".join(finding.code for finding in row.findings),
        "\n".join(finding.message for finding in row.findings), "\n".join(v.modules), "\n".join(v.sources),
    )  # fmt: skip


def _cell(value: str | float | None) -> str | float | None:
    if isinstance(value, str):
        clean = value.replace("\0", "\\x00").encode("utf-8", "backslashreplace").decode("utf-8")
        return "'" + clean if clean.startswith(_FORMULA_STARTS) else clean
    return value
