"""The torch constants that recordings hold as numbers: dtypes, layouts, memory formats."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from audit.schema import Named

#: By torch's name of the type, in the order of c10/core/ScalarType.h, Layout.h and MemoryFormat.h.
ENUMERATIONS: Mapping[str, tuple[Literal["dtype", "layout", "memory_format"], tuple[str, ...]]] = {
    "ScalarType": ("dtype", (
        *"uint8 int8 int16 int32 int64 float16 float32 float64 complex32 complex64 complex128 bool qint8 quint8 qint32 "
        "bfloat16 quint4x2 quint2x4 bits1x8 bits2x4 bits4x2 bits8 bits16 float8_e5m2 float8_e4m3fn float8_e5m2fnuz "
        "float8_e4m3fnuz uint16 uint32 uint64".split(),
        *(f"uint{bits}" for bits in range(1, 8)), *(f"int{bits}" for bits in range(1, 8)),
        "float8_e8m0fnu", "float4_e2m1fn_x2",
    )),
    "Layout": ("layout", (
        "strided", "sparse_coo", "sparse_csr", "_mkldnn", "sparse_csc", "sparse_bsr", "sparse_bsc", "jagged",
    )),
    "MemoryFormat": ("memory_format", (
        "contiguous_format", "preserve_format", "channels_last", "channels_last_3d",
    )),
}  # fmt: skip


def constant(enumeration: str, number: int) -> Named | None:
    """``Named("dtype", "bfloat16")`` of ("ScalarType", 15); None where the type has no such number."""
    name, members = ENUMERATIONS[enumeration]
    return Named(name, members[number]) if 0 <= number < len(members) else None
