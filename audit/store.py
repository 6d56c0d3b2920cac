"""Run files: an append-only JSON-lines log of one audit, safe against SIGKILL at any byte.

Lines: ``{"header": ...}``, then ``{"case": ...}`` for each case, then ``{"started": KEY}`` and
``{"measurement": ...}`` as they come, then ``{"trying": ...}`` and ``{"alternative": ...}`` of what was tried instead,
then ``{"end": ...}``. Of a step that was played whole (``--drift``): ``{"drift_started": ...}`` and
``{"drift_step": ...}`` for each of its calls, then ``{"drift_end": ...}``. A line that was cut off by a kill is dropped
when read and when writing goes on.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, TypeVar

from audit import strict_json
from audit.codec import DecodeError, decode, encode
from audit.drift_records import Drift, DriftEnd, DriftStarted, DriftStep
from audit.errors import UnfinishedError, UsageError
from audit.ordinary_file import open_ordinary
from audit.run_records import Alternative, Run, RunEnd, RunHeader, Trying
from audit.schema import EVIDENCE_BY_BACKEND, FORMAT_VERSION, Case, Measurement
from audit.validity import check_amounts, check_case, check_step

T = TypeVar("T")

_DRIFT_NAMES = {DriftStarted: "drift_started", DriftStep: "drift_step", DriftEnd: "drift_end"}

#: A case and its measurement have some 5 KB, one of a fused optimizer over 1,000 parameters a megabyte.
MAX_LINE_BYTES = 1 << 26
MAX_RUN_BYTES = 1 << 31


class RunWriter:
    """Appends to a run file. Every line is complete on disk (fsync) before the call returns."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self._path = path
        self._descriptor = descriptor

    @classmethod
    def create(cls, path: Path, header: RunHeader, cases: Iterable[Case]) -> RunWriter:
        """Starts a new run file. Raises UsageError when it cannot be created there, UnfinishedError on a full disk."""
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o644)
        except OSError as error:
            raise UsageError(
                f"cannot write {path}: {error.strerror}; choose another folder with -o", "unwritable-output"
            ) from error
        writer = cls(path, descriptor)
        writer._append([{"header": encode(header)}, *({"case": encode(case)} for case in cases)])
        return writer

    @classmethod
    def resume(cls, path: Path) -> RunWriter:
        """Goes on with a run file, dropping a last line that was cut off."""
        with path.open("r+b") as file:
            content = file.read()
            whole = content.rfind(b"\n") + 1
            if whole != len(content):
                file.truncate(whole)
        return cls(path, os.open(path, os.O_WRONLY | os.O_APPEND))

    def cases(self, cases: Iterable[Case]) -> None:
        """Adds what a kill kept from being written when the run began."""
        self._append([{"case": encode(case)} for case in cases])

    def started(self, key: str) -> None:
        """Notes that the device is about to be touched for ``key``."""
        self._append([{"started": key}])

    def measured(self, measurement: Measurement) -> None:
        self._append([{"measurement": encode(measurement)}])

    def all_measured(self, measurements: Iterable[Measurement]) -> None:
        """Notes what another tool has measured: there is nothing to lose between one and the next."""
        self._append([{"measurement": encode(measurement)} for measurement in measurements])

    def trying(self, trying: Trying) -> None:
        """Notes that the device is about to be touched for an alternative."""
        self._append([{"trying": encode(trying)}])

    def tried(self, alternative: Alternative) -> None:
        self._append([{"alternative": encode(alternative)}])

    def drifted(self, record: DriftStarted | DriftStep | DriftEnd) -> None:
        """Notes a call of the step that is played whole: that the device is about to be touched, or what was seen."""
        self._append([{_DRIFT_NAMES[type(record)]: encode(record)}])

    def end(self, end: RunEnd) -> None:
        self._append([{"end": encode(end)}])

    def _append(self, records: list[dict[str, Any]]) -> None:
        data = "".join(strict_json.dumps(record) + "\n" for record in records).encode()
        try:
            while data:
                data = data[os.write(self._descriptor, data) :]
            os.fsync(self._descriptor)
        except OSError as error:
            raise UnfinishedError(
                f"cannot write to {self._path}: {error.strerror}; what was measured so far is kept, "
                "free space and go on with --resume",
                "disk-full",
            ) from error

    def close(self) -> None:
        os.close(self._descriptor)

    def __enter__(self) -> RunWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def read_run(path: Path) -> Run:
    """Reads a run file or the ``run.jsonl`` of a run directory.

    A cut-off last line is dropped with a warning. Raises UsageError for a missing file, a file that is no run file, one
    of a newer format, or one with a malformed line (its number is named). It may come from a stranger: see
    ``audit.validity``.
    """
    if path.is_dir():
        path = path / "run.jsonl"
    return _assemble(path, _lines(path))


