"""Rows of device time: by library and sort of work, of kernels without a case, and beside another device."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from audit.report import text
from audit.rules.device_time import device_time_by_library
from audit.schema import Kernel
from audit.verdicts import Judgement, SideBySide, SideRow

#: Rows shown of each list of a comparison, and kernels of what has no case; the files hold all.
MAX_SIDE_ROWS = 40
MAX_KERNELS = 12
#: Backends whose kernels have times of a GPU.
_TIMED = ("hip", "cuda")


@dataclass(frozen=True)
class TimeRow:
    """An amount of device time; ``share`` is of all that the run's kernels took."""

    name: str
    work: str
    us: float
    share: str
    count: int


@dataclass(frozen=True)
class UnownedRow:
    """Device time that no case stands for, and its heaviest kernels."""

    what: str
    why: str
    us: float
    share: str
    kernels: tuple[Kernel, ...]


def library_rows(judgement: Judgement) -> list[TimeRow]:
    """Largest first; empty where no GPU's kernels were timed."""
    if judgement.run.header.device.backend not in _TIMED:
        return []
    shares = device_time_by_library(judgement.run)
    total = sum(share.us for share in shares)
    return [
        TimeRow(
            share.library, share.category.replace("_", " "), share.us, text.share_text(share.us, total), share.count
        )
        for share in shares
    ]


def library_totals(judgement: Judgement) -> list[TimeRow]:
    """``library_rows`` with all work of a library together."""
    sums: dict[str, tuple[float, int]] = {}
    for row in library_rows(judgement):
        us, count = sums.get(row.name, (0.0, 0))
        sums[row.name] = (us + row.us, count + row.count)
    total = sum(us for us, _ in sums.values())
    ranked = sorted(sums.items(), key=lambda item: (-item[1][0], item[0]))
    return [TimeRow(name, "", us, text.share_text(us, total), count) for name, (us, count) in ranked]


def unowned_rows(judgement: Judgement) -> list[UnownedRow]:
    """What is not audited and took device time, largest first."""
    total = sum(row.us for row in library_rows(judgement))
    rows = [
        UnownedRow(item.what, item.reason, us, text.share_text(us, total), item.kernels)
        for item in judgement.run.header.not_audited
        if (us := sum(kernel.us for kernel in item.kernels)) > 0
    ]
    return sorted(rows, key=lambda row: -row.us)


def sides(beside: SideBySide) -> tuple[list[SideRow], list[SideRow]]:
    """(what costs this device more, dearest first; what costs it less, largest gain first)."""
    dearer = [row for row in beside.rows if row.cost_us > 0]
    cheaper = [row for row in reversed(beside.rows) if row.cost_us < 0]
    return dearer, cheaper


def ratio_text(row: SideRow) -> str:
    """``27.9×`` where a call takes so many times as long here, ``0.61×`` where it takes less."""
    if not row.here_us or not row.there_us:
        return "–"
    return text.times_text(row.here_us / row.there_us)


def cost_text(us: float) -> str:
    """With its sign: ``+13.2 ms``, ``−850 µs``."""
    return f"{'+' if us >= 0 else '−'}{text.time_text(abs(us))}"


def side_rows_by_key(rows: Iterable[SideRow]) -> dict[str, SideRow]:
    """The row that each of this run's cases is part of."""
    return {key: row for row in rows for key in row.keys}
