"""The second pass over a run: what it asks of an engine, what it writes, and what ends it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from audit.errors import UnfinishedError
from audit.progress import Progress
from audit.replay.engine import DeviceLost, ReplaySettings, TrialEvent, Trials
from audit.run_records import UNCHANGED, Alternative, RunEnd, RunHeader, Trying
from audit.schema import Case, DeviceInfo, Measurement, Outcome, Source, TensorSpec, Timing
from audit.second_pass import try_alternatives
from audit.store import RunWriter, read_run

STRIDED = TensorSpec((4, 8), (1, 4), "bfloat16", extent=32)
CASES = tuple(Case(f"mm-{n}", "aten::mm.default", (STRIDED, STRIDED), n_calls=n) for n in (3, 2, 1))
HEADER = RunHeader(
    "simulated", Source("script", "m.py"), DeviceInfo("sim", "sim", "sim"), {}, {}, "2026-11-30", "0", 3, 3
)
RAISED = Outcome("raised", "RuntimeError", "no")


@dataclass
class Engine:
    """Answers each trial with a raise; ``then`` happens after so many."""

    then: Any = None
    after: int = 10**6
    asked: list[str] = field(default_factory=list)

    def try_instead(self, plan: Iterable[Trials], enough: Any = None) -> Iterator[TrialEvent]:
        for case, trials in plan:
            for trial in trials:
                if enough():
                    return
                if len(self.asked) == self.after:
                    if isinstance(self.then, DeviceLost):
                        yield self.then
                        return
                    raise self.then
                self.asked.append(f"{case.key} {trial.name}")
                yield Trying(trial.key, trial.name)
                yield Alternative(trial, Measurement(case.key, Outcome("ok"), RAISED))


@pytest.fixture
def run_file(tmp_path: Path) -> Path:
    """A run of three cases that raised."""
    with RunWriter.create(tmp_path / "run.jsonl", HEADER, CASES) as writer:
        for case in CASES:
            time = Timing(1e6, 0.0, 1)
            writer.measured(Measurement(case.key, Outcome("ok"), RAISED, reference_time=time))
    return tmp_path / "run.jsonl"


def second_pass(engine: Engine, path: Path, deadline: float = math.inf, **settings: Any) -> RunEnd:
    with RunWriter.resume(path) as writer:
        return try_alternatives(engine, path, ReplaySettings(**settings), writer, Progress(quiet=True), deadline)  # type: ignore[arg-type]


def test_what_was_tried_is_in_the_file_case_by_case_dearest_first(run_file: Path) -> None:
    engine = Engine()
    assert second_pass(engine, run_file, n_alternatives_cases=2) == RunEnd(True)
    names = (UNCHANGED, "contiguous", "float32")
    assert engine.asked == [f"mm-{n} {name}" for n in (3, 2) for name in names]
    run = read_run(run_file)
    assert {key: [a.trial.name for a in tried] for key, tried in run.alternatives.items()} == {
        "mm-3": list(names),
        "mm-2": list(names),
    }
    assert run.trying == frozenset()


def test_a_second_pass_that_was_cut_off_goes_on_behind_the_case_under_way(run_file: Path) -> None:
    second_pass(Engine(), run_file)
    lines = run_file.read_text().splitlines(keepends=True)
    begun = next(n for n, line in enumerate(lines) if '"trying"' in line and '"mm-2"' in line and "float32" in line)
    run_file.write_text("".join(lines[: begun + 1]))
    engine = Engine()
    second_pass(engine, run_file)
    assert engine.asked == [f"mm-1 {name}" for name in (UNCHANGED, "contiguous", "float32")]
    assert len(read_run(run_file).alternatives["mm-2"]) == 2


def test_an_interruption_is_the_end_and_keeps_what_was_tried(run_file: Path) -> None:
    end = second_pass(Engine(KeyboardInterrupt(), after=4), run_file)
    assert end == RunEnd(False, "interrupted while alternatives were tried")
    assert [len(tried) for tried in read_run(run_file).alternatives.values()] == [3, 1]


def test_a_device_that_an_alternative_took_away_leaves_the_run_complete(run_file: Path) -> None:
    end = second_pass(Engine(DeviceLost("the canary op fails"), after=1), run_file)
    assert end == RunEnd(True, "the device was lost while alternatives were tried: the canary op fails")


def test_a_reference_that_cannot_be_started_again_leaves_the_run_complete_and_a_full_disk_does_not(
    run_file: Path,
) -> None:
    end = second_pass(Engine(UnfinishedError("the reference does not start", "reference-lost"), after=1), run_file)
    assert end.complete
    assert end.reason.startswith("no more alternatives were tried: the reference does not start")
    with pytest.raises(UnfinishedError):
        second_pass(Engine(UnfinishedError("cannot write", "disk-full"), after=1), run_file)


@pytest.mark.parametrize("limits", [{"alternatives_limit_s": 0.0}, {"n_alternatives_cases": 0}])
def test_no_time_or_no_cases_is_no_second_pass(run_file: Path, limits: dict[str, Any]) -> None:
    engine = Engine()
    assert second_pass(engine, run_file, **limits) == RunEnd(True)
    assert engine.asked == []


def test_a_time_budget_that_is_spent_leaves_none(run_file: Path) -> None:
    engine = Engine()
    assert second_pass(engine, run_file, deadline=monotonic()) == RunEnd(True)
    assert engine.asked == []


def test_a_case_whose_reference_takes_longer_than_what_is_left_is_passed_over(run_file: Path) -> None:
    engine = Engine()
    second_pass(engine, run_file, alternatives_limit_s=4.0)  # the reference took 1 s, and takes five times that
    assert engine.asked == []
