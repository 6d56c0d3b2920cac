"""Reads the stored values of cases from a value file without torch, one span at a time."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from audit.errors import UsageError
from audit.opset.tensors import DTYPES, TensorFileError, blocks_of_tensor, tensors_in


@dataclass(frozen=True)
class StoredSpan:
    """An operand's elements from its first to its last, as bytes (little-endian) of ``dtype``."""

    dtype: str
    data: bytes


class StoredValues:
    """The value file of an opset, open, so that a small span of a file of gigabytes costs nothing else.

    safetensors' own readers need torch or numpy for tensors, and ``deserialize`` needs the whole file in memory.
    """

    def __init__(self, path: Path) -> None:
        """Raises UsageError where ``path`` is missing or no value file."""
        try:
            self._file = path.open("rb")
        except OSError as error:
            raise UsageError(f"cannot read the stored values {path}: {error.strerror}", "unreadable-values") from error
        try:
            self._tensors = tensors_in(self._file, 0, path.stat().st_size)
        except (TensorFileError, OSError) as error:
            self.close()
            raise UsageError(f"{path} is not a value file, or it is damaged: {error}", "unreadable-values") from error

    def span(self, key: str, position: int, limit_bytes: int) -> StoredSpan | None:
        """The span of one operand; None where there is none, or it is longer than ``limit_bytes``."""
        tensor = self._tensors.get(f"{key}/{position}")
        if tensor is None or tensor.end - tensor.start > limit_bytes:
            return None
        return StoredSpan(DTYPES[tensor.dtype][0], b"".join(blocks_of_tensor(self._file, tensor)))

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> StoredValues:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
