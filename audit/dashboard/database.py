"""The data base that a site is built from: digests of its runs, kept so that only new files are judged.

SQLite, in the cache, one file for each site. It holds nothing that cannot be made again: what is damaged, of another
form, or judged by other rules is thrown away.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from audit import strict_json
from audit.codec import encode
from audit.dashboard.digest import CaseDigest, Digest, FindingDigest, RunDigest
from audit.dashboard.links import op_slug, slug
from audit.dashboard.rows import KnownRow, Stack
from audit.errors import UnfinishedError
from audit.report.legend import READING_ORDER
from audit.schema import Status

#: Another form of the tables is another file.
_FORM = "3"
#: Pages of the data base in memory, in KiB.
_CACHE_KIB = 65_536
#: Numbers of texts and signatures that are kept in memory while runs are added.
_MAX_KEPT = 50_000
#: Written as numbers, in the order of reading: worst first.
STATUS_NUMBERS: Mapping[Status, int] = {status: number for number, status in enumerate(READING_ORDER)}

# What is long stands last in its row: a column behind it is read through all of it, for each of a million cases.
_TABLES = """
CREATE TABLE fact(name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE stack(
    id INTEGER PRIMARY KEY, slug TEXT NOT NULL UNIQUE, evidence TEXT NOT NULL, is_imported INTEGER NOT NULL,
    backend TEXT NOT NULL, gpu TEXT NOT NULL, gpu_slug TEXT NOT NULL, arch TEXT NOT NULL, runtime TEXT NOT NULL,
    torch TEXT NOT NULL, place INTEGER NOT NULL DEFAULT 0);
CREATE TABLE model(id INTEGER PRIMARY KEY, slug TEXT NOT NULL UNIQUE, name TEXT NOT NULL, kind TEXT NOT NULL);
CREATE TABLE run(
    id INTEGER PRIMARY KEY, sha256 TEXT NOT NULL UNIQUE, model INTEGER NOT NULL, stack INTEGER NOT NULL,
    place INTEGER NOT NULL DEFAULT 0, slug TEXT NOT NULL DEFAULT '', date TEXT NOT NULL DEFAULT '',
    clock TEXT NOT NULL DEFAULT 'ok', is_complete INTEGER NOT NULL, created TEXT NOT NULL, opset TEXT NOT NULL,
    origin TEXT NOT NULL, audit_version TEXT NOT NULL, tally TEXT NOT NULL, label TEXT NOT NULL DEFAULT '',
    copies TEXT NOT NULL DEFAULT '[]', headline TEXT NOT NULL, digest TEXT NOT NULL, summary BLOB NOT NULL);
CREATE INDEX run_called ON run(slug);
CREATE TABLE op(
    id INTEGER PRIMARY KEY, op TEXT NOT NULL UNIQUE, slug TEXT NOT NULL UNIQUE, op_class TEXT NOT NULL,
    n_runs INTEGER NOT NULL DEFAULT 0);
CREATE TABLE signature(
    id INTEGER PRIMARY KEY, op INTEGER NOT NULL, key TEXT NOT NULL, phase TEXT NOT NULL, signature TEXT NOT NULL,
    dtype TEXT NOT NULL, dtypes TEXT NOT NULL, UNIQUE(key, op, phase, signature));
CREATE INDEX signature_of_op ON signature(op);
CREATE TABLE finding(
    id INTEGER PRIMARY KEY, code TEXT NOT NULL, status INTEGER NOT NULL, message TEXT NOT NULL, title TEXT NOT NULL,
    link TEXT NOT NULL, remedy TEXT NOT NULL, UNIQUE(message, code, status, title, link, remedy));
CREATE TABLE text(id INTEGER PRIMARY KEY, text TEXT NOT NULL UNIQUE);
CREATE TABLE seen(
    signature INTEGER NOT NULL, run INTEGER NOT NULL, status INTEGER NOT NULL, n_calls INTEGER NOT NULL,
    worst_ratio REAL, allowance REAL, device_us REAL, floor_us REAL, total_us REAL, bound INTEGER NOT NULL,
    library INTEGER NOT NULL, codes INTEGER NOT NULL, finding INTEGER, modules INTEGER NOT NULL,
    PRIMARY KEY(signature, run)) WITHOUT ROWID;
CREATE INDEX seen_in_run ON seen(run);
"""


class Database:
    """Digests by the SHA-256 of their files. Numbers of rows are given when a thing is first seen."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self._texts: dict[str, int] = {}
        self._signatures: dict[tuple[str, str, str, str], int] = {}

    @classmethod
    def open(cls, path: Path | None, judging: str) -> Database:
        """The data base at ``path`` (None: one that is gone afterwards), empty unless it is of these rules.

        Raises UnfinishedError where it can be neither read nor made.
        """
        if path is not None:
            with contextlib.suppress(sqlite3.Error):
                found = _connected(path)
                if _facts(found) == {"form": _FORM, "judging": judging}:
                    return cls(found)
                found.close()
            for part in (path, path.with_name(f"{path.name}-journal")):
                part.unlink(missing_ok=True)
        with told_apart():
            connection = _connected(path)
            connection.executescript(_TABLES)
            with connection:
                facts = [("form", _FORM), ("judging", judging)]
                connection.executemany("INSERT INTO fact VALUES (?, ?)", facts)
        return cls(connection)

    def close(self) -> None:
        self.connection.close()

    def known(self) -> set[str]:
        """SHA-256 of the files of all runs."""
        return {sha256 for (sha256,) in self.connection.execute("SELECT sha256 FROM run")}

    def remove(self, digests: Iterable[str]) -> None:
        """Forgets runs, and with them what only they had."""
        digests = tuple(digests)
        if not digests:
            return
        with told_apart(), self.connection as base:
            for sha256 in digests:
                found = base.execute("SELECT id FROM run WHERE sha256 = ?", (sha256,)).fetchone()
                if found is not None:
                    base.execute("DELETE FROM seen WHERE run = ?", found)
                    base.execute("DELETE FROM run WHERE id = ?", found)
            base.execute("DELETE FROM signature WHERE id NOT IN (SELECT signature FROM seen)")
            base.execute("DELETE FROM op WHERE id NOT IN (SELECT op FROM signature)")
            base.execute("DELETE FROM stack WHERE id NOT IN (SELECT stack FROM run)")
            base.execute("DELETE FROM model WHERE id NOT IN (SELECT model FROM run)")
            base.execute(
                "DELETE FROM text WHERE id NOT IN (SELECT bound FROM seen UNION SELECT library FROM seen "
                "UNION SELECT codes FROM seen UNION SELECT modules FROM seen)"
            )
            base.execute("DELETE FROM finding WHERE id NOT IN (SELECT finding FROM seen WHERE finding IS NOT NULL)")
        self._texts.clear()
        self._signatures.clear()

    def add(self, sha256: str, origin: str, digest: Digest) -> None:
        """Keeps a digest; ``commit`` makes it last. ``origin`` tells how the file begins: its address is made of it."""
        run = digest.run
        with told_apart():
            values = (
                sha256, origin, self._model(run), self._stack(digest.stack), run.created, run.audit_version, run.opset,
                not run.end, run.headline, json.dumps(_tally(digest.cases)), strict_json.dumps(encode(run)),
                digest.summary,
            )  # fmt: skip
            number = self.connection.execute(
                "INSERT INTO run(sha256, origin, model, stack, created, audit_version, opset, is_complete, headline, "
                "tally, digest, summary) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                values,
            ).lastrowid
            rows = {self._signature(case): self._seen(case) for case in digest.cases}
            self.connection.executemany(
                "INSERT INTO seen VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                ((signature, number, *row) for signature, row in rows.items()),
            )

    def commit(self) -> None:
        with told_apart():
            self.connection.commit()

    def _model(self, run: RunDigest) -> int:
        identity = (run.source,)
        insert = "INSERT INTO model(name, kind, slug) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
        return self._named("model", "name", identity, insert, (*identity, run.source_kind), slug(*identity))

    def _stack(self, stack: Stack) -> int:
        names = "slug, evidence, is_imported, backend, gpu, gpu_slug, arch, runtime, torch"
        values = (
            stack.slug, stack.evidence, stack.is_imported, stack.backend, stack.gpu, stack.gpu_slug, stack.arch,
            stack.runtime, stack.torch,
        )  # fmt: skip
        insert = f"INSERT INTO stack({names}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"
        self.connection.execute(insert, values)
        return self._number("SELECT id FROM stack WHERE slug = ?", (stack.slug,)) or 0

    def _signature(self, case: CaseDigest) -> int:
        identity = (case.key, case.op, case.phase, case.signature)
        if identity not in self._signatures:
            if len(self._signatures) > _MAX_KEPT:
                self._signatures.clear()
            insert = "INSERT INTO op(op, op_class, slug) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
            op = self._named("op", "op", (case.op,), insert, (case.op, case.op_class), op_slug(case.op))
            self._signatures[identity] = self._known(
                "SELECT id FROM signature WHERE key = ? AND op = ? AND phase = ? AND signature = ?",
                (case.key, op, case.phase, case.signature),
                "INSERT INTO signature(op, key, phase, signature, dtype, dtypes) VALUES (?, ?, ?, ?, ?, ?)",
                (op, case.key, case.phase, case.signature, case.dtype, " ".join(case.dtypes)),
            )
        return self._signatures[identity]

    def _named(
        self, table: str, column: str, identity: tuple[str], insert: str, values: tuple[str, ...], short: str
    ) -> int:
        """The number of a thing with a slug. Names can be made to share a short one; then a longer tells them apart."""
        select = f"SELECT id FROM {table} WHERE {column} = ?"
        for candidate in (short, slug(*identity, digits=64)):
            if (number := self._number(select, identity)) is not None:
                return number
            self.connection.execute(insert, (*values, candidate))
        return self._number(select, identity) or 0

    def _seen(self, case: CaseDigest) -> tuple[float | None, ...]:
        bound, library, codes, modules = (
            self._text(text) for text in (case.bound, case.library, " ".join(case.codes), "\n".join(case.modules))
        )
        finding = None if case.finding is None else self._finding(case.finding)
        return (
            STATUS_NUMBERS[case.status], case.n_calls, case.worst_ratio, case.allowance, case.device_us, case.floor_us,
            case.total_us, bound, library, codes, finding, modules,
        )  # fmt: skip

    def _finding(self, finding: FindingDigest) -> int:
        known = finding.known or KnownRow("", "", "")
        values = (
            finding.message, finding.code, STATUS_NUMBERS[finding.status], known.title, known.link, known.remedy
        )  # fmt: skip
        return self._known(
            "SELECT id FROM finding WHERE message = ? AND code = ? AND status = ? AND title = ? AND link = ? "
            "AND remedy = ?",
            values,
            "INSERT INTO finding(message, code, status, title, link, remedy) VALUES (?, ?, ?, ?, ?, ?)",
            values,
        )

    def _text(self, text: str) -> int:
        if text not in self._texts:
            if len(self._texts) > _MAX_KEPT:
                self._texts.clear()
            self._texts[text] = self._known(
                "SELECT id FROM text WHERE text = ?", (text,), "INSERT INTO text(text) VALUES (?)", (text,)
            )
        return self._texts[text]

    def _known(self, select: str, identity: tuple[object, ...], insert: str, values: tuple[object, ...]) -> int:
        """The row's number; the row is made where there is none."""
        found = self._number(select, identity)
        return found if found is not None else int(self.connection.execute(insert, values).lastrowid or 0)

    def _number(self, select: str, identity: tuple[object, ...]) -> int | None:
        found = self.connection.execute(select, identity).fetchone()
        return None if found is None else int(found[0])


def _tally(cases: Iterable[CaseDigest]) -> list[tuple[Status, int]]:
    counts = Counter(case.status for case in cases)
    return [(status, counts[status]) for status in READING_ORDER if counts[status]]


def _connected(path: Path | None) -> sqlite3.Connection:
    """An empty name is a temporary file of SQLite's own."""
    connection = sqlite3.connect("" if path is None else path, isolation_level="DEFERRED")
    connection.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute("PRAGMA temp_store = FILE")
    return connection


def _facts(connection: sqlite3.Connection) -> dict[str, str]:
    return dict(connection.execute("SELECT name, value FROM fact"))


@contextlib.contextmanager
def told_apart() -> Iterator[None]:
    """A full disk or a damaged file, in our words."""
    try:
        yield
    except sqlite3.Error as error:
        raise UnfinishedError(
            f"cannot work with the data base of the site: {error}; free space, or choose another folder with --cache",
            "unusable-cache",
        ) from error
