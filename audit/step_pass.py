"""After the replay: the whole step, played on the device beside the CPU (``--drift``). docs/drift.md.

The program runs once more, on the CPU, and leaves a tape; a process of its own plays it; the run file keeps
what it saw.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

from audit.drift_records import DriftEnd, DriftStarted, DriftStep
from audit.errors import UnfinishedError, UsageError
from audit.store import RunWriter, read_run
from audit.targets import Target

if TYPE_CHECKING:
    from audit.progress import Progress
    from audit.replay.engine import ReplaySettings
    from audit.schema import DeviceInfo
    from audit.targets import InputShape

#: Of the disk that is free, so much may become the values of a tape.
TAPE_FRACTION = 0.5
#: In a log, a line each so many seconds.
_LOG_INTERVAL_S = 20.0


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


def play_step(
    target: Target,
    mode: str | None,
    shape: InputShape,
    gpu: DeviceInfo,
    settings: ReplaySettings,
    run_file: Path,
    progress: Progress,
    budget_s: float | None,
) -> DriftEnd | None:
    """Adds the step to a finished run, in ``budget_s`` seconds at most. None where the run has one already.

    Raises UnfinishedError where the program or the device cannot be run a second time.
    """
    from audit.replay.drift.player import play
    from audit.tracer.launch import tape_in_child

    if read_run(run_file).drift is not None:
        return None
    with tempfile.TemporaryDirectory(prefix="rocm-audit-tape-") as scratch, RunWriter.resume(run_file) as writer:
        folder = Path(scratch)
        progress.phase(f"recording the first step of {target.name} on a tape, on the CPU")
        limit = int(shutil.disk_usage(folder).free * TAPE_FRACTION)
        tape_in_child(target, folder, limit, mode, gpu, shape)
        progress.phase("playing it on the device, on the CPU and in fp64, call by call")
        end = DriftEnd(0, 0, reason="nothing was played")
        last_line = monotonic()
        n_steps = 0
        try:
            for record in play(settings, folder, budget_s):
                writer.drifted(record)
                n_steps += isinstance(record, DriftStep)
                if isinstance(record, DriftStarted) and monotonic() - last_line > _LOG_INTERVAL_S:
                    last_line = monotonic()
                    progress.phase(f"{n_steps} calls played, now {record.op}")
                if isinstance(record, DriftEnd):
                    end = record
        except KeyboardInterrupt:
            writer.drifted(DriftEnd(n_steps, n_steps, reason="interrupted"))
            raise UnfinishedError(
                "interrupted while the step was played; what was measured is kept", "interrupted"
            ) from None
        return end
