"""How commands speak: colours, closed and foreign streams, a reader that goes away."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

import audit
from audit.cli import main
from audit.opset import write_opset
from audit.schema import DeviceInfo, Source, Trace
from audit.terminal import has_colour, is_live

ROOT = Path(audit.__file__).resolve().parents[1]


class Tty(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stream", "environment", "colour"),
    [
        (Tty(), {}, True),
        (io.StringIO(), {}, False),
        (Tty(), {"NO_COLOR": "1"}, False),
        (Tty(), {"NO_COLOR": ""}, True),
        (io.StringIO(), {"FORCE_COLOR": "1"}, True),
        (io.StringIO(), {"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
        (Tty(), {"TERM": "dumb"}, False),
        (Tty(), {"TERM": "dumb", "FORCE_COLOR": "1"}, True),
    ],
)
def test_colours_are_for_terminals_and_the_environment_has_the_last_word(
    stream: io.StringIO, environment: dict[str, str], colour: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert has_colour(stream) is colour


def test_a_log_is_never_drawn_over_even_where_colours_are_forced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert not is_live(io.StringIO())


@pytest.fixture
def trace_file(tmp_path: Path) -> Path:
    path = tmp_path / "m.audit"
    write_opset(path, Trace(Source("script", "net.py"), {}, ()), None)
    return path


def audit_shell(command: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Through a shell, whose pipes and closed streams are those of a person; ``$AUDIT`` is the command."""
    script = command.replace("$AUDIT", f"'{sys.executable}' -m audit")
    return subprocess.run(
        ["bash", "-c", script], cwd=cwd, capture_output=True, text=True, timeout=120, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment}, stdin=subprocess.DEVNULL,
    )  # fmt: skip


def test_a_reader_that_goes_away_is_left_in_peace(trace_file: Path, tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-m", "audit", "trace", "show", trace_file], stdout=writing, stderr=subprocess.PIPE,
        text=True, timeout=120, check=False, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    os.close(writing)
    assert (done.returncode, done.stderr) == (3, "")


def test_a_result_that_a_full_disk_does_not_take_is_no_success(trace_file: Path, tmp_path: Path) -> None:
    done = audit_shell("$AUDIT trace show m.audit > /dev/full", tmp_path)
    assert done.returncode == 3
    assert done.stderr.splitlines()[0].endswith("[system-error]")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_do_no_harm(trace_file: Path, tmp_path: Path, closed: str) -> None:
    done = audit_shell(f"$AUDIT trace merge m.audit m.audit -o both.audit {closed}", tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    shown = audit_shell("$AUDIT trace show both.audit --json", tmp_path)
    assert shown.returncode == 0, "the file is whole: nothing was printed into it"


def test_a_name_that_is_no_text_is_shown_as_an_escape(trace_file: Path, tmp_path: Path) -> None:
    strange = os.fsencode(tmp_path) + b"/\xff\x1b[31m.audit"
    os.rename(trace_file, strange)
    done = audit_shell("$AUDIT trace show *.audit", tmp_path)
    assert done.returncode == 0
    assert done.stdout.startswith("\\udcff\\x1b[31m.audit: net.py")


def test_a_name_in_an_error_cannot_steer_the_terminal(tmp_path: Path) -> None:
    (tmp_path / "a\x1b[31m.audit").write_text("no trace")
    done = audit_shell("$AUDIT trace show *.audit", tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("rocm-audit: a\\x1b[31m.audit is not an .audit file")


def test_a_terminal_without_utf_8_gets_escapes(trace_file: Path, tmp_path: Path) -> None:
    done = audit_shell("$AUDIT trace show m.audit", tmp_path, PYTHONIOENCODING="ascii")
    assert done.returncode == 0
    assert done.stdout.isascii()


def test_an_interruption_is_one_sentence(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(path: Path) -> DeviceInfo:
        raise KeyboardInterrupt

    monkeypatch.setattr("audit.opset.file.open_opset", interrupted)
    assert main(["trace", "show", "m.audit"]) == 3
    assert capsys.readouterr().err.rstrip().endswith("[interrupted]")
