"""``cases.csv``: one line per case, for spreadsheets and data frames."""

from __future__ import annotations

from collections.abc import Mapping

import pandas

from audit.report.cells import safe_cell
from audit.report.device_time import side_rows_by_key
from audit.report.rows import CaseRow, case_rows
from audit.verdicts import Judgement, SideBySide, SideRow

COLUMNS = (
    "key", "op", "status", "phase", "calls", "device_us", "reference_us", "total_device_us", "error_ratio", "library",
    "dtypes", "signature", "codes", "messages", "modules", "sources", "evidence", "floor_us", "bound", "above_floor_us",
)  # fmt: skip
#: Where another device's run stands beside this one.
SIDE_COLUMNS = ("there_us", "step_cost_us", "there_library", "there_device")


def render(judgement: Judgement) -> str:
    """A header line, then one line per case, worst first. Several values in a cell are separated by newlines."""
    return str(frame(judgement).to_csv(index=False, lineterminator="\n"))


def frame(judgement: Judgement) -> pandas.DataFrame:
    """The table behind the file: one row per case, ``COLUMNS`` as columns; texts are safe to open in a spreadsheet."""
    evidence, beside = judgement.run.header.evidence, judgement.beside
    sides = side_rows_by_key((*beside.rows, *beside.only_here)) if beside is not None else {}
    rows = [
        (
            *_values(row),
            evidence,
            row.verdict.floor_us,
            row.verdict.bound,
            row.lost_us,
            *_side_values(row, beside, sides),
        )
        for row in case_rows(judgement)
    ]
    if beside is not None:
        rows += [_only_there(row, beside) for row in beside.only_there]
    columns = COLUMNS if beside is None else (*COLUMNS, *SIDE_COLUMNS)
    # Objects, so that a count stays an integer beside an empty cell.
    cells = [tuple(safe_cell(value) for value in row) for row in rows]
    table: pandas.DataFrame = pandas.DataFrame(cells, columns=list(columns), dtype=object)
    return table


def _side_values(
    row: CaseRow, beside: SideBySide | None, sides: Mapping[str, SideRow]
) -> tuple[str | float | None, ...]:
    """The cost is that of all calls of the kind, which may be several cases; it stands at each."""
    if beside is None:
        return ()
    side = sides.get(row.verdict.key)
    if side is None:
        return (None, None, None, beside.other.device.name)
    return side.there_us, side.cost_us, side.there_library, beside.other.device.name


def _only_there(side: SideRow, beside: SideBySide) -> tuple[str | float | None, ...]:
    """A line for a kind of call that this run has not: only what is known of it."""
    known: dict[str, str | float | None] = {
        "op": side.op,
        "phase": side.phase,
        "signature": side.signature,
        "there_us": side.there_us,
        "step_cost_us": side.cost_us,
        "there_library": side.there_library,
        "there_device": beside.other.device.name,
    }
    return tuple(known.get(column) for column in (*COLUMNS, *SIDE_COLUMNS))


def _values(row: CaseRow) -> tuple[str | float | None, ...]:
    v = row.verdict
    return (
        v.key, v.op, v.status, v.phase, v.n_calls, v.device_us, v.reference_us, row.total_us, row.worst_ratio,
        v.library, " ".join(row.dtypes), v.signature, " ".join(finding.code for finding in row.findings),
        "\n".join(finding.message for finding in row.findings), "\n".join(v.modules), "\n".join(v.sources),
    )  # fmt: skip