def read_content(path: Path, content: bytes, known: dict[bytes, Case] | None = None) -> Run:
    """A run file that is in memory already; ``path`` is for messages. Raises as ``read_run`` does.

    Whoever reads many runs of one opset gives what was ``known`` from the last: sound cases by their lines, which are
    taken from there and put there.
    """
    return _assemble(path, _checked(path, io.BytesIO(content)), known)


def _lines(path: Path) -> Iterator[bytes]:
    """The lines with their ends; the last has none where it was cut off. Raises UsageError before one of no measure."""
    try:
        with open_ordinary(path) as file:
            n_bytes = os.fstat(file.fileno()).st_size
            if n_bytes > MAX_RUN_BYTES:
                raise UsageError(
                    f"{path} has {n_bytes:,} bytes, over {MAX_RUN_BYTES:,}; audit the program in parts",
                    "unreadable-run",
                )
            yield from _checked(path, file)
    except OSError as error:
        raise UsageError(f"cannot read the run file {path}: {error.strerror}", "unreadable-run") from error


def _checked(path: Path, file: BinaryIO) -> Iterator[bytes]:
    while line := file.readline(MAX_LINE_BYTES + 1):
        if len(line) > MAX_LINE_BYTES:
            raise UsageError(f"{path} has a line of over {MAX_LINE_BYTES} bytes, and is no run file", "not-a-run")
        yield line


def _assemble(path: Path, lines: Iterable[bytes], known: dict[bytes, Case] | None = None) -> Run:
    header: RunHeader | None = None
    cases: dict[str, Case] = {}
    measurements: dict[str, Measurement] = {}
    started: set[str] = set()
    tried: dict[Trying, Alternative] = {}
    trying: dict[Trying, None] = {}
    end: RunEnd | None = None
    drift = _PlayedStep(path)
    warnings: tuple[str, ...] = ()
    for number, line in enumerate(lines, 1):
        if not line.endswith(b"\n"):
            warnings = (f"{path}: the last line was cut off and is dropped",)
            break
        kind, content = _record(path, number, line, known)
        if header is None:
            if kind != "header":
                raise UsageError(f"{path} is not a run file: its first line is no header", "not-a-run")
            header = _header(path, content)
        elif kind == "header":
            raise UsageError(f"{path}:{number} is a second header; two runs were put into one file", "malformed-record")
        elif kind == "case":
            if cases.setdefault(content.key, content) != content:
                raise UsageError(f"{path}:{number} is another case of the key {content.key!r}", "malformed-record")
        elif kind == "started":
            started.add(_known_key(path, number, content, cases))
            end = None  # a resumed run goes on after the end of the first part
        elif kind == "measurement":
            measurement = _decode(path, number, Measurement, content)
            measurements[_known_key(path, number, measurement.key, cases)] = measurement
            end = None
        elif kind == "trying":
            begun = _decode(path, number, Trying, content)
            trying[Trying(_known_key(path, number, begun.key, cases), begun.name)] = None
            end = None
        elif kind == "alternative":
            alternative = _decode(path, number, Alternative, content)
            tried[_trial_of(path, number, alternative, measurements)] = alternative
            end = None
        elif kind in _DRIFT_NAMES.values():
            drift.add(number, kind, content)
        elif kind == "end":
            end = _decode(path, number, RunEnd, content)
            started.difference_update(_known_key(path, number, key, cases) for key in end.given_back)
    if header is None:
        why = "its first line has no end" if warnings else "it is empty"
        raise UsageError(f"{path} is not a run file: {why}", "not-a-run")
    if len(cases) < header.n_cases:
        warnings += (f"{path}: {header.n_cases - len(cases)} of {header.n_cases} cases are missing",)
    return Run(
        header,
        tuple(cases.values()),
        measurements,
        frozenset(started - measurements.keys()),
        end,
        warnings,
        _by_key(tried.values()),
        frozenset(trying.keys() - tried.keys()),
        drift.read(),
    )


