"""What a waiting person sees: a panel on a terminal, a line now and then in a log, with counts by status.

Everything goes to stderr; stdout is for results. Each measurement is judged as it arrives, so that a partial verdict
stands there long before the audit ends. What needs other cases to be judged is known at the end only.
"""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from time import monotonic
from types import TracebackType

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from audit.report.terminal import counts_text, finding_text
from audit.report.text import one_line, short_op
from audit.rules.judge import judge
from audit.run_records import Run, RunHeader
from audit.schema import Case, Measurement, Status
from audit.terminal import has_colour, is_live

#: In a log, a line each so many seconds: the first partial verdict has to stand there within a minute.
LOG_INTERVAL_S = 20.0
#: A time that is left is told after so many cases: the first ones load libraries, and say little of the others.
MIN_DONE = 3


@dataclass
class Stage:
    """A part of the audit that takes its time: ``n_done`` of ``total`` items, until ``ends`` at most (monotonic)."""

    title: str
    unit: str
    began: float
    total: int | None = None
    ends: float = math.inf
    n_done: int = 0
    now: str = ""

    def left_s(self, time: float) -> float | None:
        """Seconds that the rest takes at the pace so far; None: not known yet."""
        if self.total is None or self.n_done < MIN_DONE:
            return None
        return (time - self.began) / self.n_done * max(self.total - self.n_done, 0)


