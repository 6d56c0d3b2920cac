"""Traces the programs of faults, replays them on a device with those faults, and finds what was said of each."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.detection.__main__ import module_name
from tests.detection.fault import Fault

ROOT = Path(__file__).resolve().parents[2]
#: More than any program makes, so that none is ended early.
STEPS = "100000"
#: How long a call that hangs is waited for.
HANG_S = 8
_RANKS = ("supported", "inconclusive", "slow", "falling_back", "divergent", "unsupported")

FAULT_FILE = """from tests.detection.fault import fault_table
from tests.detection.registry import BY_NAME

FAULTS = fault_table(BY_NAME[name] for name in {names!r})
"""


@dataclass(frozen=True)
class Side:
    """The worst that was said of one program's cases: its status, the codes and messages of the worst case."""

    status: str
    codes: tuple[str, ...]
    messages: tuple[str, ...]
    op: str
    n_cases: int


@dataclass(frozen=True)
class Found:
    """What the audit said of a fault's program and of its twin."""

    fault: Fault
    program: Side
    twin: Side

    @property
    def caught(self) -> bool:
        right = not self.fault.codes or bool(set(self.fault.codes) & set(self.program.codes))
        return self.program.status == self.fault.expected and right

    @property
    def right(self) -> bool:
        """Caught with the class it has, and no alarm for the twin."""
        return self.caught and self.twin.status == "supported"


def audited(faults: Sequence[Fault], folder: Path) -> list[Found]:
    """Programs and twins apart, since they may differ in values alone; those that hang in a run with a small limit.

    ``folder`` must exist.
    """
    hanging = [fault for fault in faults if fault.alone]
    programs = _run([fault for fault in faults if not fault.alone], folder / "programs")
    programs |= _run(hanging, folder / "hanging", "--first-call-limit", f"{HANG_S}s", "--steady-limit", f"{HANG_S}s")
    twins = _run(faults, folder / "twins")
    return [Found(fault, programs[fault.name], twins[fault.name]) for fault in faults]


def _run(faults: Sequence[Fault], folder: Path, *limits: str) -> dict[str, Side]:
    """One trace and one run: what was said of each program, or of each twin in a folder of that name."""
    if not faults:
        return {}
    folder.mkdir()
    names = [fault.name for fault in faults]
    (folder / "faults.py").write_text(FAULT_FILE.format(names=names))
    trace, run = folder / "programs.audit", folder / "run"
    twins = ["--twins"] if folder.name == "twins" else []
    _audit("trace", "-q", "--steps", STEPS, "-o", trace, "-m", "tests.detection", "--", *twins, *names)
    device = f"sim:{folder / 'faults.py'}"
    _audit("run", trace, "-q", "--device", device, "-o", run, "--format", "json", *limits)
    summary = json.loads((run / "summary.json").read_text())
    return {name: _side(summary["verdicts"], module_name(name)) for name in names}


def _side(verdicts: Sequence[dict[str, Any]], module: str) -> Side:
    own = [v for v in verdicts if any(name.split(".")[0] == module for name in v["modules"])]
    assert own, f"no case of {module}"
    worst = max(own, key=lambda verdict: _RANKS.index(verdict["status"]))
    told = [f for f in worst["findings"] if f["status"] == worst["status"] != "supported"]
    codes, messages = tuple(f["code"] for f in told), tuple(f["message"] for f in told)
    return Side(worst["status"], codes, messages, worst["op"], len(own))


def _audit(*arguments: object) -> None:
    command = [sys.executable, "-m", "audit", *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=ROOT)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}\n{done.stderr[-4000:]}")
