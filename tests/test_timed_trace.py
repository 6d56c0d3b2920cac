"""A run's cases with its times, as a trace that travels to another device."""

from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path

import pytest

from audit.cli import main
from audit.opset import read_opset, write_opset
from audit.run_records import RunHeader
from audit.schema import (
    Case,
    Ceilings,
    DeviceInfo,
    DeviceTimes,
    Measurement,
    Outcome,
    Rate,
    Source,
    TensorSpec,
    Timing,
    Trace,
)
from audit.store import RunWriter
from tests.opset.test_merging import TRACE, span, write

CASE = Case("exp-0", "aten::exp.default", (TensorSpec((4,), (1,), "float32", extent=4),))
SLOW = Case("sin-0", "aten::sin.default", (TensorSpec((4,), (1,), "float32", extent=4),))
CEILINGS = Ceilings(Rate(3000.0, 1.0, 9), {"bfloat16": Rate(700.0, 1.0, 9)}, Rate(4.0, 0.1, 9))
H100 = DeviceInfo("cuda", "NVIDIA H100", "sm_90")


def run_folder(folder: Path, device: DeviceInfo = H100) -> Path:
    """A run of two cases, of which one was timed."""
    folder.mkdir(exist_ok=True)
    write_opset(folder / "cases.audit", Trace(Source("script", "m.py"), {}, (CASE, SLOW), n_recorded=2), None)
    evidence = "stand-in" if device.backend == "cuda" else "simulated"
    environment = {"torch": "2.11.0+cu130", "cuda": "13.0", "os": "Linux"}
    header = RunHeader(
        evidence, Source("script", "m.py"), device, environment, {}, "2026-11-30", "0.1", 2, 2, ceilings=CEILINGS
    )
    with RunWriter.create(folder / "run.jsonl", header, (CASE, SLOW)) as writer:
        writer.measured(Measurement("exp-0", Outcome("ok"), Outcome("ok"), device_time=Timing(5.0, 0.5, 20)))
        writer.measured(Measurement("sin-0", Outcome("ok"), Outcome("raised")))
    return folder


def test_a_run_of_a_gpu_becomes_a_trace_with_its_times(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "m.audit"
    assert main(["trace", str(run_folder(tmp_path / "run")), "-o", str(target)]) == 0
    assert capsys.readouterr().out == f"{target}: 2 cases, 1 with their times on NVIDIA H100\n"
    times = read_opset(target).elsewhere
    assert times == DeviceTimes(
        H100, "stand-in", {"torch": "2.11.0+cu130", "cuda": "13.0"}, {"exp-0": Timing(5.0, 0.5, 20)}, CEILINGS
    )


def test_its_values_go_with_it(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run")
    write(folder / "cases.audit", TRACE, exp_0=(0.5, 0.25))
    assert main(["trace", str(folder), "-o", str(tmp_path / "m.audit")]) == 0
    stored = span(tmp_path / "m.audit", "exp-0", tmp_path)
    assert stored is not None
    assert stored.data == struct.pack("<2f", 0.5, 0.25)


def test_the_times_of_a_simulated_device_are_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = run_folder(tmp_path / "run", DeviceInfo("sim", "simulated", "sim"))
    assert main(["trace", str(folder), "-o", str(tmp_path / "m.audit")]) == 2
    assert "has no time of a GPU: it is of sim" in capsys.readouterr().err


def test_a_file_that_is_there_is_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "m.audit"
    target.write_text("precious")
    assert main(["trace", str(run_folder(tmp_path / "run")), "-o", str(target)]) == 2
    assert target.read_text() == "precious"
    assert "[exists]" in capsys.readouterr().err
    assert main(["trace", str(tmp_path / "run"), "-o", str(target), "--force"]) == 0


@pytest.mark.parametrize(
    "times",
    [
        DeviceTimes(H100, "measured", {}, {}),
        DeviceTimes(H100, "stand-in", {}, {"exp-0": Timing(-5.0, 0.0, 1)}),
        DeviceTimes(H100, "stand-in", {}, {"exp-0": Timing(float("inf"), 0.0, 1)}),
        DeviceTimes(H100, "stand-in", {}, {}, replace(CEILINGS, launch_us=Rate(1.0, 0.0, -3))),
    ],
    ids=["dressed up", "negative", "endless", "negative count"],
)
def test_times_that_cannot_be_are_refused(
    tmp_path: Path, times: DeviceTimes, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "m.audit"
    write_opset(path, Trace(Source("script", "m.py"), {}, (CASE,), n_recorded=1, elsewhere=times), None)
    assert main(["trace", "show", str(path)]) == 2
    assert "[not-an-opset]" in capsys.readouterr().err
