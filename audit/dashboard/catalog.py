"""Answers to what pages ask (``contents.Contents``), out of the data base: rows are read when they are asked for."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Any

from audit import strict_json
from audit.codec import decode
from audit.dashboard import devices, history, missing
from audit.dashboard.change_rows import LeftOut, ReleaseChange, Transition, Untested
from audit.dashboard.contents import About
from audit.dashboard.database import STATUS_NUMBERS, Database
from audit.dashboard.dependence import digest_of
from audit.dashboard.devices import tally_of
from audit.dashboard.digest import RunDigest
from audit.dashboard.rows import (
    MAX_FINDINGS,
    CaseSet,
    EvidenceTally,
    Gpu,
    KnownRow,
    MatrixCell,
    ModelRow,
    Observation,
    OpFinding,
    OpOnGpu,
    OpRow,
    RunCase,
    RunPage,
    RunRow,
    Share,
    SignatureRow,
    SiteFacts,
    Stack,
    Tally,
)
from audit.report.legend import READING_ORDER
from audit.rules.coverage import worst
from audit.schema import Status

#: What stands in the columns of ``seen``, with its texts; the order of ``_seen``'s fields.
_SEEN = (
    "seen.status, seen.n_calls, seen.worst_ratio, seen.allowance, seen.device_us, seen.floor_us, seen.total_us, "
    "bound.text, library.text, codes.text, finding.message, modules.text"
)
#: CROSS JOIN keeps SQLite from beginning with these: of one run that has half of all rows it would.
_TEXTS = (
    "CROSS JOIN text AS bound ON bound.id = seen.bound CROSS JOIN text AS library ON library.id = seen.library "
    "CROSS JOIN text AS codes ON codes.id = seen.codes CROSS JOIN text AS modules ON modules.id = seen.modules "
    "LEFT JOIN finding ON finding.id = seen.finding "
)
_RUN = (
    "SELECT run.id, run.slug, model.slug, model.name, run.stack, run.created, run.date, run.clock, run.audit_version, "
    "run.is_complete, run.label, run.tally, run.opset, run.headline FROM run JOIN model ON model.id = run.model "
    "JOIN stack ON stack.id = run.stack "
)


class Catalog:
    """All runs of a site; see ``contents.Contents``. The data base was arranged (``audit.dashboard.arrange``)."""

    def __init__(self, database: Database, version: str, left_out: Iterable[LeftOut] = ()) -> None:
        self._base = database.connection
        self._version = version
        self._left_out = tuple(left_out)

    # --- all of it ----------------------------------------------------------------------------------------------

    def site(self) -> SiteFacts:
        return self._site

    @cached_property
    def _site(self) -> SiteFacts:
        one = self._base.execute(
            "SELECT (SELECT COUNT(*) FROM run), (SELECT COUNT(*) FROM op), (SELECT COUNT(*) FROM signature), "
            "(SELECT COUNT(*) FROM run WHERE clock != 'ok'), (SELECT COALESCE(MAX(date), '') FROM run)"
        ).fetchone()
        n_copies = sum(len(json.loads(copies)) for (copies,) in self._base.execute("SELECT copies FROM run"))
        return SiteFacts(
            self._version,
            one[0],
            one[1],
            one[2],
            n_copies,
            len(self._left_out),
            one[3],
            one[4],
            self._site_shares(),
        )

    def _site_shares(self) -> tuple[Share, ...]:
        levels: dict[tuple[Any, bool], list[Gpu]] = {}
        for gpu in self.gpus():
            levels.setdefault((gpu.evidence, gpu.is_imported), []).append(gpu)
        return tuple(self._share_of(gpus) for gpus in levels.values())

    def _share_of(self, gpus: list[Gpu]) -> Share:
        tally: Counter[Status] = Counter()
        for gpu in gpus:
            tally.update(dict(gpu.share.tally.by_status))
        digest = hashlib.sha256(" ".join(gpu.share.cases.version for gpu in gpus).encode()).hexdigest()[:12]
        name = gpus[0].share.cases.name if len(gpus) == 1 else f"all sources on {len(gpus)} devices"
        version = gpus[0].share.cases.version if len(gpus) == 1 else digest
        audits = tuple(sorted({one for gpu in gpus for one in gpu.share.cases.audit_versions}))
        cases = CaseSet(name, version, sum(tally.values()), audits)
        return Share(gpus[0].evidence, gpus[0].is_imported, tally_of(tally), cases)

    def left_out(self) -> tuple[LeftOut, ...]:
        return self._left_out

    def digest(self, about: About, slug: str = "") -> str:
        return digest_of(self, self._base, about, slug)

    # --- where --------------------------------------------------------------------------------------------------

    @cached_property
    def _stacks(self) -> dict[int, Stack]:
        rows = self._base.execute(
            "SELECT id, slug, evidence, is_imported, backend, gpu, gpu_slug, arch, runtime, torch FROM stack "
            "ORDER BY place"
        )
        return {number: Stack(*(*row[:2], bool(row[2]), *row[3:])) for number, *row in rows}

    def stacks(self) -> tuple[Stack, ...]:
        return tuple(self._stacks.values())

    @cached_property
    def _gpus(self) -> tuple[Gpu, ...]:
        return devices.gpus(self._base, self.stacks())

    def gpus(self) -> tuple[Gpu, ...]:
        return self._gpus

    @cached_property
    def _on_gpus(self) -> tuple[OpOnGpu, ...]:
        return devices.on_gpus(self._base, self.gpus())

    def on_gpus(self) -> tuple[OpOnGpu, ...]:
        return self._on_gpus

    # --- ops ----------------------------------------------------------------------------------------------------

    def ops(self) -> tuple[OpRow, ...]:
        return self._ops

    @cached_property
    def _ops(self) -> tuple[OpRow, ...]:
        tallies: dict[int, dict[tuple[Any, bool], Counter[Status]]] = defaultdict(lambda: defaultdict(Counter))
        for op, evidence, is_imported, status, n in self._base.execute(
            "SELECT signature.op, stack.evidence, stack.is_imported, newest.status, COUNT(*) FROM newest "
            "JOIN signature ON signature.id = newest.signature JOIN stack ON stack.id = newest.stack "
            "GROUP BY 1, 2, 3, 4 ORDER BY MIN(stack.place), 4"
        ):
            tallies[op][evidence, bool(is_imported)][READING_ORDER[status]] += n
        n_stacks = {
            (op, evidence, bool(is_imported)): n
            for op, evidence, is_imported, n in self._base.execute(
                "SELECT cell.op, stack.evidence, stack.is_imported, COUNT(DISTINCT cell.stack) FROM cell "
                "JOIN stack ON stack.id = cell.stack GROUP BY 1, 2, 3"
            )
        }
        dtypes: dict[int, list[str]] = defaultdict(list)
        for op, dtype in self._base.execute("SELECT DISTINCT op, dtype FROM signature ORDER BY op, dtype"):
            dtypes[op].append(dtype)
        rows = self._base.execute(
            "SELECT op.id, op.op, op.slug, op.op_class, (SELECT COUNT(*) FROM signature WHERE op = op.id), op.n_runs "
            "FROM op ORDER BY op.op"
        )
        return tuple(
            OpRow(
                op, slug, op_class, n_cases, n_runs, tuple(dtypes[number]),
                tuple(
                    EvidenceTally(level, imported, tally_of(tally), worst(tally), n_stacks[number, level, imported])
                    for (level, imported), tally in tallies[number].items()
                ),
            )
            for number, op, slug, op_class, n_cases, n_runs in rows
        )  # fmt: skip

    def matrix(self, op: str = "") -> Iterator[MatrixCell]:
        rows = self._base.execute(
            "SELECT op.slug, signature.dtype, stack.slug, cell.n_runs, newest.status, COUNT(*), MAX(run.date), "
            "MAX(newest.statuses LIKE '% %') FROM newest JOIN signature ON signature.id = newest.signature "
            "JOIN op ON op.id = signature.op JOIN stack ON stack.id = newest.stack JOIN run ON run.id = newest.run "
            "JOIN cell ON cell.op = op.id AND cell.dtype = signature.dtype AND cell.stack = stack.id "
            + ("WHERE op.slug = ? " if op else "")
            + "GROUP BY op.id, signature.dtype, stack.id, newest.status "
            "ORDER BY op.op, signature.dtype, stack.place, newest.status",
            (op,) if op else (),
        )
        for (slug, dtype, stack), group in itertools.groupby(rows, key=lambda row: row[:3]):
            members = list(group)
            tally = Tally(tuple((READING_ORDER[row[4]], row[5]) for row in members))
            yield MatrixCell(
                slug, dtype, stack, worst(status for status, _ in tally.by_status), tally, members[0][3],
                any(row[7] for row in members), max(row[6] for row in members),
            )  # fmt: skip

    def signatures(self, op: str) -> Iterator[SignatureRow]:
        rows = self._base.execute(
            "SELECT signature.id, signature.key, signature.signature, signature.phase, signature.dtype, "
            "signature.dtypes, newest.stack, newest.statuses, newest.n_runs, run.slug, run.date, "
            f"{_SEEN} FROM op JOIN signature ON signature.op = op.id "
            "JOIN newest ON newest.signature = signature.id JOIN run ON run.id = newest.run "
            "JOIN seen ON seen.signature = newest.signature AND seen.run = newest.run "
            f"JOIN stack ON stack.id = newest.stack {_TEXTS} WHERE op.slug = ? "
            "ORDER BY signature.phase, signature.dtype, signature.signature, signature.key, stack.place",
            (op,),
        )
        for _, group in itertools.groupby(rows, key=lambda row: row[0]):
            members = list(group)
            _, key, signature, phase, dtype, dtypes = members[0][:6]
            observations = tuple(self._observation(row[6:11], row[11:]) for row in members)
            yield SignatureRow(key, signature, phase, dtype, tuple(dtypes.split()), observations)

    def _observation(self, where: tuple[Any, ...], seen: tuple[Any, ...]) -> Observation:
        stack, statuses, n_runs, run, date = where
        status, n_calls, ratio, allowance, device_us, floor_us, _, bound, library, codes, reason, _ = seen
        return Observation(
            self._stacks[stack].slug, READING_ORDER[status],
            tuple(READING_ORDER[int(number)] for number in statuses.split()), n_runs, run, date, n_calls, ratio,
            allowance, device_us, floor_us, bound, library, tuple(codes.split()), reason or "",
        )  # fmt: skip

    def findings(self, op: str) -> tuple[OpFinding, ...]:
        rows = self._base.execute(
            "SELECT finding.id, finding.code, finding.status, finding.message, finding.title, finding.link, "
            "finding.remedy, stack.slug, COUNT(*), MIN(signature.key), MIN(stack.place) AS place FROM op "
            "JOIN signature ON signature.op = op.id JOIN newest ON newest.signature = signature.id "
            "JOIN seen ON seen.signature = newest.signature AND seen.run = newest.run "
            "JOIN finding ON finding.id = seen.finding JOIN stack ON stack.id = newest.stack WHERE op.slug = ? "
            "GROUP BY finding.id, stack.id ORDER BY finding.id, place",
            (op,),
        )
        found = [
            OpFinding(
                one[1], READING_ORDER[one[2]], one[3], KnownRow(*one[4:7]) if one[4] or one[5] else None,
                sum(row[8] for row in members), tuple(row[7] for row in members), min(row[9] for row in members),
            )
            for _, group in itertools.groupby(rows, key=lambda row: row[0])
            for members in [list(group)]
            for one in members[:1]
        ]  # fmt: skip
        found.sort(key=lambda one: (STATUS_NUMBERS[one.status], -one.n_cases, one.code, one.message))
        return tuple(found[:MAX_FINDINGS])

    # --- runs and models ----------------------------------------------------------------------------------------

    def models(self) -> tuple[ModelRow, ...]:
        rows = self._base.execute(
            "SELECT model.slug, model.name, model.kind, COUNT(*), COUNT(DISTINCT run.opset) FROM model "
            "JOIN run ON run.model = model.id GROUP BY model.id ORDER BY model.name, model.slug"
        ).fetchall()
        newest: dict[str, list[RunRow]] = defaultdict(list)
        for row in self._run_rows(
            "WHERE run.place IN (SELECT MAX(run.place) FROM run JOIN stack ON stack.id = run.stack "
            "GROUP BY run.model, stack.gpu_slug) ORDER BY stack.place"
        ):
            newest[row.model_slug].append(row)
        return tuple(
            ModelRow(slug, name, kind, n_runs, n_sets, tuple(newest[slug])) for slug, name, kind, n_runs, n_sets in rows
        )

    def runs(self, model: str = "", gpu: str = "") -> Iterator[RunRow]:
        wanted = [("model.slug = ?", model), ("stack.gpu_slug = ?", gpu)]
        conditions = [condition for condition, value in wanted if value]
        where = f"WHERE {' AND '.join(conditions)} " if conditions else ""
        return self._run_rows(f"{where}ORDER BY run.place DESC", *(value for _, value in wanted if value))

    def _run_rows(self, where: str, *values: Any) -> Iterator[RunRow]:
        return (self.run_row(row) for row in self._base.execute(_RUN + where, values))

    def run_row(self, row: tuple[Any, ...]) -> RunRow:
        """Of the columns of ``_RUN``."""
        _, slug, model, source, stack, created, date, clock, version, complete, label, tally, opset, headline = row
        counts = Tally(tuple((status, n) for status, n in json.loads(tally)))
        where = self._stacks[stack]
        share = Share(where.evidence, where.is_imported, counts, CaseSet(source, opset, counts.total, (version,)))
        return RunRow(slug, model, source, where, created, date, clock, version, bool(complete), label, share, headline)

    @cached_property
    def _all_runs(self) -> dict[int, RunRow]:
        """By number."""
        return {row[0]: self.run_row(row) for row in self._base.execute(_RUN)}

    def run(self, run: str) -> RunPage:
        row = self._base.execute(f"{_RUN}WHERE run.slug = ?", (run,)).fetchone()
        if row is None:
            raise KeyError(run)
        sha256, copies, text = self._base.execute(
            "SELECT sha256, copies, digest FROM run WHERE id = ?", (row[0],)
        ).fetchone()
        digest = run_digest(text)
        return RunPage(
            self.run_row(row), digest.source_kind, Tally(digest.ops), digest.environment, digest.settings,
            digest.root_causes, digest.not_audited, digest.n_recorded, digest.end, digest.warnings,
            tuple(json.loads(copies)), sha256,
        )  # fmt: skip

    def summary(self, run: str) -> bytes:
        found = self._base.execute("SELECT summary FROM run WHERE slug = ?", (run,)).fetchone()
        if found is None:
            raise KeyError(run)
        return bytes(found[0])

    def cases(self, run: str) -> Iterator[RunCase]:
        rows = self._base.execute(
            "SELECT signature.key, op.op, op.slug, signature.signature, signature.phase, signature.dtype, "
            f"{_SEEN} FROM run JOIN seen ON seen.run = run.id CROSS JOIN signature ON signature.id = seen.signature "
            f"CROSS JOIN op ON op.id = signature.op {_TEXTS} WHERE run.slug = ? "
            "ORDER BY seen.status, COALESCE(seen.total_us, 0) DESC, op.op, signature.key",
            (run,),
        )
        for key, op, slug, signature, phase, dtype, *seen in rows:
            status, n_calls, ratio, allowance, us, floor, total, bound, library, codes, reason, names = seen
            modules = tuple(names.split("\n")) if names else ()
            yield RunCase(
                key, op, slug, signature, phase, dtype, READING_ORDER[status], n_calls, ratio, allowance, us, floor,
                total, bound, library, tuple(codes.split()), reason or "", modules,
            )  # fmt: skip

    # --- what changed, what is missing --------------------------------------------------------------------------

    def transitions(self, model: str = "", op: str = "", limit: int = 200) -> tuple[Transition, ...]:
        return history.transitions(self._base, self._all_runs, self._surroundings, model, op, limit)

    @cached_property
    def _surroundings(self) -> history.Surroundings:
        return history.surroundings_of(self._base)

    def releases(self) -> tuple[ReleaseChange, ...]:
        return self._releases

    @cached_property
    def _releases(self) -> tuple[ReleaseChange, ...]:
        numbers = {stack.slug: number for number, stack in self._stacks.items()}
        return history.releases(self._base, self.gpus(), numbers)

    def untested(self) -> tuple[Untested, ...]:
        return self._untested

    @cached_property
    def _untested(self) -> tuple[Untested, ...]:
        return missing.untested(self._base, self.gpus())


def run_digest(text: str) -> RunDigest:
    """What the data base keeps of a run beside its columns."""
    return decode(RunDigest, strict_json.loads(text.encode()))
