"""Detectors, each beside a call that really does what it looks for."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import warnings
from pathlib import Path

import pytest
import torch

from audit.detect.detector import Evidence
from audit.detect.memory import MemoryDetector
from audit.detect.path_taken import PathDetector
from audit.detect.registry import DETECTORS
from audit.detect.stderr import TAIL_BYTES
from audit.detect.warned import WarningDetector
from audit.device.cpu import CpuDevice
from audit.schema import Kernel
from audit.schema import Path as OpPath


@pytest.fixture
def stderr_of(tmp_path: Path, checkout: Path):
    """Evidence of a process that runs ``body`` between begin and end; it has an fd 2 of its own to redirect."""

    def run(body: str) -> str:
        script = f"""
            import os
            from pathlib import Path
            from audit.detect.detector import Evidence
            from audit.detect.stderr import StderrDetector, redirect
            from audit.device.cpu import CpuDevice
            result = os.dup(1)
            redirect(Path({str(tmp_path / "fd2")!r}))
            detector, evidence = StderrDetector(), Evidence()
            os.write(2, b"of the case before")
            detector.begin(CpuDevice())
            {body}
            detector.end(CpuDevice(), evidence)
            os.write(result, evidence.stderr.encode())
        """
        environment = {**os.environ, "PYTHONPATH": str(checkout)}
        command = [sys.executable, "-c", textwrap.dedent(script)]
        return subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True, text=True).stdout

    return run


def test_what_c_code_writes_to_fd_2_is_seen_and_the_case_before_is_not(stderr_of):
    assert stderr_of('os.write(2, b"MIOpen(HIP): Error\\n")') == "MIOpen(HIP): Error"


def test_of_a_flood_on_fd_2_the_end_is_kept(stderr_of):
    text = stderr_of('os.write(2, b"x" * 50_000 + b"the end")')
    assert len(text) == TAIL_BYTES
    assert text.endswith("xthe end")


def test_stdout_of_a_library_is_kept_too(stderr_of):
    assert stderr_of('os.write(1, b"printed by a library")') == "printed by a library"


def test_each_warning_is_kept_once_and_only_while_the_case_runs():
    detector, evidence = WarningDetector(), Evidence()
    with warnings.catch_warnings(record=True) as outside:
        warnings.simplefilter("always")
        detector.begin(CpuDevice())
        for _ in range(3):
            warnings.warn("Flash attention is off", UserWarning, stacklevel=1)
        warnings.warn("another", UserWarning, stacklevel=1)
        detector.end(CpuDevice(), evidence)
        warnings.warn("afterwards", UserWarning, stacklevel=1)
    assert evidence.warnings == ("Flash attention is off", "another")
    assert [str(w.message) for w in outside] == ["afterwards"]


def test_a_warning_that_torch_gives_once_comes_for_every_case():
    found = []
    for _ in range(2):
        detector, evidence = WarningDetector(), Evidence()
        detector.begin(CpuDevice())
        _ = torch.ones(2, 2, 2).T  # deprecated for more than two dimensions, TORCH_WARN_ONCE
        detector.end(CpuDevice(), evidence)
        found.append(len(evidence.warnings))
    assert found == [1, 1]


class Watched(CpuDevice):
    """A device whose observer reports one kernel and whose memory peaks at 4096 bytes."""

    def observe(self, call):
        return call(), OpPath(observed=True, complete=True, kernels=(Kernel("Cijk_Ailk", 3.0),))

    def peak_bytes(self):
        return 4096


def test_the_path_is_that_of_one_extra_call():
    detector, evidence, calls = PathDetector(), Evidence(), []
    detector.begin(Watched())
    detector.watch(lambda: calls.append(1))
    detector.end(Watched(), evidence)
    assert calls == [1]
    assert evidence.path.kernels == (Kernel("Cijk_Ailk", 3.0),)


def test_the_path_of_one_case_is_not_that_of_the_next():
    detector, evidence = PathDetector(), Evidence()
    detector.begin(Watched())
    detector.watch(lambda: None)
    detector.begin(Watched())
    detector.end(Watched(), evidence)
    assert evidence.path == OpPath()


def test_peak_memory_is_the_devices_own_count():
    evidence = Evidence()
    MemoryDetector().end(Watched(), evidence)
    assert evidence.peak_bytes == 4096


def test_every_registered_detector_fills_a_field_of_its_own():
    assert len(set(DETECTORS)) == len(DETECTORS) == len(Evidence.__dataclass_fields__)