class Progress:
    """Listens to an audit. ``quiet`` prints nothing, ``verbose`` a line for each case as it ends."""

    def __init__(self, quiet: bool = False, verbose: bool = False) -> None:
        self._is_quiet, self._is_verbose = quiet, verbose
        self._stage: Stage | None = None
        self._cases: Mapping[str, Case] = {}
        self._header: RunHeader | None = None
        self._counts: Counter[Status] = Counter()
        self._last_line = monotonic()
        is_terminal, colour = is_live(sys.stderr), has_colour(sys.stderr)
        self._console = Console(
            stderr=True, quiet=quiet, highlight=False, markup=False, emoji=False, soft_wrap=True,
            force_terminal=is_terminal or colour, no_color=not colour,
        )  # fmt: skip
        self._live = self._new_live() if is_terminal and not quiet else None

    def _new_live(self) -> Live:
        """Draws the panel at once, and again and again while it is started."""
        return Live(
            console=self._console, transient=True, refresh_per_second=4, get_renderable=self._panel,
            redirect_stdout=False, redirect_stderr=False,
        )  # fmt: skip

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end_stage()

    def phase(self, text: str) -> None:
        """Says what begins now; nothing is counted in it."""
        self._end_stage()
        self._say(text)

    def replaying(
        self,
        header: RunHeader,
        cases: Sequence[Case],
        waiting: Sequence[Case],
        measured: Mapping[str, Measurement] | None = None,
        deadline: float = math.inf,
    ) -> None:
        """Replay begins: ``waiting`` of ``cases`` are still to be measured, at most until ``deadline`` (monotonic).

        ``measured``: what was measured before, to be counted with the rest.
        """
        self._header, self._cases = header, {case.key: case for case in cases}
        already = f", {len(cases) - len(waiting)} measured before" if len(waiting) < len(cases) else ""
        self.phase(f"replaying {len(waiting)} cases on {header.device.name} ({header.evidence}){already}")
        if measured and not self._is_quiet:
            before = tuple(case for case in cases if case.key in measured)
            self._counts.update(verdict.status for verdict in judge(Run(header, before, measured)).verdicts)
        self._begin(Stage("replay", "cases", monotonic(), len(waiting), deadline))

    def trying(self, n_cases: int, deadline: float) -> None:
        """Alternatives to ``n_cases`` are tried, at most until ``deadline`` (monotonic)."""
        self.phase(f"trying alternatives to {n_cases} {'case' if n_cases == 1 else 'cases'} with findings")
        self._begin(Stage("alternatives", "tried", monotonic(), ends=deadline))

    def playing(self, text: str) -> None:
        """A step is played whole, call by call."""
        self.phase(text)
        self._begin(Stage("step", "calls", monotonic()))

    def started(self, op: str) -> None:
        """``op`` is under way."""
        if self._stage is not None:
            self._stage.now = op
            self._line_now_and_then()

    def done(self) -> None:
        """One more item of the stage."""
        if self._stage is not None:
            self._stage.n_done += 1
            self._line_now_and_then()

    def measured(self, measurement: Measurement) -> None:
        """One more case, which is judged by itself."""
        if self._header is not None and not self._is_quiet:
            alone = Run(self._header, (self._cases[measurement.key],), {measurement.key: measurement})
            verdict = judge(alone).verdicts[0]
            self._counts[verdict.status] += 1
            if self._is_verbose:
                self._console.print(finding_text(verdict))
        self.done()

    # --- what is drawn -----------------------------------------------------------------------------------------------

    def _begin(self, stage: Stage) -> None:
        self._stage = stage
        self._last_line = monotonic()
        if self._live is not None:
            self._live.start(refresh=True)

    def _end_stage(self) -> None:
        """The panel goes; what was counted stays as a line."""
        stage, self._stage = self._stage, None
        if self._live is not None:
            self._live.stop()
        if stage is not None and stage.n_done:
            self._console.print(self._line(stage, monotonic(), is_over=True))
            self._counts.clear()

    def _say(self, text: str) -> None:
        self._console.print(Text(one_line(text, 1000)))

    def _line_now_and_then(self) -> None:
        time = monotonic()
        if self._live is None and self._stage is not None and time - self._last_line > LOG_INTERVAL_S:
            self._last_line = time
            self._console.print(self._line(self._stage, time))

    def _line(self, stage: Stage, time: float, is_over: bool = False) -> Text:
        """How far it is, and the counts, on one line."""
        parts = [_how_far(stage), clock(time - stage.began)]
        line = Text(", ".join([*parts, *([] if is_over else _left(stage, time))]))
        if self._counts:
            line.append(": ").append_text(counts_text(self._counts, ", "))
        if stage.now and not is_over:
            line.append(f"; now {_op(stage)}")
        return line

    def _panel(self) -> RenderableType:
        """Two lines: a bar with times; counts and what is under way."""
        stage, time = self._stage, monotonic()
        if stage is None:
            return Text("")
        first = Table.grid(padding=(0, 2), expand=False)
        for _ in range(3):
            first.add_column(no_wrap=True, overflow="ellipsis")
        bar = ProgressBar(stage.total, stage.n_done, width=24 if self._console.width > 90 else 8, pulse=not stage.total)
        first.add_row(stage.title, bar, ", ".join([_how_far(stage), clock(time - stage.began), *_left(stage, time)]))
        second = counts_text(self._counts, "  ")
        if stage.now:
            second.append(f"{'  ' if self._counts else ''}now {_op(stage)}", "dim")
        second.truncate(self._console.width, overflow="ellipsis")
        return Group(first, second)


def _how_far(stage: Stage) -> str:
    return f"{stage.n_done} {stage.unit}" if stage.total is None else f"{stage.n_done} of {stage.total} {stage.unit}"


def _left(stage: Stage, time: float) -> list[str]:
    """What the rest takes, where it is known and the budget does not end it before; and the budget."""
    left_s, budget_s = stage.left_s(time), max(stage.ends - time, 0.0)
    estimate = [f"about {clock(left_s)} to go"] if left_s is not None and left_s < budget_s else []
    return [*estimate, *([] if budget_s == math.inf else [f"budget {clock(budget_s)}"])]


def _op(stage: Stage) -> str:
    return one_line(short_op(stage.now), 60)


def clock(seconds: float) -> str:
    """``1:02``, ``1:02:03``."""
    minutes, second = divmod(int(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"
