"""What was never tested: ops that no case is of, dtypes that other GPUs have, cases that could not be judged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from sqlite3 import Connection

from audit.dashboard.change_rows import UnknownCases, Untested
from audit.dashboard.database import STATUS_NUMBERS
from audit.dashboard.rows import Gpu
from audit.knowledge.dispatch import load_dispatch
from audit.knowledge.op_classes import class_of


def known_ops() -> tuple[tuple[str, ...], str]:
    """(ops with a GPU kernel of their own, the torch that the table is of).

    Left out are those that write into an argument they are given, which a trace names otherwise, and cuDNN's, which
    AMD has not.
    """
    table = load_dispatch()
    found = (
        op
        for op, entry in table.items()
        if entry.kind == "cuda" and not op.partition(".")[2].endswith("out") and "cudnn" not in op
    )
    return tuple(sorted(found)), max((entry.torch_version for entry in table.values()), default="")


def untested(base: Connection, gpus: Iterable[Gpu]) -> tuple[Untested, ...]:
    """See ``contents.Contents``."""
    known, version = known_ops()
    pairs = {tuple(row) for row in base.execute("SELECT op.op, dtype FROM signature JOIN op ON op.id = signature.op")}
    found = []
    for gpu in gpus:
        here = {
            tuple(row)
            for row in base.execute(
                "SELECT DISTINCT op.op, cell.dtype FROM cell JOIN op ON op.id = cell.op "
                "JOIN stack ON stack.id = cell.stack WHERE stack.gpu_slug = ?",
                (gpu.slug,),
            )
        }
        seen = {op for op, _ in here}
        ops = tuple(op for op in known if op not in seen)
        elsewhere = tuple(sorted((op, dtype) for op, dtype in pairs - here))
        found.append(
            Untested(gpu, version, len(known), ops, _by_class(known, ops), elsewhere, _inconclusive(base, gpu))
        )
    return tuple(found)


def _by_class(known: Iterable[str], missing: Iterable[str]) -> tuple[tuple[str, int, int], ...]:
    """(class, how many of its ops are missing, how many are known), by class."""
    counts = Counter(map(class_of, missing))
    return tuple((name, counts[name], n) for name, n in sorted(Counter(map(class_of, known)).items()))


def _inconclusive(base: Connection, gpu: Gpu) -> tuple[UnknownCases, ...]:
    """By op, those with most cases first; a case is counted once for each stack of the GPU."""
    rows = base.execute(
        "SELECT op.op, op.slug, COALESCE(finding.message, ''), COUNT(*) FROM newest "
        "JOIN stack ON stack.id = newest.stack JOIN signature ON signature.id = newest.signature "
        "JOIN op ON op.id = signature.op JOIN seen ON seen.signature = newest.signature AND seen.run = newest.run "
        "LEFT JOIN finding ON finding.id = seen.finding WHERE stack.gpu_slug = ? AND newest.status = ? "
        "GROUP BY op.id, finding.id ORDER BY op.op, 4 DESC, 3",
        (gpu.slug, STATUS_NUMBERS["inconclusive"]),
    )
    by_op: dict[str, UnknownCases] = {}
    for op, slug, reason, n in rows:
        first = by_op.get(op)
        by_op[op] = UnknownCases(op, slug, n + (first.n_cases if first else 0), first.reason if first else reason)
    return tuple(sorted(by_op.values(), key=lambda one: (-one.n_cases, one.op)))
