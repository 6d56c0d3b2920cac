"""A killed audit goes on: no measured case is lost, and the case under way is judged as what it did."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from audit.store import read_run
from tests.session.conftest import ENVIRONMENT, Cli


def verdicts(folder: Path) -> dict[str, tuple[str, list[str]]]:
    summary = json.loads((folder / "summary.json").read_text())
    return {v["key"]: (v["status"], sorted(f["code"] for f in v["findings"])) for v in summary["verdicts"]}


def start_and_wait(opset: Path, device: str, folder: Path, n_bytes: int) -> subprocess.Popen[bytes]:
    """Starts a run; returns as soon as its run file has grown by ``n_bytes`` beyond the cases."""
    process = subprocess.Popen(
        [sys.executable, "-m", "audit", "run", str(opset), "--device", device, "-o", str(folder), "-q"],
        env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    file, base = folder / "run.jsonl", None
    while process.poll() is None:
        size = file.stat().st_size if file.exists() else 0
        if size and base is None:
            base = size
        if base is not None and size - base >= n_bytes:
            break
        time.sleep(0.0005)
    return process


def kill_after(opset: Path, device: str, folder: Path, n_bytes: int) -> None:
    """Starts a run and SIGKILLs it as soon as its run file has grown by ``n_bytes`` beyond the cases."""
    process = start_and_wait(opset, device, folder, n_bytes)
    process.send_signal(signal.SIGKILL)
    process.wait()


def kill_and_resume(
    cli: Cli, opset: Path, device: str, folder: Path, n_bytes: int, cut: int, whole: dict[str, tuple[str, list[str]]]
) -> None:
    kill_after(opset, device, folder, n_bytes)
    file = folder / "run.jsonl"
    measured_before = set(read_run(folder).measurements)
    # A kill can also fall between two bytes of a line; the file is then cut there.
    content = file.read_bytes()
    n_header = content.index(b'{"started"') if b'{"started"' in content else len(content)
    file.write_bytes(content[: max(n_header, len(content) - cut)])
    cut_off = read_run(folder)
    measured_before &= set(cut_off.measurements)
    under_way = set(cut_off.started)
    done = cli("run", opset, "--device", device, "-o", folder, "--resume", "-q")
    assert done.returncode == 0, done.stderr
    after = verdicts(folder)
    assert measured_before <= set(read_run(folder).measurements)
    assert len(under_way) <= 1
    assert {k: v for k, v in after.items() if k not in under_way} == {
        k: v for k, v in whole.items() if k not in under_way
    }
    for key in under_way:
        assert after[key] == ("unsupported", ["SUP104"])


@pytest.fixture(scope="module")
def uninterrupted(
    cli: Cli, opset: Path, device: str, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, tuple[str, list[str]]]:
    folder = tmp_path_factory.mktemp("whole") / "run"
    assert cli("run", opset, "--device", device, "-o", folder, "-q").returncode == 0
    return verdicts(folder)


def test_a_killed_run_resumes_to_the_same_verdicts(
    cli: Cli, opset: Path, device: str, tmp_path: Path, uninterrupted: dict
) -> None:  # type: ignore[type-arg]
    kill_and_resume(cli, opset, device, tmp_path / "run", 1500, 11, uninterrupted)


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_twenty_kills_at_random_moments_mid_line_too(
    cli: Cli, opset: Path, device: str, tmp_path: Path, uninterrupted: dict
) -> None:  # type: ignore[type-arg]
    dice = random.Random(20)
    for number in range(20):
        cut = dice.randrange(0, 60) if number % 2 else 0
        kill_and_resume(cli, opset, device, tmp_path / str(number), dice.randrange(0, 6000), cut, uninterrupted)


@pytest.mark.slow
def test_the_case_under_way_is_run_again_only_when_asked(
    cli: Cli, opset: Path, device: str, tmp_path: Path, uninterrupted: dict
) -> None:  # type: ignore[type-arg]
    folder = tmp_path / "run"
    assert cli("run", opset, "--device", device, "-o", folder, "-q").returncode == 0
    file = folder / "run.jsonl"
    lines = file.read_text().splitlines(keepends=True)
    last = max(i for i, line in enumerate(lines) if line.startswith('{"started"'))
    file.write_text("".join(lines[: last + 1]))
    assert cli("run", opset, "--device", device, "-o", folder, "--resume", "-q").returncode == 0
    [under_way] = [key for key, (_, codes) in verdicts(folder).items() if codes == ["SUP104"]]
    assert under_way == json.loads(lines[last])["started"]
    assert cli("run", opset, "--device", device, "-o", folder, "--resume", "--retry-started", "-q").returncode == 0
    assert verdicts(folder) == uninterrupted


def test_the_auditors_death_takes_its_children_along(opset: Path, device: str, tmp_path: Path) -> None:
    kill_after(opset, device, tmp_path / "run", 200)
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        left = [
            path
            for path in Path("/proc").glob("[0-9]*/cmdline")
            if str(tmp_path).encode() in _read(path) or (b"audit.replay.worker" in _read(path) and _parent(path) == 1)
        ]
        if not left:
            break
        time.sleep(0.2)
    assert left == []


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _parent(path: Path) -> int:
    status = _read(path.with_name("status")).decode(errors="replace")
    return next((int(line.split()[1]) for line in status.splitlines() if line.startswith("PPid:")), 0)


@pytest.mark.slow
def test_a_kill_while_the_cases_were_written_loses_none_of_them(
    cli: Cli, opset: Path, device: str, tmp_path: Path, uninterrupted: dict[str, tuple[str, list[str]]]
) -> None:
    kill_after(opset, device, tmp_path, 1)
    lines = (tmp_path / "run.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / "run.jsonl").write_bytes(b"".join(lines[:3]) + lines[3][:20])
    assert "cases are missing" in read_run(tmp_path).warnings[-1]
    done = cli("run", opset, "--device", device, "-o", tmp_path, "--resume", "-q")
    assert done.returncode == 0, done.stderr
    assert verdicts(tmp_path) == uninterrupted


@pytest.mark.slow
def test_a_run_is_not_resumed_with_another_program_or_trace(cli: Cli, opset: Path, device: str, tmp_path: Path) -> None:
    kill_after(opset, device, tmp_path / "out", 1)
    (tmp_path / "x.py").write_text("import torch\ntorch.ones(2).exp()\n")
    assert cli("trace", "x.py", "-o", "x.audit", cwd=tmp_path).returncode == 0
    for other in ("x.py", "x.audit"):
        done = cli("run", other, "--device", device, "-o", "out", "--resume", cwd=tmp_path)
        assert done.returncode == 2
        assert done.stderr.strip().endswith("[other-program]")
    (tmp_path / "x.audit").replace(tmp_path / "out" / "cases.audit")
    done = cli("run", opset, "--device", device, "-o", "out", "--resume", cwd=tmp_path)
    assert done.stderr.strip().endswith("[other-program]")


def test_a_terminated_audit_reports_what_it_measured(opset: Path, device: str, tmp_path: Path) -> None:
    process = start_and_wait(opset, device, tmp_path / "out", 100)
    for _ in range(2):  # as `timeout` does: the process, then the group that it is in
        process.send_signal(signal.SIGTERM)
        time.sleep(0.05)
    assert process.wait(60) == 3
    assert (tmp_path / "out" / "report.html").exists()
    run = read_run(tmp_path / "out")
    assert run.end is not None
    assert (run.end.complete, run.end.reason) == (False, "interrupted")
    assert run.started == frozenset()  # what was given back is neither crashed nor hung
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert {verdict["status"] for verdict in summary["verdicts"]} == {"supported", "inconclusive"}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_program_does_not_outlive_its_auditor(tmp_path: Path, number: signal.Signals) -> None:
    note = tmp_path / "pid"
    (tmp_path / "x.py").write_text(
        f"import os, time\nopen({str(note)!r}, 'w').write(str(os.getpid()))\ntime.sleep(300)\n"
    )
    auditor = subprocess.Popen(
        [sys.executable, "-m", "audit", "run", "x.py", "--device", "none", "-o", "out"],
        cwd=tmp_path, env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    while not (note.exists() and note.read_text()) and auditor.poll() is None:
        time.sleep(0.05)
    auditor.send_signal(number)
    _, said = auditor.communicate(timeout=60)
    assert "Traceback" not in said
    if number == signal.SIGTERM:
        assert auditor.returncode == 3
        assert "rocm-audit: interrupted" in said
    program = Path("/proc", note.read_text())
    deadline = time.monotonic() + 10
    while program.exists() and "\nState:\tZ" not in (program / "status").read_text() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not program.exists() or "\nState:\tZ" in (program / "status").read_text()
