"""After the replay: the whole step, played on the device beside the CPU (``--drift``). docs/drift.md.

The program runs once more, on the CPU, and leaves a tape; a process of its own plays it; the run file keeps
what it saw.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from audit.drift_records import DriftEnd, DriftStarted, DriftStep
from audit.errors import UnfinishedError, UsageError
from audit.run_folder import RUN_FILE
from audit.run_records import RunEnd
from audit.store import RunWriter, read_run
from audit.targets import Target

if TYPE_CHECKING:
    from audit.progress import Progress
    from audit.replay.drift.player import Record
    from audit.run_options import RunOptions
    from audit.schema import DeviceInfo

#: Of the disk that is free, so much may become the values of a tape.
TAPE_FRACTION = 0.5


def check_playable(target: Target, device: str, fake: bool, private: bool) -> None:
    """Raises UsageError where there is no program to run, no device to play on, or names that may not be kept."""
    problem = ""
    if target.kind in ("opset", "recording"):
        problem = f"it runs the program once more, and {target.name} is recorded already; give the program"
    elif device == "none":
        problem = "it plays the step on a device, and there is none; use --device hip, cuda or sim"
    elif fake:
        problem = "it needs values, and --fake has none"
    elif private:
        problem = "it keeps the names of the program's modules, and --private leaves them out"
    if problem:
        raise UsageError(f"--drift: {problem}", "no-drift")


def play_step(options: RunOptions, device: str, gpu: DeviceInfo, progress: Progress) -> RunEnd:
    """Adds the step to the finished run, unless it was begun there; the program is told that it runs on ``gpu``.

    How the run ended with it: unfinished where nothing of the step could be played, and the file says why.
    """
    before = read_run(options.output / RUN_FILE).drift
    if before is not None and (before.steps or before.started):
        return RunEnd(True)
    end = _played(options, device, gpu, progress)
    return RunEnd(True) if end.n_steps else RunEnd(False, f"the step was not played: {end.reason}")


def _played(options: RunOptions, device: str, gpu: DeviceInfo, progress: Progress) -> DriftEnd:
    from audit.replay.drift.player import play
    from audit.replay.engine import ReplaySettings
    from audit.tracer.launch import tape_in_child

    target = options.target
    settings = ReplaySettings(device=device, first_call_limit_s=options.first_call_limit_s)
    with (
        tempfile.TemporaryDirectory(prefix="rocm-audit-tape-") as scratch,
        RunWriter.resume(options.output / RUN_FILE) as writer,
    ):
        folder = Path(scratch)
        progress.phase(f"recording the first step of {target.name} on a tape, on the CPU")
        try:
            limit = int(shutil.disk_usage(folder).free * TAPE_FRACTION)
            tape_in_child(target, folder, limit, options.mode, gpu, options.shape)
            progress.playing("playing it on the device, on the CPU and in fp64, call by call")
            return _written(play(settings, folder, options.time_budget_s), writer, progress)
        except UnfinishedError as error:
            if error.slug == "disk-full":
                raise
            end = DriftEnd(0, 0, reason=str(error))
            writer.drifted(end)
            return end


def _written(records: Iterator[Record], writer: RunWriter, progress: Progress) -> DriftEnd:
    """Appends each record before the next is asked for."""
    n_steps = 0
    end = DriftEnd(0, 0, reason="nothing was played")
    try:
        for record in records:
            writer.drifted(record)
            n_steps += isinstance(record, DriftStep)
            if isinstance(record, DriftStarted):
                progress.started(record.op)
            elif isinstance(record, DriftStep):
                progress.done()
            if isinstance(record, DriftEnd):
                end = record
    except KeyboardInterrupt:
        end = DriftEnd(n_steps, n_steps, reason="interrupted")
        writer.drifted(end)
    return end
