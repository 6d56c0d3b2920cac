"""Run files: an append-only JSON-lines log of one audit, safe against SIGKILL at any byte.

Lines: ``{"header": ...}``, then ``{"case": ...}`` for each case, then ``{"started": KEY}`` and
``{"measurement": ...}`` as they come, then ``{"end": ...}``. A line that was cut off by a kill is dropped when read
and when writing goes on.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from audit.codec import DecodeError, decode, encode
from audit.errors import UnfinishedError, UsageError
from audit.schema import EVIDENCE_BY_BACKEND, FORMAT_VERSION, Case, Measurement, Run, RunEnd, RunHeader

T = TypeVar("T")


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

    def end(self, end: RunEnd) -> None:
        self._append([{"end": encode(end)}])

    def _append(self, records: list[dict[str, Any]]) -> None:
        data = "".join(json.dumps(record, separators=(",", ":"), allow_nan=False) + "\n" for record in records).encode()
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
    of a newer format, or one with a malformed line (its number is named).
    """
    if path.is_dir():
        path = path / "run.jsonl"
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read the run file {path}: {error.strerror}", "unreadable-run") from error
    lines = content.split(b"\n")
    cut_off = lines.pop()
    warnings = (f"{path}: the last line was cut off and is dropped",) if cut_off else ()
    return _assemble(path, lines, warnings)


def _assemble(path: Path, lines: list[bytes], warnings: tuple[str, ...]) -> Run:
    header: RunHeader | None = None
    cases: dict[str, Case] = {}
    measurements: dict[str, Measurement] = {}
    started: set[str] = set()
    end: RunEnd | None = None
    for number, line in enumerate(lines, 1):
        kind, content = _parse(path, number, line)
        if header is None:
            if kind != "header":
                raise UsageError(f"{path} is not a run file: its first line is no header", "not-a-run")
            header = _header(path, content)
        elif kind == "case":
            case = _decode(path, number, Case, content)
            cases[case.key] = case
        elif kind == "started" and isinstance(content, str):
            started.add(content)
            end = None  # a resumed run goes on after the end of the first part
        elif kind == "measurement":
            measurement = _decode(path, number, Measurement, content)
            measurements[measurement.key] = measurement
            end = None
        elif kind == "end":
            end = _decode(path, number, RunEnd, content)
    if header is None:
        raise UsageError(f"{path} is not a run file: it is empty", "not-a-run")
    if len(cases) < header.n_cases:
        warnings += (f"{path}: {header.n_cases - len(cases)} of {header.n_cases} cases are missing",)
    return Run(header, tuple(cases.values()), measurements, frozenset(started - measurements.keys()), end, warnings)


def _parse(path: Path, number: int, line: bytes) -> tuple[str, Any]:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise UsageError(
            f"{path}:{number} is not JSON ({error}); the file is damaged or no run file", "not-a-run"
        ) from error
    if not isinstance(record, dict) or len(record) != 1:
        raise UsageError(f"{path}:{number} is no record of a run file", "not-a-run")
    [(kind, content)] = record.items()
    return kind, content


def _header(path: Path, content: Any) -> RunHeader:
    version = content.get("format_version") if isinstance(content, dict) else None
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


def _decode(path: Path, number: int, cls: type[T], content: Any) -> T:
    try:
        return decode(cls, content)
    except DecodeError as error:
        reason = str(error).removesuffix(f" [{error.slug}]")
        raise UsageError(f"{path}:{number}: {reason}", "malformed-record") from error
