"""What a waiting person sees: a live bar on a terminal, a line now and then in a log, with counts by status.

Everything goes to stderr; stdout is for results. Each measurement is judged as it arrives, so that a partial verdict
stands there long before the audit ends.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from time import monotonic
from types import TracebackType

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.progress import (
    Progress as Bar,
)

from audit.rules.judge import judge
from audit.run_records import Run, RunHeader
from audit.schema import STATUSES, Case, Measurement

#: In a log, a line each so many seconds: the first partial verdict has to stand there within a minute.
LOG_INTERVAL_S = 20.0


class Progress:
    """Listens to a run. ``quiet`` prints nothing."""

    def __init__(self, quiet: bool = False) -> None:
        self._console = Console(stderr=True, quiet=quiet)
        self._bar = Bar(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=self._console,
            transient=True,
            disable=quiet or not self._console.is_terminal,
        )
        self._task = self._bar.add_task("", total=None, visible=False)
        self._cases: dict[str, Case] = {}
        self._header: RunHeader | None = None
        self._counts: Counter[str] = Counter()
        self._n_waiting = 0
        self._n_done = 0
        self._last_line = monotonic()

    def __enter__(self) -> Progress:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def phase(self, text: str) -> None:
        """Says what begins now."""
        self._console.print(text, highlight=False, markup=False)

    def replaying(self, header: RunHeader, cases: Sequence[Case], waiting: Sequence[Case]) -> None:
        """Replay begins: ``waiting`` of ``cases`` are still to be measured."""
        self._header, self._cases, self._n_waiting = header, {case.key: case for case in cases}, len(waiting)
        already = f", {len(cases) - len(waiting)} measured before" if len(waiting) < len(cases) else ""
        self.phase(f"replaying {len(waiting)} cases on {header.device.name} ({header.evidence}){already}")
        self._bar.update(self._task, total=len(waiting), visible=True, description="replay")

    def measured(self, measurement: Measurement) -> None:
        self._n_done += 1
        if self._header is not None:
            alone = Run(self._header, (self._cases[measurement.key],), {measurement.key: measurement})
            self._counts[judge(alone).verdicts[0].status] += 1
        self._bar.update(self._task, completed=self._n_done, description=self._summary())
        if not self._console.is_terminal and monotonic() - self._last_line > LOG_INTERVAL_S:
            self._last_line = monotonic()
            self.phase(f"{self._n_done} of {self._n_waiting} cases: {self._summary()}")

    def _summary(self) -> str:
        return ", ".join(f"{self._counts[status]} {status}" for status in STATUSES if self._counts[status]) or "replay"
