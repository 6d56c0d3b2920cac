"""The least time of a call, by hand: MI300X has 5300 GB/s, 1307.4 TFLOPS in bf16 and 256 MiB of last-level cache."""

from __future__ import annotations

from typing import Any

import pytest

from audit.codec import contiguous_strides
from audit.rules.floor import Floor, beyond_cache, floor_of
from audit.rules.judge import judge
from audit.rules.rates import cache_bytes, ceiling_rows
from audit.rules.shown_rates import shown_ceilings
from audit.rules.work import work_of
from audit.run_records import Run, RunHeader
from audit.schema import (
    Arg,
    Case,
    Ceilings,
    DeviceInfo,
    Kernel,
    Measurement,
    Outcome,
    Path,
    Rate,
    Source,
    TensorSpec,
    Timing,
)

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
        ("mm.default", (bf16(8192, 8192, dtype="float32"), bf16(8192, 8192, dtype="float32")), (6729.0, "compute")),
        # not measured: by the datasheet
        ("mm.default", (bf16(8192, 8192, dtype="float16"), bf16(8192, 8192, dtype="float16")), (841.0, "compute")),
    ],
)
def test_measured_rates_come_before_the_datasheet(op: str, args: tuple[Arg, ...], expected: tuple[float, str]) -> None:
    assert rounded(floor_of(Case("k", f"aten::{op}", args), MI300X, MEASURED)) == expected


def test_float32_is_cut_only_where_the_program_allows_it() -> None:
    wide = bf16(8192, 8192, dtype="float32")
    allowed = (("torch.backends.cuda.matmul.fp32_precision", "tf32"),)
    cut = Case("k", "aten::mm.default", (wide, wide), settings=allowed)
    assert rounded(floor_of(cut, MI300X, MEASURED)) == (3665.0, "compute")


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


def test_what_others_reached_stands_beside_what_was_measured() -> None:
    reached = {row.name: row.achievable for row in ceiling_rows(MI300X, MEASURED)}
    assert reached["matrix product, bfloat16"] == 708.0
    assert reached["matrix product, tf32"] is None


def test_a_case_with_its_backward_has_the_floor_of_both() -> None:
    query = bf16(8, 16, 4096, 128)
    attention = Case("k", "aten::scaled_dot_product_attention.default", (*[query] * 3, None, 0.0, True), grads=(query,))
    assert rounded(floor_of(attention, MI300X)) == (1471.7, "compute")  # 3.5 x 420.5
    activation = Case("k", "aten::layer_norm.default", (bf16(1 << 29),), grads=(bf16(1 << 29),))
    assert rounded(floor_of(activation, MI300X)) == (911.7, "memory")  # 5 GiB, less the cache of each way


# --- the third bound, and what a run has shown --------------------------------------------------------------------


def measured(
    us: float, *kernels: Kernel, complete: bool = True, key: str = "k", lead_us: float | None = None
) -> Measurement:
    path = Path(observed=True, complete=complete, kernels=kernels)
    time = Timing(us, 0.0, 9, lead_us=lead_us)
    return Measurement(key, Outcome("ok"), Outcome("ok"), path=path, device_time=time)


SMALL = Case("k", "aten::add.Tensor", (bf16(1024), bf16(1024)))


def test_an_op_needs_one_launch_at_least() -> None:
    assert floor_of(SMALL, MI300X) is None  # not measured
    found = floor_of(SMALL, MI300X, MEASURED, measured(9.0, Kernel("a", 4.0), Kernel("b", 4.0)))
    assert found is not None
    assert (found.us, found.bound) == (6.0, "launch")
    assert (found.work.flops, found.work.moved_bytes, found.work.op_class) == (0.0, 6144.0, "elementwise")


def test_a_call_that_launched_nothing_needs_none() -> None:
    assert floor_of(SMALL, MI300X, MEASURED, measured(1.0)) is None
    assert floor_of(SMALL, MI300X, MEASURED, measured(1.0, complete=False)) is not None  # a record may be lost


def test_a_convolution_by_transform_does_fewer_operations_than_were_counted() -> None:
    args = (bf16(64, 64, 56, 56), bf16(64, 64, 3, 3), None, (1, 1), (1, 1), (1, 1), False, (0, 0), 1)
    case = Case("k", "aten::convolution.default", args)
    direct = floor_of(case, MI300X, MEASURED, measured(50.0, Kernel("igemm_fwd_gtcx3_nhwc_bf16", 40.0)))
    transformed = floor_of(case, MI300X, MEASURED, measured(50.0, Kernel("miopenSp3AsmConv_Winograd_v30_3_1", 40.0)))
    assert rounded(direct) == (22.6, "compute")
    assert rounded(transformed) == (6.0, "launch")


