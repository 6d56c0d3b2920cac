"""The devices of a site: each GPU at one evidence level with its stacks, and what its cases say, each case once."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable
from sqlite3 import Connection

from audit.dashboard.digest import opset_version
from audit.dashboard.rows import CaseSet, Gpu, OpOnGpu, Share, Stack, Tally
from audit.report.legend import READING_ORDER
from audit.schema import Status

#: Each case of a GPU with its newest run there: SQLite takes the other columns from the row with the largest place.
_NEWEST = (
    "MAX(run.place) FROM newest JOIN stack ON stack.id = newest.stack JOIN run ON run.id = newest.run "
    "JOIN model ON model.id = run.model JOIN signature ON signature.id = newest.signature "
    "JOIN op ON op.id = signature.op WHERE stack.gpu_slug = ? GROUP BY newest.signature"
)


def gpus(base: Connection, stacks: Iterable[Stack]) -> tuple[Gpu, ...]:
    """See ``contents.Contents``; ``stacks`` are in their order."""
    by_slug: dict[str, list[Stack]] = {}
    for stack in stacks:
        by_slug.setdefault(stack.gpu_slug, []).append(stack)
    n_runs = dict(
        base.execute("SELECT gpu_slug, COUNT(*) FROM run JOIN stack ON stack.id = run.stack GROUP BY gpu_slug")
    )
    return tuple(
        Gpu(
            slug, of_gpu[0].gpu, of_gpu[0].arch, of_gpu[0].evidence, of_gpu[0].is_imported, tuple(of_gpu), n_runs[slug],
            _share(base, of_gpu[0]),
        )
        for slug, of_gpu in by_slug.items()
    )  # fmt: skip


def _share(base: Connection, stack: Stack) -> Share:
    """Each case once, with its newest status on the GPU, whatever the versions."""
    rows = base.execute(
        "SELECT signature.key, op.op, signature.phase, newest.status, run.audit_version, model.name, " + _NEWEST,
        (stack.gpu_slug,),
    )
    tally: Counter[Status] = Counter()
    audits, sources, identities = set(), set(), []
    for key, op, phase, status, audit_version, source, _ in rows:
        tally[READING_ORDER[status]] += 1
        audits.add(audit_version)
        sources.add(source)
        identities.append((key, op, phase))
    name = next(iter(sources)) if len(sources) == 1 else f"{len(sources) or 'its'} sources"
    cases = CaseSet(name, opset_version(identities), sum(tally.values()), tuple(sorted(audits)))
    return Share(stack.evidence, stack.is_imported, tally_of(tally), cases)


def on_gpus(base: Connection, of_site: Iterable[Gpu]) -> tuple[OpOnGpu, ...]:
    """See ``contents.Contents``."""
    return tuple(one for gpu in of_site for one in _ops_on(base, gpu))


def _ops_on(base: Connection, gpu: Gpu) -> Iterable[OpOnGpu]:
    rows = base.execute(
        "SELECT op, slug, op_class, status, COUNT(*) FROM "
        f"(SELECT op.op, op.slug, op.op_class, newest.status, {_NEWEST}) GROUP BY op, status ORDER BY op, status",
        (gpu.slug,),
    )
    for (op, slug, op_class), group in itertools.groupby(rows, key=lambda row: row[:3]):
        yield OpOnGpu(gpu.slug, op, slug, op_class, Tally(tuple((READING_ORDER[row[3]], row[4]) for row in group)))


def tally_of(counts: Counter[Status]) -> Tally:
    """In reading order, zeros left out."""
    return Tally(tuple((status, counts[status]) for status in READING_ORDER if counts[status]))
