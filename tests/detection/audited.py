"""Traces the programs of faults, replays them on a device with those faults, and finds what was said of each."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.detection.__main__ import Part, module_name
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
    programs = _run([fault for fault in faults if not fault.alone], folder / "programs", "program")
    limits = ("--first-call-limit", f"{HANG_S}s", "--steady-limit", f"{HANG_S}s")
    programs |= _run(hanging, folder / "hanging", "program", limits=limits)
    twins = _run(faults, folder / "twins", "twin")
    return _found(faults, {**programs, **twins})


def audited_at_once(faults: Sequence[Fault], folder: Path) -> list[Found]:
    """All in one trace and one run: for faults whose program and twin differ in more than values."""
    return _found(faults, _run(faults, folder / "both", "program", "twin"))


def _found(faults: Sequence[Fault], said: Mapping[tuple[str, Part], Side]) -> list[Found]:
    return [Found(fault, said[fault.name, "program"], said[fault.name, "twin"]) for fault in faults]


def _run(
    faults: Sequence[Fault], folder: Path, *parts: Part, limits: Sequence[str] = ()
) -> dict[tuple[str, Part], Side]:
    """One trace and one run of the faults' programs, twins or both: what was said of each."""
    if not faults:
        return {}
    folder.mkdir()
    names = [fault.name for fault in faults]
    (folder / "faults.py").write_text(FAULT_FILE.format(names=names))
    trace, run = folder / "programs.audit", folder / "run"
    wanted = [f"{part}:{name}" for part in parts for name in names]
    _audit("trace", "-q", "--steps", STEPS, "-o", trace, "-m", "tests.detection", "--", *wanted)
    device = f"sim:{folder / 'faults.py'}"
    _audit("run", trace, "-q", "--device", device, "-o", run, "--format", "json", *limits)
    verdicts = json.loads((run / "summary.json").read_text())["verdicts"]
    return {(name, part): _side(verdicts, module_name(part, name)) for part in parts for name in names}


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
