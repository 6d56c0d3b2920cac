"""``--drift`` after the replay: what it is refused for, and what of the step comes into the run file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from audit.cli import main
from audit.drift_records import Drift, DriftEnd, DriftStarted, DriftStep
from audit.errors import UnfinishedError, UsageError
from audit.progress import Progress
from audit.run_options import RunOptions
from audit.run_records import RunEnd, RunHeader
from audit.schema import DeviceInfo, Source
from audit.step_pass import check_playable, play_step
from audit.store import RunWriter, read_run
from audit.targets import Target

SCRIPT, OPSET = Target("script", "m.py", Path("m.py")), Target("opset", "m.audit", Path("m.audit"))
GPU = DeviceInfo("none", "AMD Instinct MI300X", "gfx942")
STEP = DriftStep(0, "mm-0", "aten::mm.default", "forward")


@pytest.mark.parametrize(
    ("target", "device", "fake", "private", "reason"),
    [
        (OPSET, "sim", False, False, "recorded already"),
        (SCRIPT, "none", False, False, "there is none"),
        (SCRIPT, "sim", True, False, "--fake has none"),
        (SCRIPT, "sim", False, True, "--private leaves them out"),
    ],
)
def test_what_cannot_be_played_is_refused(target: Target, device: str, fake: bool, private: bool, reason: str) -> None:
    with pytest.raises(UsageError, match=reason) as raised:
        check_playable(target, device, fake, private)
    assert raised.value.slug == "no-drift"


def test_the_command_line_refuses_before_anything_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = tmp_path / "m.py"
    program.write_text("raise SystemExit('ran')")
    assert main(["run", str(program), "--device", "none", "--drift", "-o", str(tmp_path / "out")]) == 2
    assert capsys.readouterr().err.rstrip().endswith("[no-drift]")
    assert not (tmp_path / "out").exists()


@pytest.fixture
def played(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., RunEnd]:
    """The pass over a finished run, with a program and a device that do as the test says."""
    header = RunHeader(
        "simulated", Source("script", "m.py"), DeviceInfo("sim", "simulated device", "sim"), {}, {}, "", "0", 0, 0
    )
    with RunWriter.create(tmp_path / "run.jsonl", header, ()) as writer:
        writer.end(RunEnd(True))

    def run(records: list[Any], problem: BaseException | None = None) -> RunEnd:
        def tape(*arguments: Any) -> None:
            if problem is not None:
                raise problem

        def play(*arguments: Any) -> Iterator[Any]:
            for record in records:
                if isinstance(record, BaseException):
                    raise record
                yield record

        monkeypatch.setattr("audit.tracer.launch.tape_in_child", tape)
        monkeypatch.setattr("audit.replay.drift.player.play", play)
        return play_step(RunOptions(SCRIPT, tmp_path), "sim", GPU, Progress(quiet=True))

    return run


def test_what_was_played_is_in_the_run_and_not_played_twice(played: Callable[..., RunEnd], tmp_path: Path) -> None:
    assert played([DriftStarted(0, "aten::mm.default"), STEP, DriftEnd(1, 1)]) == RunEnd(True)
    assert read_run(tmp_path).drift == Drift((STEP,), DriftEnd(1, 1))
    assert played([], UnfinishedError("not asked", "program-died")) == RunEnd(True)


def test_a_program_that_cannot_run_twice_leaves_the_run_unfinished(
    played: Callable[..., RunEnd], tmp_path: Path
) -> None:
    end = played([], UnfinishedError("m.py was killed by SIGKILL", "program-died"))
    assert (end.complete, "m.py was killed by SIGKILL" in end.reason) == (False, True)
    drift = read_run(tmp_path).drift
    assert drift is not None
    assert drift.end is not None
    assert drift.end.n_steps == 0
    assert played([STEP, DriftEnd(1, 1)]) == RunEnd(True)  # as a resumed run tries it again
    assert read_run(tmp_path).drift == Drift((STEP,), DriftEnd(1, 1))


def test_an_interruption_keeps_what_was_played(played: Callable[..., RunEnd], tmp_path: Path) -> None:
    played([STEP, KeyboardInterrupt()])
    assert read_run(tmp_path).drift == Drift((STEP,), DriftEnd(1, 1, reason="interrupted"))
