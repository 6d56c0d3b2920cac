"""Wrong use, damaged files, full disks: one sentence, its exit code, nothing lost (docs/exit-codes.md)."""

from __future__ import annotations

import json
import os
import zipfile
from pathlib import Path

import pytest

from audit.run_folder import alone_in
from tests.session.conftest import ENVIRONMENT, Cli


def sentence(stderr: str) -> str:
    lines = stderr.strip().splitlines()
    assert lines
    assert "Traceback" not in stderr
    assert lines[-1].startswith("rocm-audit: ")
    return lines[-1]


@pytest.mark.parametrize(
    ("arguments", "slug"),
    [
        (["run", "nowhere.py"], "no-target"),
        (["run", "nowhere.audit"], "no-target"),
        (["run"], "bad-arguments"),
        ([], "bad-arguments"),
        (["run", "x.py", "--steps", "0"], "bad-arguments"),
        (["run", "x.py", "--time-budget", "soon"], "bad-arguments"),
        (["run", "x.py", "--fail-on", "purple"], "bad-arguments"),
        (["run", "x.py", "--device", "tpu"], "unknown-device"),
        (["run", "x.py", "--device", "hip"], "no-device"),
        (["run", "x.py", "--device", "sim:nofile.py"], "bad-fault-file"),
        (["run", "x.py", "--device", "none", "--gpu", "gfx9999"], "unknown-gpu"),
        (["run", "x.py", "--resume", "-o", "nothing"], "nothing-to-resume"),
        (["run", "x.py", "--device", "none", "-o", "/proc/nowhere"], "unwritable-output"),
        (["trace", "x.py", "-o", "nowhere/m.audit"], "unwritable-output"),
        (["trace", "x.py", "-o", ".", "--force"], "unwritable-output"),
        (["run", "trace.json"], "unsupported-target"),
        (["report", "nowhere"], "unreadable-run"),
        (["gate", "a", "b"], "unreadable-run"),
        (["dashboard", "a"], "no-such-run"),
        (["explain", "a"], "not-yet"),
    ],
)
def test_wrong_use_is_one_sentence_and_exit_code_2(cli: Cli, tmp_path: Path, arguments: list[str], slug: str) -> None:
    (tmp_path / "x.py").write_text("import torch\ntorch.ones(2).exp()\n")
    (tmp_path / "trace.json").write_text("{}")
    done = cli(*arguments, cwd=tmp_path)
    assert sentence(done.stderr).endswith(f"[{slug}]")
    assert done.returncode == 2
    assert not (tmp_path / "reports" / "x" / "run.jsonl").exists()


@pytest.mark.parametrize(
    ("content", "slug"),
    [
        ("import nothing_of_that_name\n", "bad-fault-file"),
        pytest.param("x = = 3\n", "bad-fault-file", marks=pytest.mark.slow),
        ("FAULTS = 3\n", "bad-fault-file"),
        pytest.param("FAULTS = {'aten::mm.default': 3}\n", "bad-fault-file", marks=pytest.mark.slow),
        pytest.param("", "bad-fault-file", marks=pytest.mark.slow),
    ],
)
def test_a_fault_file_that_does_not_load_is_named(
    simulated_device: None, cli: Cli, opset: Path, tmp_path: Path, content: str, slug: str
) -> None:
    (tmp_path / "faults.py").write_text(content)
    done = cli("run", opset, "--device", "sim:faults.py", "-o", "run", cwd=tmp_path)
    assert sentence(done.stderr).endswith(f"[{slug}]")
    assert "faults.py" in done.stderr
    assert done.returncode == 2


