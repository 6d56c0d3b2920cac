"""What is worked out anew whenever runs came or went: their order and slugs, the newest status of each case on each
stack, and what moved between successive runs. All from the data base into tables of it, row by row.
"""

from __future__ import annotations

import datetime
import itertools
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from sqlite3 import Connection

from audit.dashboard.change_rows import Direction
from audit.dashboard.clocks import Dated, in_order, read_clock, version_key
from audit.dashboard.database import STATUS_NUMBERS, Database, told_apart
from audit.dashboard.gather import RunFile
from audit.dashboard.links import slug
from audit.report.legend import READING_ORDER
from audit.rules.coverage import WORST_LAST
from audit.schema import Evidence

#: What counts most comes first.
EVIDENCE_ORDER: tuple[Evidence, ...] = ("measured", "stand-in", "simulated", "predicted")

_TABLES = """
DROP TABLE IF EXISTS newest;
DROP TABLE IF EXISTS cell;
DROP TABLE IF EXISTS step;
DROP TABLE IF EXISTS move;
CREATE TABLE newest(
    signature INTEGER NOT NULL, stack INTEGER NOT NULL, run INTEGER NOT NULL, status INTEGER NOT NULL,
    statuses TEXT NOT NULL, n_runs INTEGER NOT NULL, PRIMARY KEY(signature, stack)) WITHOUT ROWID;
CREATE TABLE cell(
    op INTEGER NOT NULL, dtype TEXT NOT NULL, stack INTEGER NOT NULL, n_runs INTEGER NOT NULL,
    PRIMARY KEY(op, dtype, stack)) WITHOUT ROWID;
CREATE TABLE step(
    before INTEGER NOT NULL, after INTEGER NOT NULL, n_common INTEGER NOT NULL, n_worse INTEGER NOT NULL,
    n_better INTEGER NOT NULL, n_unknown INTEGER NOT NULL, n_new INTEGER NOT NULL, n_gone INTEGER NOT NULL,
    PRIMARY KEY(after, before)) WITHOUT ROWID;
CREATE TABLE move(
    after INTEGER NOT NULL, before INTEGER NOT NULL, signature INTEGER NOT NULL, status_before INTEGER NOT NULL,
    status_after INTEGER NOT NULL, PRIMARY KEY(after, before, signature)) WITHOUT ROWID;
"""


def arrange(
    database: Database, files: Iterable[RunFile], copies: Mapping[str, tuple[str, ...]], now: datetime.datetime
) -> None:
    """Works everything out for the runs that are there; ``files`` say where they lay."""
    with told_apart():
        base = database.connection
        base.executescript(_TABLES)
        _place_runs(base, {file.sha256: file.label for file in files}, copies, now)
        _place_stacks(base)
        _find_newest(base)
        _find_cells(base)
        _find_moves(base)
        base.execute("CREATE INDEX move_of ON move(signature)")
        base.execute("CREATE INDEX newest_on ON newest(stack)")
        base.execute("ANALYZE")
        base.commit()


# --- order ----------------------------------------------------------------------------------------------------------


def _place_runs(
    base: Connection, labels: Mapping[str, str], copies: Mapping[str, tuple[str, ...]], now: datetime.datetime
) -> None:
    rows = base.execute(
        "SELECT run.sha256, run.origin, run.created, run.audit_version, model.name, stack.torch, stack.runtime, "
        "stack.gpu_slug FROM run JOIN model ON model.id = run.model JOIN stack ON stack.id = run.stack"
    ).fetchall()
    n_of_origin = Counter(origin for _, origin, *_ in rows)
    clocks = {sha256: read_clock(created, now) for sha256, _, created, *_ in rows}
    dated = in_order(
        Dated(
            sha256,
            gpu,
            clocks[sha256][1],
            (version_key(torch), version_key(runtime.partition(" ")[2]), version_key(audit_version)),
            labels.get(sha256, ""),
        )
        for sha256, _, _, audit_version, _, torch, runtime, gpu in rows
    )
    places = {run.sha256: place for place, run in enumerate(dated)}
    for sha256, origin, created, _, source, *_ in rows:
        clock, made = clocks[sha256]
        date = made.date().isoformat() if made is not None else ""
        # A run that goes on keeps how it began, and so its address.
        identity = origin if n_of_origin[origin] == 1 else sha256
        base.execute(
            "UPDATE run SET slug = ?, label = ?, copies = ?, date = ?, clock = ?, place = ? WHERE sha256 = ?",
            (
                slug(f"{source} {created[:10]}", identity, digits=12),
                labels.get(sha256, ""),
                json.dumps(copies.get(sha256, ())),
                date,
                clock,
                places[sha256],
                sha256,
            ),
        )


