"""Run files survive a cut at any byte, and say what is wrong with any other damage."""

from __future__ import annotations

from pathlib import Path

import pytest

from audit.errors import UnfinishedError, UsageError
from audit.run_records import Alternative, Change, RunEnd, RunHeader, Trial, Trying
from audit.schema import Case, DeviceInfo, Measurement, Outcome, Source, TensorSpec
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


def test_a_case_that_an_interrupted_audit_gave_back_was_never_started(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with RunWriter.create(path, HEADER, CASES) as writer:
        for case in CASES[1:]:
            writer.started(case.key)
        writer.end(RunEnd(False, "interrupted", ("sin-1",)))
    assert read_run(path).started == frozenset({"sin-2"})
    with RunWriter.resume(path) as writer:
        writer.started("sin-1")
    assert read_run(path).started == frozenset({"sin-1", "sin-2"})


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
        (b"\0" * 100, "its first line has no end"),
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


#: As a run file has them, with a rate that cannot be.
CEILINGS = b'{"copy_gbs":{"median":-4,"iqr":0,"n":9},"gemm_tflops":{},"launch_us":{"median":4,"iqr":0,"n":9}}'


def lines_of(path: Path) -> list[bytes]:
    write(path)
    return path.read_bytes().splitlines(keepends=True)


@pytest.mark.parametrize(
    ("line", "old", "new", "message"),
    [
        (2, b'"n_cases":3', b'"n_cases":-3', r"RunHeader.n_cases is -3"),
        (2, b'"key":"sin-0"', b'"key":"sin-0","n_calls":-1', r"Case.n_calls is -1"),
        (2, b'"key":"sin-0"', b'"key":"../../x"', r"the key '../../x' of a case is no plain name"),
        (2, b'"sizes":[0]', b'"sizes":[-1]', r"case sin-0 has a tensor of sizes \(-1\)"),
        (3, b'"key":"sin-1"', b'"key":"sin-0"', r"another case of the key 'sin-0'"),
        (5, b'"started":"sin-0"', b'"started":"tan-0"', r"about a case that is not in the run"),
        (5, b'"started":"sin-0"', b'"started":["sin-0"]', r"about a case that is not in the run"),
        (6, b'"key":"sin-0"', b'"key":"tan-0"', r"about a case that is not in the run"),
        (6, b'"key":"sin-0"', b'"key":"sin-0","peak_bytes":-5', r"Measurement.peak_bytes is -5"),
        (
            6,
            b'"key":"sin-0"',
            b'"key":"sin-0","device_time":{"median_us":"inf","iqr_us":0,"n":1}',
            r"Timing.median_us is inf",
        ),
        (1, b'"n_cases":3', b'"n_cases":3,"ceilings":' + CEILINGS, r"Rate.median is -4"),
        (6, b'"kind":"ok"', b'"kind":"fine"', r"expected one of ok, raised"),
        (6, b'{"measurement"', b'{"header"', r"is a second header"),
    ],
)
def test_a_line_that_no_audit_writes_is_named(tmp_path: Path, line: int, old: bytes, new: bytes, message: str) -> None:
    lines = lines_of(tmp_path / "run.jsonl")
    index = 0 if b"n_cases" in old else line - 1
    assert old in lines[index]
    lines[index] = lines[index].replace(old, new, 1)
    (tmp_path / "run.jsonl").write_bytes(b"".join(lines))
    with pytest.raises(UsageError, match=rf"run.jsonl:{index + 1}.*{message}.* \[malformed-record\]$"):
        read_run(tmp_path)


@pytest.mark.parametrize("what", [b"NaN", b"1" * 5000, b'"\\ud800"', b"[" * 5000])
def test_json_that_we_do_not_write_is_refused(tmp_path: Path, what: bytes) -> None:
    lines = lines_of(tmp_path / "run.jsonl")
    (tmp_path / "run.jsonl").write_bytes(lines[0] + b'{"future":' + what + b"}\n")
    with pytest.raises(UsageError, match=r"run.jsonl:2 is not JSON .* \[not-a-run\]$"):
        read_run(tmp_path)


def test_records_of_a_newer_writer_are_passed_over(tmp_path: Path) -> None:
    lines = lines_of(tmp_path / "run.jsonl")
    (tmp_path / "run.jsonl").write_bytes(b"".join([*lines[:4], b'{"weather":"fine"}\n', *lines[4:]]))
    assert len(read_run(tmp_path).measurements) == 3


def test_a_line_or_a_file_without_end_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with path.open("wb") as file:
        file.truncate(1 << 30)  # a hole: one line of zeros
    with pytest.raises(UsageError, match=r"has a line of over 67108864 bytes.* \[not-a-run\]$"):
        read_run(path)
    with path.open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(UsageError, match=r"has 1,099,511,627,776 bytes, over .* \[unreadable-run\]$"):
        read_run(path)
    with pytest.raises(UsageError, match=r"it is no ordinary file \[unreadable-run\]$"):
        read_run(Path("/dev/zero"))


# --- what was tried instead --------------------------------------------------------------------------------------

TRIAL = Trial("sin-0", "contiguous", "inputs made contiguous", Change(layout="contiguous"))
TRIED = Alternative(TRIAL, measured("sin-0"))
FORCED = Alternative(Trial("sin-0", "math", "", Change(settings=(("a", True), ("b", "ieee")))), measured("sin-0"))


def test_alternatives_are_read_as_written_and_one_without_an_end_stays_begun(tmp_path: Path) -> None:
    write(tmp_path / "run.jsonl")
    with RunWriter.resume(tmp_path / "run.jsonl") as writer:
        for alternative in (TRIED, FORCED):
            writer.trying(Trying("sin-0", alternative.trial.name))
            writer.tried(alternative)
        writer.trying(Trying("sin-1", "float32"))
    run = read_run(tmp_path)
    assert run.alternatives == {"sin-0": (TRIED, FORCED)}
    assert run.trying == frozenset({Trying("sin-1", "float32")})
    assert run.end is None


def test_a_run_of_before_alternatives_has_none(tmp_path: Path) -> None:
    write(tmp_path / "run.jsonl")
    run = read_run(tmp_path)
    assert (run.alternatives, run.trying) == ({}, frozenset())


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"trying":{"key":"cos-0","name":"x"}}', "a case that is not in the run"),
        ('{"trying":{"key":"sin-0"}}', "Trying lacks the field 'name'"),
        ('{"alternative":{"trial":{"key":"sin-0"}}}', "Trial lacks the field 'name'"),
        (
            '{"alternative":{"trial":{"key":"cos-0","name":"x","what":"","change":{}},'
            '"measurement":{"key":"cos-0","reference":{"kind":"ok"},"device":{"kind":"ok"}}}}',
            "an alternative to a case that was not measured",
        ),
        (
            '{"alternative":{"trial":{"key":"sin-0","name":"x","what":"","change":{"layout":"diagonal"}},'
            '"measurement":{"key":"sin-0","reference":{"kind":"ok"},"device":{"kind":"ok"}}}}',
            "expected one of contiguous, channels_last",
        ),
    ],
)
def test_a_malformed_trial_is_named_by_its_line(tmp_path: Path, line: str, message: str) -> None:
    write(tmp_path / "run.jsonl")
    with (tmp_path / "run.jsonl").open("a") as file:
        file.write(line + "\n")
    with pytest.raises(UsageError, match=message) as caught:
        read_run(tmp_path)
    assert "run.jsonl:12" in str(caught.value)
