"""What works where in ten seconds: ops by the kind of work that they do, on each device."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from audit.dashboard.change_rows import Untested
from audit.dashboard.pages.grid import GridCell
from audit.dashboard.rows import Gpu, OpOnGpu, Tally
from audit.report.legend import READING_ORDER
from audit.rules.coverage import worst
from audit.schema import Status

#: Classes of the knowledge base in words, what most programs stand or fall by first.
KINDS: Mapping[str, str] = {
    "gemm": "Matrix products",
    "attention": "Attention",
    "convolution": "Convolutions",
    "normalization": "Normalization",
    "softmax": "Softmax",
    "recurrent": "Recurrent layers",
    "loss": "Losses",
    "optimizer": "Optimizer steps",
    "reduction": "Reductions",
    "elementwise": "Elementwise",
    "gather": "Gather, embedding",
    "scatter": "Scatter",
    "sort": "Sort, top-k",
    "pooling": "Pooling, resampling",
    "random": "Random numbers",
    "linalg": "Linear algebra",
    "fft": "Fourier transforms",
    "copy": "Copies, casts, fills",
    "view": "Views",
    "other": "Others",
}
#: Columns of a table of devices.
MAX_DEVICES = 8
#: Simulated and predicted devices that are not folded away.
SHOWN_SIMULATED = 3
#: Ops with one status that are named beside a device.
NAMED = 4


@dataclass(frozen=True)
class KindRow:
    """Ops of one kind; ``cells`` by the slugs of devices."""

    kind: str
    label: str
    n_ops: int
    cells: Mapping[str, GridCell]


@dataclass(frozen=True)
class Trouble:
    """Ops whose worst case on a device has this status; the first few by (name, slug)."""

    status: Status
    n_ops: int
    named: tuple[tuple[str, str], ...]


def kinds_of(kinds: Iterable[str]) -> list[tuple[str, str]]:
    """(class, its words) of those that are there, to choose from."""
    present = set(kinds)
    return [(kind, label) for kind, label in KINDS.items() if kind in present]


def kind_rows(found: Iterable[OpOnGpu]) -> list[KindRow]:
    """One for each kind that was seen, in the order of ``KINDS``."""
    cells: dict[str, dict[str, Counter[Status]]] = defaultdict(lambda: defaultdict(Counter))
    ops: dict[str, set[str]] = defaultdict(set)
    for one in found:
        cells[one.op_class][one.gpu_slug].update(dict(one.tally.by_status))
        ops[one.op_class].add(one.op_slug)
    return [
        KindRow(kind, label, len(ops[kind]), {gpu: _cell(tally) for gpu, tally in cells[kind].items()})
        for kind, label in KINDS.items()
        if kind in cells
    ]


def all_kinds(gpus: Iterable[Gpu]) -> dict[str, GridCell]:
    """Of each device all cases: the same counts as in its share."""
    return {gpu.slug: _cell(Counter(dict(gpu.share.tally.by_status))) for gpu in gpus if gpu.share.tally.total}


def _cell(counts: Counter[Status]) -> GridCell:
    tally = Tally(tuple((status, counts[status]) for status in READING_ORDER if counts[status]))
    return GridCell(
        0, worst(status for status, _ in tally.by_status), tally.total, tally.n_with_finding,
        tally.count("inconclusive"), varies=False,
    )  # fmt: skip


def shown_devices(gpus: Iterable[Gpu], n_simulated: int) -> list[Gpu]:
    """Those with cases: what ran on a GPU, and a few that did not, the first of each level before the others."""
    gpus = [gpu for gpu in gpus if gpu.share.tally.total]
    real = [gpu for gpu in gpus if gpu.evidence in ("measured", "stand-in")]
    others = [gpu for gpu in gpus if gpu not in real]
    first = {gpu.evidence: gpu for gpu in reversed(others)}
    others.sort(key=lambda gpu: gpu is not first[gpu.evidence])
    return (real + others[:n_simulated])[:MAX_DEVICES]


def untested_kinds(untested: Iterable[Untested]) -> list[tuple[str, int, dict[str, int]]]:
    """(words of a class, its known ops, how many of them are in no run by the slugs of devices), most known first."""
    counts: dict[str, dict[str, int]] = defaultdict(dict)
    known: dict[str, int] = {}
    for item in untested:
        for kind, n, n_known in item.by_class:
            counts[kind][item.gpu.slug] = n
            known[kind] = n_known
    rows = [(KINDS[kind], known[kind], counts[kind]) for kind in KINDS if kind in known]
    return sorted(rows, key=lambda row: -row[1])


def troubles(found: Iterable[OpOnGpu]) -> dict[str, list[Trouble]]:
    """By the slugs of devices, worst first; what nobody could judge is none."""
    ops: dict[tuple[str, Status], list[OpOnGpu]] = defaultdict(list)
    for one in found:
        ops[one.gpu_slug, worst(status for status, _ in one.tally.by_status)].append(one)
    by_device: dict[str, list[Trouble]] = defaultdict(list)
    for status in READING_ORDER[:4]:
        for (gpu, of_ops), members in ops.items():
            if of_ops == status:
                members = sorted(members, key=lambda one: (-one.tally.count(status), one.op))
                named = tuple((one.op, one.op_slug) for one in members[:NAMED])
                by_device[gpu].append(Trouble(status, len(members), named))
    return by_device
