"""Run files survive a cut at any byte, and say what is wrong with any other damage."""

from __future__ import annotations

from pathlib import Path

import pytest

from audit.errors import UnfinishedError, UsageError
from audit.schema import Case, DeviceInfo, Measurement, Outcome, RunEnd, RunHeader, Source, TensorSpec
from audit.store import RunWriter, read_run

CASES = tuple(Case(f"sin-{i}", "aten::sin.default", (TensorSpec((i,), (1,), "float32", extent=i),)) for i in range(3))
HEADER = RunHeader(
    evidence="simulated",
    source=Source("script", "m.py"),
    device=DeviceInfo("sim", "simulated device", "sim"),
    environment={"torch": "2.13.0"},
    settings={},
    created="2026-11-30T00:00:00+00:00",
    audit_version="0",
    n_cases=3,
    n_recorded=3,
)


def measured(key: str) -> Measurement:
    return Measurement(key, Outcome("ok"), Outcome("ok"))


def write(path: Path) -> None:
    with RunWriter.create(path, HEADER, CASES) as writer:
        for case in CASES:
            writer.started(case.key)
            writer.measured(measured(case.key))
        writer.end(RunEnd(True))


def test_what_was_written_is_what_is_read(tmp_path: Path) -> None:
    write(tmp_path / "run.jsonl")
    run = read_run(tmp_path)
    assert (run.header, run.cases) == (HEADER, CASES)
    assert run.measurements == {case.key: measured(case.key) for case in CASES}
    assert (run.started, run.end, run.warnings) == (frozenset(), RunEnd(True), ())


def test_a_file_cut_at_any_byte_behind_its_header_can_be_read_and_resumed(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    write(path)
    whole = path.read_bytes()
    first = whole.index(b"\n") + 1
    for cut in range(first, len(whole)):
        path.write_bytes(whole[:cut])
        run = read_run(path)
        n_whole_lines = whole[:cut].count(b"\n")
        n_done = sum(line.startswith(b'{"measurement"') for line in whole.split(b"\n")[:n_whole_lines])
        assert len(run.measurements) == n_done
        n_missing = len(CASES) - len(run.cases)
        assert len(run.warnings) == (not whole[:cut].endswith(b"\n")) + (n_missing > 0)
        assert len(run.started) <= 1
        with RunWriter.resume(path) as writer:
            writer.cases(CASES[len(run.cases) :])
            writer.measured(measured("sin-2"))
        assert "sin-2" in read_run(path).measurements
        assert {case.key for case in read_run(path).cases} == {case.key for case in CASES}
        assert read_run(path).warnings == ()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"\n", "run.jsonl:1 is not JSON"),
        (b"hello\n", "run.jsonl:1 is not JSON"),
        (b"[1]\n", "run.jsonl:1 is no record"),
        (b'{"case":{}}\n', "its first line is no header"),
        (b'{"header":{"format_version":2}}\n', "has run format 2, this rocm-audit reads up to 1"),
        (b'{"header":{"format_version":1}}\n', "RunHeader lacks the field"),
        (b'{"header":3}\n', "expected an object for RunHeader"),
        (b"[" * 100000 + b"\n", "run.jsonl:1 is not JSON"),
    ],
)
def test_a_file_that_is_no_run_is_one_sentence(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "run.jsonl").write_bytes(content)
    with pytest.raises(UsageError, match=message):
        read_run(tmp_path)


def test_a_missing_run_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot read the run file .*nowhere.*\[unreadable-run\]"):
        read_run(tmp_path / "nowhere")


def test_a_full_disk_says_that_what_was_measured_is_kept() -> None:
    with pytest.raises(UnfinishedError, match=r"No space left.*--resume \[disk-full\]"):
        RunWriter.create(Path("/dev/full"), HEADER, CASES)


def test_a_run_that_claims_more_evidence_than_its_device_gives_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "run.jsonl")
    content = (tmp_path / "run.jsonl").read_text().replace('"evidence":"simulated"', '"evidence":"measured"', 1)
    (tmp_path / "run.jsonl").write_text(content)
    with pytest.raises(UsageError, match="calls itself measured, and its device 'sim' gives only simulated evidence"):
        read_run(tmp_path)
