"""The detectors that sit beside every case. A new one is one file and one line here."""

from __future__ import annotations

from collections.abc import Callable

from audit.detect.detector import Detector
from audit.detect.memory import MemoryDetector
from audit.detect.path_taken import PathDetector
from audit.detect.refusals import RefusalDetector
from audit.detect.stderr import StderrDetector
from audit.detect.warned import WarningDetector

DETECTORS: tuple[Callable[[], Detector], ...] = (
    StderrDetector,
    WarningDetector,
    PathDetector,
    RefusalDetector,  # behind the path, which says whether there is anything to explain
    MemoryDetector,
)
