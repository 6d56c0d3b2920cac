"""The least time of a call, by hand: MI300X has 5300 GB/s, 1307.4 TFLOPS in bf16 and 256 MiB of last-level cache."""

from __future__ import annotations

from typing import Any

import pytest

from audit.codec import contiguous_strides
from audit.rules.floor import Floor, floor_of
from audit.rules.rates import ceiling_rows
from audit.schema import Arg, Case, Ceilings, DeviceInfo, Rate, TensorSpec

MI300X = DeviceInfo("hip", "AMD Instinct MI300X VF", "gfx942", {"compute_units": "304"})


def bf16(*sizes: int, strides: tuple[int, ...] = (), dtype: str = "bfloat16") -> TensorSpec:
    return TensorSpec(sizes, strides or contiguous_strides(sizes), dtype)


def floor(op: str, *args: Arg, device: DeviceInfo = MI300X) -> Floor | None:
    return floor_of(Case("k", f"aten::{op}", args), device)


def rounded(found: Floor | None) -> tuple[float, str] | None:
    return None if found is None else (round(found.us, 1), found.bound)


@pytest.mark.parametrize(
    ("op", "args", "expected"),
    [
        # 2 x 8192^3 operations
        ("mm.default", (bf16(8192, 8192), bf16(8192, 8192)), (841.0, "compute")),
        # the addend comes first, and an output that is given as an argument is not read
        ("addmm.default", (bf16(8192), bf16(8192, 8192), bf16(8192, 8192), 1, 1), (841.0, "compute")),
        ("mm.default", (bf16(8192, 8192), bf16(8192, 8192), bf16(8192, 8192)), (841.0, "compute")),
        # 64 batches of 4096 x 1 x 4096 are bound by 2 GiB of matrices
        ("bmm.default", (bf16(64, 4096, 4096), bf16(64, 4096, 1)), (354.7, "memory")),
        # 1 GiB read, 1 GiB written, less what the cache may hold
        ("relu.default", (bf16(1 << 29),), (354.5, "memory")),
        ("copy_.default", (bf16(1 << 29), bf16(1 << 29), False), (354.5, "memory")),
        ("add", (bf16(1 << 29), bf16(1 << 29), 1), (557.1, "memory")),
        # an expanded operand is in memory once
        ("add", (bf16(1 << 29), bf16(1 << 29, strides=(0,)), 1), (354.5, "memory")),
        # 2 x 8 x 64 x 112^2 outputs x 3 x 7 x 7
        ("convolution.default",
         (bf16(8, 3, 224, 224), bf16(64, 3, 7, 7), None, (2, 2), (3, 3), (1, 1), False, (0, 0), 1), (1.4, "compute")),
        # as much for each of two gradients
        ("convolution_backward.default",
         (bf16(8, 64, 112, 112), bf16(8, 3, 224, 224), bf16(64, 3, 7, 7), (0,), (2, 2), (3, 3), (1, 1), False, (0, 0),
          1, (True, True, False)), (2.9, "compute")),
        # 4 x 8 x 16 x 4096^2 x 128, half of it under a causal mask
        ("scaled_dot_product_attention.default", (*[bf16(8, 16, 4096, 128)] * 3, None, 0.0, False), (841.0, "compute")),
        ("scaled_dot_product_attention.default", (*[bf16(8, 16, 4096, 128)] * 3, None, 0.0, True), (420.5, "compute")),
    ],
)  # fmt: skip
def test_what_a_call_takes_at_least(op: str, args: tuple[Arg, ...], expected: tuple[float, str]) -> None:
    assert rounded(floor(op, *args)) == expected


@pytest.mark.parametrize(
    ("op", "args"),
    [
        ("add", (bf16(1024), bf16(1024), 1)),  # may never leave the cache
        ("mm.default", (bf16(8192), "TensorList")),
        ("linalg_eig", (bf16(1024, 1024),)),  # may never leave the cache either
        ("not_an_op", (bf16(1 << 29),)),
        ("view", (bf16(1 << 29), (1 << 29,))),  # nothing to do
        ("mm.default", ()),
        ("bmm.default", (bf16(2), bf16(2))),
        ("convolution.default", (bf16(8, 3, 224, 224), bf16(64, 3, 7, 7))),
        ("convolution.default", (bf16(8, 3, 4, 4), bf16(64, 3, 7, 7), None, (1,), (0,), (1,), False, (0,), 1)),
        ("convolution.default", (bf16(*[2] * 50), bf16(*[2] * 50), None, (1,), (1 << 62,), (1,), False, (0,), 1)),
        ("convolution.default", (bf16(8, 3, 4, 4), bf16(4, 3, 3, 3), None, (0, 0), (0,), (1,), False, (0,), 1)),
    ],
)
def test_where_nothing_is_known_there_is_no_floor(op: str, args: tuple[Arg, ...]) -> None:
    assert floor(op, *args) is None


