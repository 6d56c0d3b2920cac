"""The importers, told apart by how a file begins. A new one is one line here."""

from __future__ import annotations

import importlib
import re
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from audit.run_records import Run
from audit.schema import Trace

#: Keys of a JSON file's beginning stand in its first kilobytes; only a list of GPUs may come before them.
HEAD_BYTES = 1 << 16
_GZIP = b"\x1f\x8b"


@dataclass(frozen=True)
class Importer:
    """A format: its name for people, what it gives, how a file of it begins (decompressed), and its module.

    The module has ``read_recording(path)``: a ``Run`` where the recorder has measured already (nothing is replayed),
    a ``Trace`` where it wrote down calls (its cases are replayed). It raises UsageError for a file that it cannot read
    (a device that the recording does not name is no reason).
    """

    name: str
    gives: Literal["run", "trace"]
    begins: re.Pattern[bytes]
    module: str

    def read(self, path: Path) -> Run | Trace:
        """What the file holds. Raises UsageError."""
        reader: Callable[[Path], Run | Trace] = importlib.import_module(self.module).read_recording
        return reader(path)


#: The first whose ``begins`` is found in the head of a file reads it.
IMPORTERS: tuple[Importer, ...] = (
    Importer(
        "a profiler's trace",
        "run",
        re.compile(rb"\A\s*(\{.*\"(traceEvents|deviceProperties)\"|\[\s*\{[^{]*\"ph\")", re.DOTALL),
        "audit.importers.kineto",
    ),
    Importer("an operator-input log", "trace", re.compile(rb"\A\s*Operator:[ \t]*\w"), "audit.importers.operator_log"),
    Importer(
        "an execution trace of torch",
        "trace",
        re.compile(rb'\A\s*\{[^\[\]{}]*"nodes"\s*:\s*\[\s*\{[\s\S]*?"rf_id"'),
        "audit.importers.execution_trace",
    ),
)


def find_importer(path: Path) -> Importer | None:
    """The importer of the file; None where none knows it, or it cannot be read at all."""
    head = head_of(path)
    return next((importer for importer in IMPORTERS if importer.begins.search(head)), None)


def head_of(path: Path) -> bytes:
    """The first bytes of a file, decompressed where it is gzip; empty where it cannot be read or is no file."""
    try:
        if not path.is_file():  # a named pipe would wait for its other end
            return b""
        with path.open("rb") as file:
            head = file.read(HEAD_BYTES)
    except OSError:
        return b""
    if not head.startswith(_GZIP):
        return head
    try:
        return zlib.decompressobj(wbits=31).decompress(head, HEAD_BYTES)
    except zlib.error:
        return b""
