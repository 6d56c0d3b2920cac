"""What changed: between successive runs of a source, and between the releases that a GPU was seen with."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from sqlite3 import Connection
from typing import Any, TypeAlias

from audit import strict_json
from audit.codec import decode
from audit.dashboard.arrange import direction
from audit.dashboard.change_rows import MAX_CHANGES, CaseChange, Direction, EnvironmentChange, ReleaseChange, Transition
from audit.dashboard.digest import RunDigest
from audit.dashboard.rows import Gpu, RunRow, Stack
from audit.gate.surroundings import GROUPS, WITHOUT_WEIGHT, group_of
from audit.report.legend import READING_ORDER

_WORST_FIRST: tuple[Direction, ...] = ("worse", "better", "unknown")
_STEP = "step.before, step.after, n_common, n_worse, n_better, n_unknown, n_new, n_gone"

#: What makes the status after; of a case that is fine now what made the one before.
_REASON = "COALESCE(finding.message, 'before: ' || was.message)"
_FINDINGS = "LEFT JOIN finding ON finding.id = seen.finding LEFT JOIN finding AS was ON was.id = past.finding"

#: What stands around a run, by its number: environment, settings with weight, the version of rocm-audit.
Surroundings: TypeAlias = Callable[[int], Mapping[str, str]]


def surroundings_of(base: Connection) -> Surroundings:
    """Reads them from the data base, and keeps the last ones."""

    @lru_cache(maxsize=4096)
    def around(run: int) -> Mapping[str, str]:
        [text] = base.execute("SELECT digest FROM run WHERE id = ?", (run,)).fetchone()
        digest = decode(RunDigest, strict_json.loads(text.encode()))
        settings = {f"setting {name}": value for name, value in digest.settings if name not in WITHOUT_WEIGHT}
        return {**dict(digest.environment), **settings, "rocm-audit": digest.audit_version}

    return around


def transitions(
    base: Connection, rows: Mapping[int, RunRow], around: Surroundings, model: str, op: str, limit: int
) -> tuple[Transition, ...]:
    """See ``contents.Contents``."""
    order = "JOIN run ON run.id = step.after JOIN run AS old ON old.id = step.before "
    newest = "ORDER BY run.place DESC, old.place DESC LIMIT ?"
    if op:
        found = base.execute(
            f"SELECT {_STEP} FROM step {order}WHERE (step.after, step.before) IN (SELECT move.after, move.before "
            "FROM op JOIN signature ON signature.op = op.id JOIN move ON move.signature = signature.id "
            f"WHERE op.slug = ?) {newest}",
            (op, limit),
        )
    elif model:
        found = base.execute(
            f"SELECT {_STEP} FROM step {order}JOIN model ON model.id = run.model WHERE model.slug = ? {newest}",
            (model, limit),
        )
    else:
        found = base.execute(
            f"SELECT {_STEP} FROM step {order}WHERE n_worse + n_better + n_unknown > 0 {newest}", (limit,)
        )
    return tuple(
        Transition(
            rows[before],
            rows[after],
            _differences(around(before), around(after)),
            _moves(base, before, after, op),
            *counts,
        )
        for before, after, *counts in found.fetchall()
    )


def _differences(old: Mapping[str, str], new: Mapping[str, str]) -> tuple[EnvironmentChange, ...]:
    """By group in the order of telling, then by name."""
    found = [
        EnvironmentChange(group_of(name), name, old.get(name, ""), new.get(name, ""))
        for name in {**old, **new}
        if old.get(name, "") != new.get(name, "")
    ]
    return tuple(sorted(found, key=lambda one: (GROUPS.index(one.group), one.name)))


def _moves(base: Connection, before: int, after: int, op: str) -> tuple[CaseChange, ...]:
    rows = base.execute(
        "SELECT op.op, op.slug, signature.key, signature.signature, signature.dtype, move.status_before, "
        f"move.status_after, {_REASON} FROM move JOIN signature ON signature.id = move.signature "
        "JOIN op ON op.id = signature.op JOIN seen ON seen.signature = move.signature AND seen.run = move.after "
        "JOIN seen AS past ON past.signature = move.signature AND past.run = move.before "
        f"{_FINDINGS} WHERE move.after = ? AND move.before = ? " + ("AND op.slug = ?" if op else ""),
        (after, before, op) if op else (after, before),
    )
    return _listed(rows)[0]


def _listed(rows: Iterable[tuple[Any, ...]]) -> tuple[tuple[CaseChange, ...], Counter[Direction]]:
    """(the changes that are listed, worse ones first, all of them counted by direction)."""
    counts: Counter[Direction] = Counter()
    found = []
    for op, slug, key, signature, dtype, old, new, reason in rows:
        moved = direction(old, new)
        counts[moved] += 1
        was, is_now = READING_ORDER[old], READING_ORDER[new]
        found.append(CaseChange(op, slug, key, signature, dtype, was, is_now, reason or "", moved))
    found.sort(key=lambda one: (_WORST_FIRST.index(one.direction), one.op, one.signature, one.key))
    return tuple(found[:MAX_CHANGES]), counts


def releases(base: Connection, gpus: Iterable[Gpu], numbers: Mapping[str, int]) -> tuple[ReleaseChange, ...]:
    """See ``contents.Contents``; ``numbers`` are those of stacks by slug."""
    found = (_release(base, gpu, numbers) for gpu in gpus)
    return tuple(change for change in found if change is not None)


def _release(base: Connection, gpu: Gpu, numbers: Mapping[str, int]) -> ReleaseChange | None:
    """The newest versions with the ones next before them that they have cases in common with."""
    for after, before in itertools.combinations(reversed(gpu.stacks), 2):
        change = _between(base, gpu, before, after, (numbers[before.slug], numbers[after.slug]))
        if change.n_common:
            return change
    return None


def _between(base: Connection, gpu: Gpu, before: Stack, after: Stack, pair: tuple[int, int]) -> ReleaseChange:
    unknown = READING_ORDER.index("inconclusive")
    both = (
        "FROM newest AS old JOIN newest AS new ON new.signature = old.signature WHERE old.stack = ? AND new.stack = ?"
    )
    [n_common, n_inconclusive] = base.execute(
        f"SELECT COUNT(*), COALESCE(SUM(old.status = {unknown} OR new.status = {unknown}), 0) {both}", pair
    ).fetchone()
    [n_before, n_after] = (
        base.execute("SELECT COUNT(*) FROM newest WHERE stack = ?", (stack,)).fetchone()[0] for stack in pair
    )
    rows = base.execute(
        "SELECT op.op, op.slug, signature.key, signature.signature, signature.dtype, old.status, new.status, "
        f"{_REASON} FROM newest AS old JOIN newest AS new ON new.signature = old.signature "
        "JOIN signature ON signature.id = old.signature JOIN op ON op.id = signature.op "
        "JOIN seen ON seen.signature = new.signature AND seen.run = new.run "
        f"JOIN seen AS past ON past.signature = old.signature AND past.run = old.run {_FINDINGS} "
        "WHERE old.stack = ? AND new.stack = ? AND old.status != new.status",
        pair,
    )
    changes, counts = _listed(rows)
    return ReleaseChange(
        gpu, before, after, n_common, n_inconclusive, n_before - n_common, n_after - n_common, changes,
        counts["worse"], counts["better"], counts["unknown"],
    )  # fmt: skip
