"""Python and torch warnings during a case, each text once."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import torch

from audit.detect.detector import Evidence
from audit.device.protocol import Device


class WarningDetector:
    """Records warnings; ``torch.set_warn_always`` makes TORCH_WARN_ONCE texts come for every case."""

    def __init__(self) -> None:
        self._catcher: warnings.catch_warnings[list[warnings.WarningMessage]] | None = None
        self._caught: list[warnings.WarningMessage] = []

    def begin(self, device: Device) -> None:
        torch.set_warn_always(True)
        self._catcher = warnings.catch_warnings(record=True)
        self._caught = self._catcher.__enter__()
        warnings.simplefilter("always")

    def watch(self, call: Callable[[], object]) -> None:
        pass

    def end(self, device: Device, evidence: Evidence) -> None:
        if self._catcher is not None:
            self._catcher.__exit__(None, None, None)
            self._catcher = None
        evidence.warnings = tuple(dict.fromkeys(str(warning.message) for warning in self._caught))
