"""Reads the stored values of cases from a safetensors file without torch, one span at a time."""

from __future__ import annotations

import json
import mmap
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from audit.errors import UsageError

#: As safetensors itself limits it; a longer header is an attack or damage.
_MAX_HEADER_BYTES = 100_000_000
_DTYPES: Mapping[str, str] = {
    "BOOL": "bool", "U8": "uint8", "I8": "int8", "I16": "int16", "U16": "uint16", "I32": "int32", "U32": "uint32",
    "I64": "int64", "U64": "uint64", "F16": "float16", "BF16": "bfloat16", "F32": "float32", "F64": "float64",
    "C64": "complex64", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2",
}  # fmt: skip


@dataclass(frozen=True)
class StoredSpan:
    """An operand's elements from its first to its last, as bytes (little-endian) of ``dtype``."""

    dtype: str
    data: bytes


class StoredValues:
    """The value file of an opset, mapped, so that a small span of a file of gigabytes costs nothing else.

    safetensors' own readers need torch or numpy for tensors, and ``deserialize`` needs the whole file in memory.
    """

    def __init__(self, path: Path) -> None:
        """Raises UsageError where ``path`` is missing or no safetensors file."""
        try:
            self._file = path.open("rb")
            self._map = mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            raise UsageError(f"cannot read the stored values {path}: {error}", "unreadable-values") from error
        self._start, self._entries = self._parse(path)

    def _parse(self, path: Path) -> tuple[int, dict[str, Any]]:
        try:
            (length,) = struct.unpack("<Q", self._map[:8])
            if length > min(_MAX_HEADER_BYTES, len(self._map) - 8):
                raise ValueError(f"a header of {length} bytes")
            entries = json.loads(self._map[8 : 8 + length])
            return 8 + length, dict(entries)
        except (ValueError, TypeError, struct.error, RecursionError) as error:
            self.close()
            raise UsageError(
                f"{path} is not a safetensors file, or it is damaged: {error}", "unreadable-values"
            ) from error

    def span(self, key: str, position: int, limit_bytes: int) -> StoredSpan | None:
        """The span of one operand; None where there is none, it is damaged, or longer than ``limit_bytes``."""
        entry = self._entries.get(f"{key}/{position}")
        if not isinstance(entry, dict):
            return None
        dtype, offsets = _DTYPES.get(str(entry.get("dtype"))), entry.get("data_offsets")
        if dtype is None or not (
            isinstance(offsets, list) and len(offsets) == 2 and all(type(o) is int for o in offsets)
        ):
            return None
        first, end = (self._start + offset for offset in offsets)
        if not self._start <= first <= end <= len(self._map) or end - first > limit_bytes:
            return None
        return StoredSpan(dtype, self._map[first:end])

    def close(self) -> None:
        self._map.close()
        self._file.close()

    def __enter__(self) -> StoredValues:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
