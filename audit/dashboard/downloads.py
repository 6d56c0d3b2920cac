"""Files for machines: the matrix and the runs as CSV and JSON, each run's ``summary.json``.

``format_version`` stands in each JSON; keys are added, never renamed within a version.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

from audit.dashboard.contents import Contents
from audit.dashboard.links import CELLS_CSV, CELLS_JSON, RUNS_CSV, RUNS_JSON, op_page, run_page, run_summary
from audit.dashboard.rows import MatrixCell, OpRow, RunRow, Share, Stack
from audit.dashboard.site_file import SiteFile
from audit.report.cells import safe_cell
from audit.schema import STATUSES

DOWNLOADS_FORMAT_VERSION = 1
COLUMNS = (
    "op", "dtype", "evidence", "imported", "gpu", "arch", "runtime", "torch", "status", "cases", *STATUSES, "runs",
    "varies", "newest", "page",
)  # fmt: skip
RUN_COLUMNS = (
    "run", "source", "evidence", "imported", "gpu", "arch", "runtime", "torch", "created", "clock", "audit_version",
    "complete", "cases", *STATUSES, "set", "set_version", "page",
)  # fmt: skip


def site_files(contents: Contents) -> Iterator[SiteFile]:
    site = contents.digest("site")
    yield SiteFile(CELLS_CSV, site, partial(_cells_csv, contents))
    yield SiteFile(CELLS_JSON, site, partial(_cells_json, contents))
    yield SiteFile(RUNS_CSV, site, partial(_runs_csv, contents))
    yield SiteFile(RUNS_JSON, site, partial(_runs_json, contents))
    for run in contents.runs():
        yield SiteFile(run_summary(run.slug), contents.digest("run", run.slug), partial(contents.summary, run.slug))


# --- cells ----------------------------------------------------------------------------------------------------------


def _cells(contents: Contents) -> Iterator[dict[str, Any]]:
    ops = {op.slug: op for op in contents.ops()}
    stacks = {stack.slug: stack for stack in contents.stacks()}
    return (_cell(cell, ops[cell.op_slug], stacks[cell.stack_slug]) for cell in contents.matrix())


def _cell(cell: MatrixCell, op: OpRow, stack: Stack) -> dict[str, Any]:
    values = (
        op.op, cell.dtype, stack.evidence, stack.is_imported, stack.gpu, stack.arch, stack.runtime, stack.torch,
        cell.status, cell.tally.total, *(cell.tally.count(status) for status in STATUSES), cell.n_runs, cell.varies,
        cell.newest, op_page(op.slug),
    )  # fmt: skip
    return dict(zip(COLUMNS, values, strict=True))


def _cells_csv(contents: Contents) -> Iterator[str]:
    return _table(COLUMNS, (cell.values() for cell in _cells(contents)))


def _table(columns: Iterable[str], rows: Iterable[Iterable[Any]]) -> Iterator[str]:
    """CSV, piece by piece, in which no spreadsheet finds a formula."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    for row in rows:
        writer.writerow([safe_cell(value) for value in row])
        yield text.getvalue()
        text.seek(0)
        text.truncate()
    yield text.getvalue()


def _cells_json(contents: Contents) -> Iterator[str]:
    return _document(contents, "cells", _cells(contents))


# --- runs -----------------------------------------------------------------------------------------------------------


def _runs_csv(contents: Contents) -> Iterator[str]:
    return _table(RUN_COLUMNS, map(_run_cells, contents.runs()))


def _run_cells(row: RunRow) -> tuple[Any, ...]:
    stack, tally, cases = row.stack, row.share.tally, row.share.cases
    return (
        row.slug, row.source, stack.evidence, stack.is_imported, stack.gpu, stack.arch, stack.runtime, stack.torch,
        row.created, row.clock, row.audit_version, row.is_complete, tally.total,
        *(tally.count(status) for status in STATUSES), cases.name, cases.version, run_page(row.slug),
    )  # fmt: skip


def _runs_json(contents: Contents) -> Iterator[str]:
    return _document(contents, "runs", (_run(row) for row in contents.runs()))


def _run(row: RunRow) -> dict[str, Any]:
    stack = row.stack
    return {
        "run": row.slug,
        "source": row.source,
        "evidence": stack.evidence,
        "imported": stack.is_imported,
        "device": {"backend": stack.backend, "name": stack.gpu, "arch": stack.arch},
        "runtime": stack.runtime,
        "torch": stack.torch,
        "created": row.created,
        "clock": row.clock,
        "audit_version": row.audit_version,
        "complete": row.is_complete,
        "file": row.path,
        "coverage": share(row.share),
        "headline": row.headline,
        "page": run_page(row.slug),
        "summary": run_summary(row.slug),
    }


def share(of: Share) -> dict[str, Any]:
    """A share with its denominator and the set of cases that it is of."""
    by_status = {status: of.tally.count(status) for status in STATUSES}
    cases = {"name": of.cases.name, "version": of.cases.version, "audit_versions": list(of.cases.audit_versions)}
    return {"evidence": of.evidence, "total": of.tally.total, "by_status": by_status, "cases": cases}


def _document(contents: Contents, name: str, items: Iterable[dict[str, Any]]) -> Iterator[str]:
    """A JSON object with a list in it, an entry a line."""
    head = {"format_version": DOWNLOADS_FORMAT_VERSION, "audit_version": contents.site().audit_version}
    yield f"{json.dumps(head)[:-1]}, {json.dumps(name)}: ["
    for number, item in enumerate(items):
        yield f"{',' if number else ''}\n{json.dumps(item, allow_nan=False, default=_refuse)}"
    yield "\n]}\n"


def _refuse(value: Any) -> str:
    raise TypeError(f"{type(value).__name__} has no place in a download")