def _place_stacks(base: Connection) -> None:
    """By evidence, then by GPU, then oldest versions first."""
    rows = base.execute("SELECT id, evidence, is_imported, gpu, gpu_slug, torch, runtime, slug FROM stack").fetchall()
    rows.sort(
        key=lambda row: (
            EVIDENCE_ORDER.index(row[1]),
            row[2],
            row[3],
            row[4],
            version_key(row[5]),
            version_key(row[6].partition(" ")[2]),
            row[7],
        )
    )
    base.executemany("UPDATE stack SET place = ? WHERE id = ?", ((place, row[0]) for place, row in enumerate(rows)))


# --- the matrix -----------------------------------------------------------------------------------------------------


def _find_newest(base: Connection) -> None:
    """Of each case on each stack the newest run there, and all statuses, newest first."""
    rows = base.execute(
        "SELECT seen.signature, run.stack, seen.status, MAX(run.place) AS place, COUNT(*) FROM seen "
        "JOIN run ON run.id = seen.run GROUP BY seen.signature, run.stack, seen.status "
        "ORDER BY seen.signature, run.stack, place DESC"
    )
    run_at = dict(base.execute("SELECT place, id FROM run"))
    found = (
        (
            signature,
            stack,
            run_at[of_case[0][3]],
            of_case[0][2],
            " ".join(str(row[2]) for row in of_case),
            sum(row[4] for row in of_case),
        )
        for (signature, stack), group in itertools.groupby(rows, key=lambda row: row[:2])
        for of_case in [list(group)]
    )
    base.executemany("INSERT INTO newest VALUES (?, ?, ?, ?, ?, ?)", found)


def _find_cells(base: Connection) -> None:
    """In how many runs each cell of the matrix was seen."""
    base.execute(
        "INSERT INTO cell SELECT op, dtype, stack, COUNT(*) FROM ("
        "SELECT DISTINCT signature.op AS op, signature.dtype AS dtype, run.stack AS stack, run.id FROM seen "
        "JOIN signature ON signature.id = seen.signature JOIN run ON run.id = seen.run) GROUP BY op, dtype, stack"
    )
    base.execute(
        "UPDATE op SET n_runs = (SELECT COUNT(DISTINCT seen.run) FROM signature "
        "JOIN seen ON seen.signature = signature.id WHERE signature.op = op.id)"
    )


# --- history --------------------------------------------------------------------------------------------------------


def direction(before: int, after: int) -> Direction:
    """Of two different statuses, as numbers."""
    unknown = STATUS_NUMBERS["inconclusive"]
    if unknown in (before, after):
        return "unknown"
    is_worse = WORST_LAST.index(READING_ORDER[after]) > WORST_LAST.index(READING_ORDER[before])
    return "worse" if is_worse else "better"


def _find_moves(base: Connection) -> None:
    """Between each case and the same case in the run before it, of the same source on the same GPU."""
    series: dict[tuple[int, str], list[int]] = defaultdict(list)
    series_of: dict[int, tuple[int, str]] = {}
    runs = base.execute(
        "SELECT run.id, run.model, stack.gpu_slug FROM run JOIN stack ON stack.id = run.stack ORDER BY run.place"
    )
    for run, model, gpu in runs.fetchall():
        series[model, gpu].append(run)
        series_of[run] = (model, gpu)
    counts: dict[tuple[int, int], Counter[str]] = {
        pair: Counter() for of_series in series.values() for pair in itertools.pairwise(of_series)
    }
    new: Counter[int] = Counter()
    base.executemany("INSERT INTO move VALUES (?, ?, ?, ?, ?)", _moves(base, series_of, counts, new))
    n_cases = dict(base.execute("SELECT run, COUNT(*) FROM seen GROUP BY run"))
    immediate = {pair for of_series in series.values() for pair in itertools.pairwise(of_series)}
    base.executemany(
        "INSERT INTO step VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (
            (
                before,
                after,
                count["common"],
                count["worse"],
                count["better"],
                count["unknown"],
                new[after] if (before, after) in immediate else 0,
                n_cases.get(before, 0) - count["common"] if (before, after) in immediate else 0,
            )
            for (before, after), count in counts.items()
            if (before, after) in immediate or count["worse"] + count["better"] + count["unknown"]
        ),
    )


def _moves(
    base: Connection,
    series_of: Mapping[int, tuple[int, str]],
    counts: dict[tuple[int, int], Counter[str]],
    new: Counter[int],
) -> Iterable[tuple[int, int, int, int, int]]:
    """(after, before, signature, status before, status after) of what moved; counts all pairs and first sights."""
    rows = base.execute(
        "SELECT seen.signature, seen.run, seen.status FROM seen JOIN run ON run.id = seen.run "
        "ORDER BY seen.signature, run.place"
    )
    for signature, of_case in itertools.groupby(rows, key=lambda row: row[0]):
        last: dict[tuple[int, str], tuple[int, int]] = {}
        for _, run, status in of_case:
            before, old = last.get(series_of[run], (0, 0))
            last[series_of[run]] = (run, status)
            if not before:
                new[run] += 1
                continue
            count = counts.setdefault((before, run), Counter())
            count["common"] += 1
            if old != status:
                count[direction(old, status)] += 1
                yield run, before, signature, old, status