def test_a_damaged_or_newer_trace_is_refused(cli: Cli, device: str, opset: Path, tmp_path: Path) -> None:
    whole = opset.read_bytes()
    for name, content in {"cut": whole[: len(whole) // 2], "empty": b"", "text": b"hello"}.items():
        path = tmp_path / f"{name}.audit"
        path.write_bytes(content)
        done = cli("run", path, "--device", device, "-o", tmp_path / name)
        assert sentence(done.stderr).endswith("[not-an-opset]")
        assert done.returncode == 2
        assert not (tmp_path / name).exists(), "no folder is made for nothing"
    with zipfile.ZipFile(tmp_path / "newer.audit", "w") as archive:
        archive.writestr("trace.json", json.dumps({"format_version": 99}))
    done = cli("run", tmp_path / "newer.audit", "--device", device, "-o", tmp_path / "newer")
    assert sentence(done.stderr).endswith("[newer-format]")
    assert done.returncode == 2


def test_a_run_file_cut_in_a_line_is_reported_and_its_whole_lines_are_kept(
    cli: Cli, device: str, opset: Path, tmp_path: Path
) -> None:
    assert cli("run", opset, "--device", device, "-o", tmp_path / "run").returncode == 0
    file = tmp_path / "run" / "run.jsonl"
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join(lines[:-2]) + lines[-2][:40])
    done = cli("report", tmp_path / "run", "--format", "json")
    assert done.returncode == 0, done.stderr
    assert sentence(done.stderr).endswith("the last line was cut off and is dropped")
    verdicts = json.loads((tmp_path / "run" / "summary.json").read_text())["verdicts"]
    assert [v["status"] for v in verdicts].count("supported") >= len(verdicts) - 1
    file.write_bytes(lines[0].replace(b'"format_version":1', b'"format_version":7') + b"".join(lines[1:]))
    done = cli("report", tmp_path / "run")
    assert sentence(done.stderr).endswith("[newer-format]")
    file.write_bytes(b"".join(lines[:3]) + b"{broken\n" + b"".join(lines[3:]))
    assert "run.jsonl:4" in sentence(cli("report", tmp_path / "run").stderr)


def test_a_run_is_replaced_by_one_that_can_be_made_and_by_no_other(
    cli: Cli, device: str, opset: Path, tmp_path: Path
) -> None:
    run, damaged = tmp_path / "run", tmp_path / "damaged.audit"
    assert cli("run", opset, "--device", device, "-o", run).returncode == 0
    before = {path.name: path.read_bytes() for path in run.iterdir() if path.is_file()}
    whole = bytearray(opset.read_bytes())
    whole[whole.index(b"values.safetensors") + 2_000] ^= 1  # in the values, whose checksum it breaks
    damaged.write_bytes(whole)
    done = cli("run", damaged, "--device", device, "-o", run, "--force")
    assert sentence(done.stderr).endswith("[not-an-opset]")
    assert {path.name: path.read_bytes() for path in run.iterdir() if path.is_file()} == before
    done = cli("run", run / "cases.audit", "--device", device, "-o", run, "--force", "--format", "json")
    assert done.returncode == 0, done.stderr
    assert (run / "cases.audit").read_bytes() == before["cases.audit"]
    assert not (run / "report.html").exists(), "it would be one of the run before"


@pytest.mark.skipif(os.geteuid() != 0 or not Path("/dev/full").exists(), reason="needs root to mount a small disk")
def test_a_full_disk_keeps_what_was_written(cli: Cli, device: str, opset: Path, tmp_path: Path) -> None:
    import subprocess

    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(small)], check=False, capture_output=True
    )
    if mounted.returncode != 0:
        pytest.skip(f"cannot mount a small disk here: {mounted.stderr.decode().strip()}")
    try:
        done = cli("run", opset, "--device", device, "-o", small / "run")
        assert done.returncode == 3
        assert "No space left on device" in sentence(done.stderr)
    finally:
        subprocess.run(["umount", str(small)], check=True)


def test_a_program_that_does_not_fit_in_memory_is_one_sentence(cli: Cli, device: str, tmp_path: Path) -> None:
    (tmp_path / "x.py").write_text("import torch\ntorch.ones(4).exp()\ntorch.ones(1 << 48)\n")
    done = cli("run", "x.py", "--device", device, "-o", "run", cwd=tmp_path, env=ENVIRONMENT)
    assert done.returncode == 3
    assert "can't allocate memory" in sentence(done.stderr)
    assert "aten::exp.default" in (tmp_path / "run" / "summary.json").read_text()


@pytest.mark.slow
def test_two_audits_do_not_share_a_folder(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "x.py").write_text("import torch\ntorch.ones(2).exp()\n")
    with alone_in(tmp_path):
        done = cli("run", "x.py", "--device", "none", "-o", ".", "--force", cwd=tmp_path)
    assert sentence(done.stderr).endswith("[busy]")
    assert done.returncode == 2
    assert not (tmp_path / "run.jsonl").exists()
    assert cli("run", "x.py", "--device", "none", "-o", ".", cwd=tmp_path).returncode == 0


@pytest.mark.slow
def test_a_program_of_which_nothing_can_be_replayed_is_no_success(cli: Cli, device: str, tmp_path: Path) -> None:
    (tmp_path / "prog.py").write_text("import torch\ntorch.empty(3, device='meta').sin()\n")
    done = cli("run", tmp_path / "prog.py", "--device", device, "-o", tmp_path / "run")
    assert done.returncode == 3
    assert "nothing was judged: no case came of 2 recorded calls" in " ".join(done.stdout.split())
    assert done.stderr.splitlines()[-1].endswith("[no-ops]")