def test_the_second_level_that_torch_tells_of_counts_where_no_product_is_known() -> None:
    case = Case("k", "aten::relu.default", (bf16(1 << 20),))
    device = DeviceInfo("hip", "another GPU", "gfx1999", {"L2_cache_size": str(8 << 20)})
    assert beyond_cache_of(case, device) == 0.0
    assert beyond_cache_of(case, DeviceInfo("hip", "another GPU", "gfx1999")) == float(4 << 20)


def beyond_cache_of(case: Case, device: DeviceInfo) -> float:
    found = work_of(case)
    assert found is not None
    return beyond_cache(case, found, device, None)


def test_after_a_flush_what_is_read_comes_from_memory() -> None:
    case = Case("k", "aten::relu.default", (bf16(64 << 20),))  # 128 MiB of each
    cold = measured(60.0, Kernel("a", 60.0), lead_us=150.0)
    assert rounded(floor_of(case, MI300X, MEASURED, cold)) == (33.6, "memory")
    for warm in (measured(60.0, Kernel("a", 60.0)), measured(60.0, Kernel("a", 60.0), lead_us=0.0)):
        assert rounded(floor_of(case, MI300X, MEASURED, warm)) == (6.0, "launch")


def run_of(*timed: tuple[Case, float], ceilings: Ceilings | None = MEASURED) -> Run:
    header = RunHeader(
        "measured", Source("script", "s"), MI300X, {}, {}, "", "0", len(timed), len(timed), ceilings=ceilings
    )
    measurements = {case.key: measured(us, Kernel("a", us), key=case.key) for case, us in timed}
    return Run(header, tuple(case for case, _ in timed), measurements)


def shown(run: Run) -> Ceilings | None:
    return shown_ceilings(run, {case.key: work_of(case) for case in run.cases})


PRODUCT = Case("mm", "aten::mm.default", (bf16(8192, 8192), bf16(8192, 8192)))
COPY = Case("copy", "aten::clone.default", (bf16(1 << 29),))


def test_what_a_call_of_the_run_did_the_device_can_do() -> None:
    found = shown(run_of((PRODUCT, 1500.0), (COPY, 450.0), (SMALL, 5.0)))
    assert found is not None
    # 2 x 8192^3 operations in 1500 µs; 2 GiB less the cache in 450
    assert round(found.gemm_tflops["bfloat16"].median) == 733
    assert round(found.copy_gbs.median) == 4176
    assert found.launch_us.median == 5.0
    assert found.gemm_tflops["tf32"] == MEASURED.gemm_tflops["tf32"]


def test_no_call_raises_a_ceiling_above_the_datasheet() -> None:
    found = shown(run_of((PRODUCT, 1.0), (COPY, 1.0)))
    assert found is not None
    assert (found.gemm_tflops["bfloat16"].median, found.copy_gbs.median) == (1307.4, 5300.0)


def test_slower_calls_and_runs_without_ceilings_change_nothing() -> None:
    assert shown(run_of((PRODUCT, 9000.0), (COPY, 9000.0), (SMALL, 90.0))) == MEASURED
    assert shown(run_of((PRODUCT, 1500.0), ceilings=None)) is None


def test_no_verdict_has_a_time_below_its_floor() -> None:
    run = run_of((PRODUCT, 1500.0), (COPY, 450.0), (SMALL, 5.0))
    verdicts = judge(run).verdicts
    assert [(v.key, v.bound, v.op_class, v.flops) for v in verdicts] == [
        ("mm", "compute", "gemm", 2.0 * 8192**3),
        ("copy", "memory", "copy", 0.0),
        ("k", "launch", "elementwise", 0.0),
    ]
    assert all(v.floor_us == pytest.approx(v.device_us) for v in verdicts)


def test_a_replays_names_of_properties_find_the_product_too() -> None:
    shown_by_torch = {"multi_processor_count": "132", "total_memory": "150109880320", "L2_cache_size": "62914560"}
    h200 = DeviceInfo("cuda", "NVIDIA H200", "sm_90", shown_by_torch)
    assert rounded(floor_of(PRODUCT, h200)) == (1111.3, "compute")
    assert cache_bytes(h200) == 62914560
