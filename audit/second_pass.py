"""After the replay: alternatives to what has a finding. The rules choose, the engine runs, the run file keeps.

Here, since neither side may know the other. See docs/architecture.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

from audit.errors import UnfinishedError
from audit.rules.judge import judge
from audit.rules.remedies import plan, preparation_s
from audit.run_records import Alternative, RunEnd, Trying
from audit.schema import Measurement
from audit.store import RunWriter, read_run

if TYPE_CHECKING:
    from audit.progress import Progress
    from audit.replay.engine import Engine, ReplaySettings, Trials


def try_alternatives(
    engine: Engine, path: Path, settings: ReplaySettings, writer: RunWriter, progress: Progress, deadline: float
) -> RunEnd:
    """Judges the run so far and tries what ``plan`` names, until the limit of the settings or ``deadline`` is reached.

    Nothing here takes back that every case was measured; only an interruption leaves the run unfinished.
    """
    last = min(deadline, monotonic() + settings.alternatives_limit_s)
    if settings.alternatives_limit_s <= 0 or monotonic() > last:
        return RunEnd(True)
    try:
        judgement = judge(read_run(path))
        wanted = plan(judgement, settings.n_alternatives_cases)
        if wanted:
            progress.trying(len(wanted), last)
        by_key = {case.key: case for case, _ in wanted}
        affordable = _affordable(wanted, judgement.run.measurements, last)
        for event in engine.try_instead(affordable, lambda: monotonic() > last) if wanted else ():
            if isinstance(event, Trying):
                writer.trying(event)
                progress.started(by_key[event.key].op)
            elif isinstance(event, Alternative):
                writer.tried(event)
                progress.done()
            else:
                return RunEnd(True, f"the device was lost while alternatives were tried: {event.reason}")
    except KeyboardInterrupt:
        return RunEnd(False, "interrupted while alternatives were tried")
    except UnfinishedError as error:
        if error.slug == "disk-full":
            raise
        return RunEnd(True, f"no more alternatives were tried: {error}")
    return RunEnd(True)


def _affordable(wanted: Sequence[Trials], measured: Mapping[str, Measurement], last: float) -> Iterator[Trials]:
    """A case whose reference alone would take more than what is left makes way for the next."""
    for case, trials in wanted:
        if monotonic() + preparation_s(measured[case.key]) <= last:
            yield case, trials
