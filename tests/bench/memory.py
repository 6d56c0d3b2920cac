"""Peak memory of auditing one large case: the parent, and the larger of its children, sampled while it runs."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

from audit.codec import case_key
from audit.replay.engine import ReplaySettings
from audit.replay.pool import Pool
from audit.schema import Case, TensorSpec, Values
from tests.bench.lines import Line

#: Rows and columns: three matrices of 64 MiB in float32.
SIDE = 4096
INTERVAL_S = 0.02


def measure() -> Iterator[Line]:
    case = large_case()
    operands = 2 * SIDE * SIDE * 4
    with Pool(ReplaySettings(device="sim")) as pool:
        pool.device_info()
        before = total_resident()
        with PeakSampler() as sampler:
            kinds = [type(event).__name__ for event in pool.replay([case])]
    how = f"float32 product of {SIDE} x {SIDE}, {operands >> 20} MiB of operands, sim; all processes of the audit"
    assert kinds[-1] == "Measurement", kinds  # a lost device would make the number meaningless
    yield Line("peak memory of a large case", f"{sampler.peak / 2**20:.0f} MiB", how)
    yield Line("of which before the case", f"{before / 2**20:.0f} MiB", "torch loaded in three processes")
    yield Line("growth / operands", f"{(sampler.peak - before) / operands:.1f}", how)


def large_case() -> Case:
    specs = tuple(TensorSpec((SIDE, SIDE), (SIDE, 1), "float32", extent=SIDE * SIDE, storage=i) for i in range(2))
    normal = Values(n_sampled=1, minimum=-4.0, maximum=4.0, mean=0.0, std=1.0)
    key = case_key("aten::mm.default", specs, (), "forward", None)
    return Case(key, "aten::mm.default", specs, values={0: normal, 1: normal})


class PeakSampler:
    """Largest sum of resident memory of this process and its descendants, in bytes, looked at every 20 ms."""

    def __init__(self) -> None:
        self.peak = 0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> PeakSampler:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _sample(self) -> None:
        while not self._done.wait(INTERVAL_S):
            self.peak = max(self.peak, total_resident())


def total_resident() -> int:
    """Bytes resident in this process and all its descendants; pages that they share count more than once."""
    return sum(resident(pid) for pid in family(os.getpid()))


def family(pid: int) -> list[int]:
    try:
        children = [
            int(child)
            for task in Path(f"/proc/{pid}/task").iterdir()
            for child in (task / "children").read_text().split()
        ]
    except OSError:  # it ended meanwhile
        return []
    return [pid, *(descendant for child in children for descendant in family(child))]


def resident(pid: int) -> int:
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, IndexError):  # it ended meanwhile
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")
