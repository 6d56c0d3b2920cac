"""The value file of an opset: safetensors, read and written by its header, so that neither needs torch.

``values.safetensors`` is 8 bytes with the length of a header (little-endian), the header (JSON, padded with blanks to a
multiple of 8) and the bytes of the tensors, one behind the other. A tensor is named ``<case key>/<position>`` and is
1-D: an operand's storage from its first element to its last reachable one, gaps included.
Source: the format section of the safetensors README (huggingface/safetensors).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import IO, Any, BinaryIO

from audit import strict_json
from audit.codec import reach, tensors_of
from audit.schema import Case

#: As safetensors itself limits it.
MAX_HEADER_BYTES = 100_000_000
#: Names of dtypes in the file, with torch's name and the bytes of an element.
DTYPES: Mapping[str, tuple[str, int]] = {
    "BOOL": ("bool", 1), "U8": ("uint8", 1), "I8": ("int8", 1), "I16": ("int16", 2), "U16": ("uint16", 2),
    "I32": ("int32", 4), "U32": ("uint32", 4), "I64": ("int64", 8), "U64": ("uint64", 8), "F16": ("float16", 2),
    "BF16": ("bfloat16", 2), "F32": ("float32", 4), "F64": ("float64", 8), "C64": ("complex64", 8),
    "F8_E4M3": ("float8_e4m3fn", 1), "F8_E5M2": ("float8_e5m2", 1),
}  # fmt: skip


class TensorFileError(ValueError):
    """The bytes are no value file, or not that of the cases; the message says why."""


@dataclass(frozen=True)
class Tensor:
    """Where a tensor's bytes lie in the file (from its first byte on), and what they are in the file's own words."""

    dtype: str
    n_elements: int
    start: int
    end: int


def tensors_in(file: BinaryIO, start: int, size: int) -> dict[str, Tensor]:
    """The tensors of the value file that lies in ``file`` at ``start``; ``size`` is its length. Reads its header alone.

    Raises TensorFileError unless the tensors fill the file without gap or overlap.
    """
    file.seek(start)
    prefix = file.read(8)
    length = struct.unpack("<Q", prefix)[0] if len(prefix) == 8 else MAX_HEADER_BYTES + 1
    if length > min(MAX_HEADER_BYTES, size - 8):
        raise TensorFileError(f"a value file of {size} bytes cannot have a header of {length}")
    try:
        content = strict_json.loads(file.read(length))
    except ValueError as error:
        raise TensorFileError(f"the header of the value file cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise TensorFileError("the header of the value file is no object")
    base = start + 8 + length
    tensors = {str(name): _tensor(str(name), entry, base) for name, entry in content.items()}
    at = base
    for name, tensor in sorted(tensors.items(), key=lambda item: (item[1].start, item[1].end)):
        if tensor.start != at:
            raise TensorFileError(f"the tensor {name[:80]!r} begins at {tensor.start - base}, expected {at - base}")
        at = tensor.end
    if at != start + size:
        raise TensorFileError(f"the tensors end at {at - base}, the value file at {start + size - base}")
    return tensors


def _tensor(name: str, entry: Any, base: int) -> Tensor:
    if isinstance(entry, dict) and set(entry) == {"dtype", "shape", "data_offsets"}:
        dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
        if isinstance(dtype, str) and dtype in DTYPES and _naturals(shape, 1) and _naturals(offsets, 2):
            [n_elements], [first, end] = shape, offsets
            if end - first == n_elements * DTYPES[dtype][1]:
                return Tensor(dtype, n_elements, base + first, base + end)
    raise TensorFileError(f"the entry of the tensor {name[:80]!r} in the value file is not of the expected form")


def _naturals(value: Any, n: int) -> bool:
    return isinstance(value, list) and len(value) == n and all(type(item) is int and item >= 0 for item in value)


def check_tensors(tensors: Mapping[str, Tensor], cases: Iterable[Case]) -> None:
    """Raises TensorFileError where a tensor is of no operand of the cases, or of another dtype or length than it."""
    operands = {case.key: tensors_of(case.args, case.kwargs, case.grads) for case in cases}
    for name, tensor in tensors.items():
        key, _, position = name.rpartition("/")
        specs = operands.get(key, [])
        if not (position.isascii() and position.isdigit() and len(position) < 10 and int(position) < len(specs)):
            raise TensorFileError(f"the tensor {name[:80]!r} in the value file belongs to no case")
        spec = specs[int(position)]
        expected = (spec.dtype, reach(spec.sizes, spec.strides))
        if (DTYPES[tensor.dtype][0], tensor.n_elements) != expected:
            raise TensorFileError(
                f"the tensor {name!r} in the value file has {tensor.n_elements} elements of "
                f"{DTYPES[tensor.dtype][0]}, its operand {expected[1]} of {expected[0]}"
            )


def write_tensors(
    file: IO[bytes], tensors: Mapping[str, tuple[str, int]], blocks: Iterable[bytes | memoryview]
) -> None:
    """Writes a value file: ``tensors`` are (dtype in the file's words, elements) in the order of their ``blocks``."""
    header: dict[str, Any] = {}
    offset = 0
    for name, (dtype, n_elements) in tensors.items():
        end = offset + n_elements * DTYPES[dtype][1]
        header[name] = {"dtype": dtype, "shape": [n_elements], "data_offsets": [offset, end]}
        offset = end
    encoded = strict_json.dumps(header).encode()
    encoded += b" " * (-len(encoded) % 8)  # the format aligns the data to 8 bytes
    file.write(struct.pack("<Q", len(encoded)))
    file.write(encoded)
    for block in blocks:
        file.write(block)


def blocks_of_tensor(file: BinaryIO, tensor: Tensor, size: int = 1 << 20) -> Iterator[bytes]:
    """A tensor's bytes in blocks. Raises TensorFileError where the file ends before them."""
    file.seek(tensor.start)
    left = tensor.end - tensor.start
    while left:
        block = file.read(min(left, size))
        if not block:
            raise TensorFileError("the value file is cut off")
        left -= len(block)
        yield block
