"""Healthy measurements are kept for a stack, a case and its inputs; everything else is measured again."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from audit.codec import case_key
from audit.opset import write_opset
from audit.replay.engine import ReplaySettings
from audit.results_cache import MAX_AGE_S, ResultsCache, open_cache
from audit.schema import Case, DeviceInfo, Measurement, Outcome, Source, TensorSpec, Timing, Trace, Values
from audit.store import read_run

SQUARE = TensorSpec((4, 4), (4, 1), "float32", extent=16)
CASE = Case("relu-0", "aten::relu.default", (SQUARE,), values={0: Values(n_sampled=1, minimum=-1.0, maximum=1.0)})
HEALTHY = Measurement("relu-0", Outcome("ok"), Outcome("ok"), device_time=Timing(8.0, 0.5, 30), canary="passed")
DEVICE = DeviceInfo("hip", "AMD Instinct MI300X", "gfx942")
TORCH = {"torch": "2.13.0"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AUDIT_CACHE", str(tmp_path / "kept"))
    return tmp_path / "kept"


def opened(
    info: DeviceInfo = DEVICE, environment: dict[str, str] = TORCH, settings: ReplaySettings | None = None
) -> ResultsCache:
    cache = open_cache(info, environment, settings or ReplaySettings(device="hip"))
    assert cache is not None
    return cache


def test_a_healthy_measurement_is_found_again_and_says_that_it_was_kept(folder: Path) -> None:
    opened().keep(CASE, HEALTHY)
    found = opened().find(replace(CASE, n_calls=7, modules=("layer",)))
    assert found is not None
    assert replace(found, notes=()) == HEALTHY
    assert found.notes[0].startswith("measured on this stack before and kept: 20")


@pytest.mark.parametrize(
    "measurement",
    [
        replace(HEALTHY, device=Outcome("raised", "RuntimeError", "HIP error")),
        replace(HEALTHY, device=Outcome("out_of_memory")),
        replace(HEALTHY, reference=Outcome("raised", "IndexError")),
        replace(HEALTHY, canary="failed"),
        replace(HEALTHY, guards_broken=("operand 0",)),
    ],
)
def test_what_may_have_been_a_bad_day_is_measured_again(folder: Path, measurement: Measurement) -> None:
    opened().keep(CASE, measurement)
    assert opened().find(CASE) is None


def test_another_stack_case_or_input_is_measured_anew(folder: Path) -> None:
    opened().keep(CASE, HEALTHY)
    assert opened(environment={"torch": "2.12.0"}).find(CASE) is None
    assert opened(environment={**TORCH, "HSA_XNACK": "1"}).find(CASE) is None
    assert opened(info=replace(DEVICE, arch="gfx90a")).find(CASE) is None
    assert opened(settings=ReplaySettings(device="hip", n_repeats=3)).find(CASE) is None
    assert opened(settings=ReplaySettings(device="hip", alternatives_limit_s=0.0)).find(CASE) is not None
    assert opened().find(replace(CASE, values={0: Values(n_sampled=1, minimum=-2.0, maximum=1.0)})) is None
    assert opened().find(replace(CASE, op="aten::neg.default")) is None


def test_other_stored_values_are_measured_anew(folder: Path, tmp_path: Path) -> None:
    import numpy as np
    from safetensors.numpy import save_file

    caches = []
    for name, value in (("a", 1.0), ("b", 2.0)):
        save_file({"relu-0/0": np.full(16, value, np.float32)}, tmp_path / name)
        caches.append(opened(settings=ReplaySettings(device="hip", values=tmp_path / name)))
    caches[0].keep(CASE, HEALTHY)
    assert (caches[0].find(CASE) is None, caches[1].find(CASE) is None) == (False, True)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"made": 1}', '{"made": "x", "measurement": {"key": "other"}}'])
def test_a_broken_file_is_measured_over(folder: Path, content: str) -> None:
    opened().keep(CASE, HEALTHY)
    [path] = folder.rglob("*.json")
    path.write_text(content)
    assert opened().find(CASE) is None


def test_an_old_measurement_is_made_anew_and_old_stacks_are_forgotten(folder: Path) -> None:
    opened().keep(CASE, HEALTHY)
    [path] = folder.rglob("*.json")
    then = path.stat().st_mtime - MAX_AGE_S - 60
    os.utime(path, (then, then))
    assert opened().find(CASE) is None
    os.utime(path.parent, (then, then))
    opened()
    assert list(folder.iterdir()) == []


def test_a_fault_file_and_the_variable_turn_it_off(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert open_cache(DEVICE, TORCH, ReplaySettings(device="sim:faults.py")) is None
    monkeypatch.setenv("AUDIT_CACHE", "off")
    assert open_cache(DEVICE, TORCH, ReplaySettings(device="hip")) is None


@pytest.mark.evidence
def test_a_second_run_takes_what_the_first_measured_unless_it_is_fresh(
    checkout: Path, tmp_path: Path, simulated_device: None
) -> None:
    case = replace(CASE, key=case_key(CASE.op, CASE.args, (), "forward", None))
    write_opset(tmp_path / "m.audit", Trace(Source("script", "m.py"), {}, (case,), n_recorded=1), None)
    environment = {**os.environ, "PYTHONPATH": str(checkout), "AUDIT_CACHE": str(tmp_path / "kept")}
    notes = []
    for name, options in (("a", []), ("b", []), ("c", ["--fresh"])):
        command = [sys.executable, "-m", "audit", "run", "m.audit", "--device", "sim", "-q", "-o", name, *options]
        subprocess.run(command, cwd=tmp_path, env=environment, check=True, capture_output=True, timeout=280)
        [measurement] = read_run(tmp_path / name).measurements.values()
        notes.append(any("kept" in note for note in measurement.notes))
    assert notes == [False, True, False]