class _PlayedStep:
    """The records of a step that was played whole, as they come; the calls of it in their order."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._steps: list[DriftStep] = []
        self._started: DriftStarted | None = None
        self._end: DriftEnd | None = None

    def add(self, number: int, kind: str, content: Any) -> None:
        """Raises UsageError where a call comes out of its turn."""
        if self._end is not None and not self._steps and self._started is None:
            self._end = None  # nothing came of it, and a resumed run tries again
        if self._end is not None:
            raise UsageError(f"{self._path}:{number} comes after the end of the played step", "malformed-record")
        if kind == "drift_end":
            self._end = _decode(self._path, number, DriftEnd, content)
            return
        record: DriftStarted | DriftStep
        if kind == "drift_started":
            record = _decode(self._path, number, DriftStarted, content)
        else:
            record = _decode(self._path, number, DriftStep, content)
        if record.index != len(self._steps):
            raise UsageError(
                f"{self._path}:{number} is call {record.index} of the played step, where {len(self._steps)} was next",
                "malformed-record",
            )
        if isinstance(record, DriftStep):
            _check_step(self._path, number, record)
            self._steps.append(record)
            self._started = None
        else:
            self._started = record

    def read(self) -> Drift | None:
        if not self._steps and self._started is None and self._end is None:
            return None
        return Drift(tuple(self._steps), self._end, self._started)


def _check_step(path: Path, number: int, step: DriftStep) -> None:
    try:
        check_step(step)
    except DecodeError as error:
        raise _malformed(path, number, error) from error


def _by_key(tried: Iterable[Alternative]) -> dict[str, tuple[Alternative, ...]]:
    by_key: dict[str, list[Alternative]] = {}
    for alternative in tried:
        by_key.setdefault(alternative.trial.key, []).append(alternative)
    return {key: tuple(alternatives) for key, alternatives in by_key.items()}


def _record(path: Path, number: int, line: bytes, known: dict[bytes, Case] | None) -> tuple[str, Any]:
    """(kind, content), which of a case is the case itself."""
    if known is not None and line in known:
        return "case", known[line]
    kind, content = _parse(path, number, line)
    if kind == "case" and number > 1:  # the first line is refused as no header
        content = _case(path, number, content)
        if known is not None:
            known[line] = content
    return kind, content


def _parse(path: Path, number: int, line: bytes) -> tuple[str, Any]:
    try:
        record = strict_json.loads(line)
    except ValueError as error:
        raise UsageError(
            f"{path}:{number} is not JSON ({error}); the file is damaged or no run file", "not-a-run"
        ) from error
    if not isinstance(record, dict) or len(record) != 1:
        raise UsageError(f"{path}:{number} is no record of a run file", "not-a-run")
    [(kind, content)] = record.items()
    return kind, content


def _header(path: Path, content: Any) -> RunHeader:
    version = content.get("format_version") if isinstance(content, dict) else None
    if isinstance(version, int) and version < 1:
        raise UsageError(f"{path}:1 names format {version}, which no version has written", "malformed-record")
    if isinstance(version, int) and version > FORMAT_VERSION:
        raise UsageError(
            f"{path} has run format {version}, this rocm-audit reads up to {FORMAT_VERSION}; upgrade rocm-audit",
            "newer-format",
        )
    header = _decode(path, 1, RunHeader, content)
    if header.evidence != EVIDENCE_BY_BACKEND[header.device.backend]:
        raise UsageError(
            f"{path} calls itself {header.evidence}, and its device {header.device.backend!r} gives only "
            f"{EVIDENCE_BY_BACKEND[header.device.backend]} evidence; the file was changed by hand",
            "malformed-record",
        )
    return header


def _case(path: Path, number: int, content: Any) -> Case:
    case = _decode(path, number, Case, content)
    try:
        check_case(case)
    except DecodeError as error:
        raise _malformed(path, number, error) from error
    return case


def _known_key(path: Path, number: int, key: Any, cases: dict[str, Case]) -> str:
    """Raises UsageError where the key is of no case that was named before."""
    if not isinstance(key, str) or key not in cases:
        raise UsageError(f"{path}:{number} is about a case that is not in the run", "malformed-record")
    return key


def _trial_of(path: Path, number: int, alternative: Alternative, measurements: dict[str, Measurement]) -> Trying:
    """Raises UsageError where it is of no case that was measured before, or its parts are of two cases."""
    trial = alternative.trial
    if trial.key not in measurements or alternative.measurement.key != trial.key:
        raise UsageError(f"{path}:{number} is an alternative to a case that was not measured", "malformed-record")
    return Trying(trial.key, trial.name)


def _decode(path: Path, number: int, cls: type[T], content: Any) -> T:
    try:
        record = decode(cls, content)
        check_amounts(record)
    except DecodeError as error:
        raise _malformed(path, number, error) from error
    return record


def _malformed(path: Path, number: int, error: DecodeError) -> UsageError:
    reason = str(error).removesuffix(f" [{error.slug}]")
    return UsageError(f"{path}:{number}: {reason}", "malformed-record")
