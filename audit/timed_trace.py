"""A run's cases as a trace that says how long they took there, for an audit on another device to set its own beside."""

from __future__ import annotations

import dataclasses
import os
import tempfile
from pathlib import Path

from audit.errors import UsageError
from audit.opset import extract_values, read_opset, write_opset
from audit.output_file import check_output_file
from audit.rules.elsewhere import times_of
from audit.run_folder import CASES_FILE, RUN_FILE
from audit.schema import Trace
from audit.store import read_run


def is_run(path: Path) -> bool:
    """Whether the path is a run folder."""
    return os.path.isfile(path / RUN_FILE)  # of pathlib's, a folder that must not be looked into is an error


def write_timed_trace(folder: Path, output: Path, force: bool) -> Trace:
    """Writes the trace of the run in ``folder`` to ``output``, with the times of its cases and all that it held.

    Raises UsageError where the run has no trace beside it, or no times of a GPU.
    """
    check_output_file(output, force)
    cases_file = folder / CASES_FILE
    if not cases_file.is_file():
        raise UsageError(
            f"{folder} has no {CASES_FILE}, the trace that its run was made of, as none has that was imported; "
            f"set the run beside another's with --compare {folder}",
            "no-target",
        )
    times = times_of(read_run(folder))
    trace = dataclasses.replace(read_opset(cases_file), elsewhere=times)
    if not times.times.keys() & {case.key for case in trace.cases}:
        raise UsageError(
            f"the run in {folder} has no time of a GPU: it is of {times.device.backend}; give a run on hip or cuda",
            "bad-arguments",
        )
    with tempfile.TemporaryDirectory(prefix="rocm-audit-") as scratch:
        write_opset(output, trace, extract_values(cases_file, Path(scratch)))
    return trace
