"""The forms in which an outcome is written, each loaded on first use."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from audit.gate.outcome import GateOutcome


@dataclass(frozen=True)
class GateFormat:
    """The file it writes and the module whose ``render(outcome) -> str`` makes its text."""

    file_name: str
    module: str

    def render(self, outcome: GateOutcome) -> str:
        return str(importlib.import_module(self.module).render(outcome))


GATE_FORMATS: Mapping[str, GateFormat] = {
    "markdown": GateFormat("gate.md", "audit.gate.markdown"),
    "junit": GateFormat("gate.xml", "audit.gate.junit"),
    "json": GateFormat("gate.json", "audit.gate.record"),
    "sarif": GateFormat("gate.sarif", "audit.gate.sarif"),
}


def write(outcome: GateOutcome, formats: Iterable[str], folder: Path) -> list[Path]:
    """Writes one file per format, whole or not at all. Raises UnfinishedError where the folder cannot be written."""
    from audit.report.registry import write_text

    return [write_text(folder / GATE_FORMATS[name].file_name, GATE_FORMATS[name].render(outcome)) for name in formats]
