"""What a waiting person sees, on a real (pseudo) terminal and in a log."""

from __future__ import annotations

import contextlib
import math
import os
import pty
import re
import sys
from collections.abc import Callable
from time import monotonic

import pytest

from audit.codec import case_key
from audit.progress import Progress, Stage, clock
from audit.run_records import RunHeader
from audit.schema import Case, DeviceInfo, Measurement, Outcome, Path, Source, TensorSpec

SQUARE = TensorSpec((4, 4), (4, 1), "float32", extent=16)
OPS = ("aten::relu.default", "aten::neg.default", "aten::exp.default", "evil::\x1b[2Jop.default")
CASES = tuple(Case(case_key(op, (SQUARE,), (), "forward", None), op, (SQUARE,)) for op in OPS)
HEADER = RunHeader(
    "simulated", Source("script", "net.py"), DeviceInfo("sim", "simulated device", "gfx942"), {}, {},
    "2026-11-30T12:00:00+00:00", "0.1.0", n_cases=4, n_recorded=4,
)  # fmt: skip
RAISED = Outcome("raised", "RuntimeError", "HIP error: invalid device function")


def measurement(case: Case, device: Outcome) -> Measurement:
    return Measurement(case.key, Outcome("ok"), device, (), Path(False, False))


def replay(progress: Progress, deadline: float = math.inf) -> None:
    """The first case was measured before; the others raise."""
    with progress:
        progress.phase("tracing net.py")
        progress.replaying(HEADER, CASES, CASES[1:], {CASES[0].key: measurement(CASES[0], RAISED)}, deadline)
        for case in CASES[1:]:
            progress.started(case.op)
            progress.measured(measurement(case, RAISED))


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[[], str]:
    """What stands on stderr, which is no terminal here."""
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    return lambda: capsys.readouterr().err


def test_a_log_gets_lines_without_control_characters(log: Callable[[], str]) -> None:
    replay(Progress())
    shown = log()
    assert "\x1b" not in shown
    assert [re.sub(r"\d:\d\d", "0:00", line) for line in shown.splitlines()] == [
        "tracing net.py",
        "replaying 3 cases on simulated device (simulated), 1 measured before",
        "3 of 3 cases, 0:00: ✗ 4 unsupported",
    ]


def test_a_log_gets_a_line_now_and_then(log: Callable[[], str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("audit.progress.LOG_INTERVAL_S", -1.0)
    replay(Progress(), monotonic() + 1000)
    shown = log()
    lines = shown.splitlines()
    assert re.fullmatch(r"0 of 3 cases, 0:0\d, budget 16:\d\d: ✗ 1 unsupported; now neg", lines[2])
    assert re.fullmatch(r"2 of 3 cases, 0:0\d, budget 16:\d\d: ✗ 3 unsupported; now exp", lines[5])
    assert re.fullmatch(r"2 of 3 cases.*; now evil::\\x1b\[2Jop", lines[6])
    assert "\x1b" not in shown


def test_verbose_has_a_line_for_each_case(log: Callable[[], str]) -> None:
    replay(Progress(verbose=True))
    found = [line for line in log().splitlines() if "f32[4, 4]" in line]
    assert len(found) == 3
    assert found[0].startswith("✗ unsupported neg f32[4, 4]: ")
    assert "invalid device function" in found[0]


def test_quiet_says_nothing(log: Callable[[], str]) -> None:
    replay(Progress(quiet=True))
    assert log() == ""


def seen_on_a_terminal(monkeypatch: pytest.MonkeyPatch, audit: Callable[[], None]) -> str:
    """What ``audit`` writes to stderr, which is a pseudo terminal meanwhile."""
    monkeypatch.setenv("TERM", "xterm")
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    person, program = pty.openpty()
    with os.fdopen(program, "w", encoding="utf-8") as stream, monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", stream)
        audit()
    seen = b""
    with contextlib.suppress(OSError):  # how Linux tells that a terminal was closed
        while block := os.read(person, 1 << 16):
            seen += block
    os.close(person)
    return seen.decode()


def test_a_terminal_gets_a_panel_that_goes_away(monkeypatch: pytest.MonkeyPatch) -> None:
    def audit() -> None:
        with Progress() as progress:
            progress.replaying(HEADER, CASES, CASES, None, monotonic() + 100)
            for case in CASES:
                progress.started(case.op)
                progress.measured(measurement(case, RAISED))
            progress.phase("judging")

    seen = seen_on_a_terminal(monkeypatch, audit)
    assert seen.count("\x1b[?25l") == 1
    assert seen.count("\x1b[?25h") == 1, "the cursor is there again"
    assert re.search(r"0 of 4 cases, 0:0\d, budget 1:\d\d", seen)
    assert re.search(r"4 of 4 cases, 0:0\d: \x1b\[1;31m✗ 4 unsupported\x1b\[0m\r\njudging\r\n$", seen)
    assert "\x1b[2Jop" not in seen


def test_an_interrupted_replay_gives_the_cursor_back(monkeypatch: pytest.MonkeyPatch) -> None:
    def audit() -> None:
        with contextlib.suppress(KeyboardInterrupt), Progress() as progress:
            progress.replaying(HEADER, CASES, CASES)
            raise KeyboardInterrupt

    seen = seen_on_a_terminal(monkeypatch, audit)
    assert seen.index("\x1b[?25l") < seen.index("\x1b[?25h")


def test_what_is_left_is_told_by_the_pace_so_far() -> None:
    stage = Stage("replay", "cases", began=100.0, total=30, n_done=10)
    assert stage.left_s(120.0) == 40.0
    assert Stage("replay", "cases", began=100.0, total=30, n_done=2).left_s(120.0) is None


@pytest.mark.parametrize(("seconds", "shown"), [(0, "0:00"), (62.9, "1:02"), (3723, "1:02:03"), (360000, "100:00:00")])
def test_times_are_shown_as_a_clock(seconds: float, shown: str) -> None:
    assert clock(seconds) == shown