@pytest.mark.parametrize(
    ("device", "us"),
    [
        ({"name": "AMD Instinct MI300X", "properties": {"compute_units": "76"}}, 3364.0),  # a quarter: a partition
        ({"name": "", "properties": {"compute_units": "304", "total_memory_bytes": "206141652992"}}, 841.0),
        ({"name": "NVIDIA H100 80GB HBM3", "backend": "cuda",
          "properties": {"compute_units": "132", "total_memory_bytes": "85018279936"}}, 1111.3),
        ({"name": "another GPU", "properties": {}}, None),
        ({"name": "another GPU", "properties": {"compute_units": "-1", "total_memory_bytes": "many"}}, None),
    ],
)  # fmt: skip
def test_peaks_are_those_of_the_device(device: dict[str, Any], us: float | None) -> None:
    found = floor(
        "mm.default", bf16(8192, 8192), bf16(8192, 8192), device=DeviceInfo(**{"backend": "hip", "arch": "", **device})
    )
    assert (None if found is None else round(found.us, 1)) == us


# --- as measured -------------------------------------------------------------------------------------------------

MEASURED = Ceilings(
    Rate(4000.0, 20.0, 30), {"bfloat16": Rate(654.0, 9.0, 20), "tf32": Rate(300.0, 2.0, 9)}, Rate(6.0, 0.5, 100)
)


@pytest.mark.parametrize(
    ("op", "args", "expected"),
    [
        ("mm.default", (bf16(8192, 8192), bf16(8192, 8192)), (1681.2, "compute")),
        ("relu.default", (bf16(1 << 29),), (469.8, "memory")),
        ("mm.default", (bf16(8192, 8192, dtype="float32"), bf16(8192, 8192, dtype="float32")), (3665.0, "compute")),
        # not measured: by the datasheet
        ("mm.default", (bf16(8192, 8192, dtype="float16"), bf16(8192, 8192, dtype="float16")), (841.0, "compute")),
    ],
)
def test_measured_rates_come_before_the_datasheet(op: str, args: tuple[Arg, ...], expected: tuple[float, str]) -> None:
    assert rounded(floor_of(Case("k", f"aten::{op}", args), MI300X, MEASURED)) == expected


def test_an_unknown_product_has_floors_where_it_was_measured() -> None:
    case = Case("k", "aten::mm.default", (bf16(8192, 8192), bf16(8192, 8192)))
    unknown = DeviceInfo("hip", "another GPU", "gfx1999")
    assert rounded(floor_of(case, unknown, MEASURED)) == (1681.2, "compute")
    assert floor_of(case, unknown) is None


@pytest.mark.parametrize("rate", [0.0, -1.0, float("nan"), float("inf")])
def test_a_rate_that_no_device_has_is_passed_over(rate: float) -> None:
    odd = Ceilings(Rate(rate, 0.0, 1), {"bfloat16": Rate(rate, 0.0, 1)}, Rate(rate, 0.0, 1))
    case = Case("k", "aten::mm.default", (bf16(8192, 8192), bf16(8192, 8192)))
    assert rounded(floor_of(case, MI300X, odd)) == (841.0, "compute")


def test_ceilings_stand_beside_the_datasheet() -> None:
    rows = [(row.name, row.measured.median, row.unit, row.datasheet) for row in ceiling_rows(MI300X, MEASURED)]
    assert rows == [
        ("copy within memory", 4000.0, "GB/s", 5300.0),
        ("matrix product, bfloat16", 654.0, "TFLOPS", 1307.4),
        ("matrix product, tf32", 300.0, "TFLOPS", 653.7),
        ("launch of an op", 6.0, "µs", None),
    ]
    assert ceiling_rows(MI300X, None) == []


def test_a_case_with_its_backward_has_the_floor_of_both() -> None:
    query = bf16(8, 16, 4096, 128)
    attention = Case("k", "aten::scaled_dot_product_attention.default", (*[query] * 3, None, 0.0, True), grads=(query,))
    assert rounded(floor_of(attention, MI300X)) == (1471.7, "compute")  # 3.5 x 420.5
    activation = Case("k", "aten::layer_norm.default", (bf16(1 << 29),), grads=(bf16(1 << 29),))
    assert rounded(floor_of(activation, MI300X)) == (911.7, "memory")  # 5 GiB, less the cache of each way
