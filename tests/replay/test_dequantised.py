"""Products of quantised operands are held to their formula in double precision."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch

from audit.codec import contiguous_strides
from audit.replay.compare import Expected
from audit.replay.dequantised import formula_of
from audit.replay.int4_weights import packed, unpacked
from audit.replay.reference import Reference
from audit.schema import Arg, Case, Named, TensorSpec


def spec(sizes: Sequence[int], dtype: str, strides: tuple[int, ...] | None = None, storage: int = 0) -> TensorSpec:
    n = torch.Size(sizes).numel()
    return TensorSpec(tuple(sizes), strides or contiguous_strides(tuple(sizes)), dtype, extent=n, storage=storage)


def scaled_mm(scale_a: Sequence[int] = (), scale_b: Sequence[int] = ()) -> Case:
    left, right = spec((32, 64), "float8_e4m3fn"), spec((64, 48), "float8_e4m3fn", (1, 64), 1)
    scales = spec(scale_a, "float32", storage=2), spec(scale_b, "float32", storage=3)
    return Case(
        "smm-0", "aten::_scaled_mm.default", (left, right, *scales), (("out_dtype", Named("dtype", "bfloat16")),)
    )


@pytest.mark.parametrize("scales", [((), ()), ((32, 1), (1, 48))], ids=["of the whole", "of rows and columns"])
def test_an_fp8_product_is_compared_in_double_precision(tmp_path: Path, scales: tuple[Sequence[int], ...]) -> None:
    reference = Reference(None, tmp_path, seed=0)
    prepared = reference.prepare(scaled_mm(*scales))
    assert prepared["outcome"]["kind"] == "ok"
    assert prepared["notes"] == ["reference by the documented formula, dequantised; noise from the CPU's own error"]
    [expected] = reference._prepared["smm-0"].expected.values()
    assert expected.wide is not None
    largest = float(expected.wide.abs().max())
    assert 0 < expected.noise < largest * 2**-8  # that of rounding to bf16 and no more


def formula(op: str, **kwargs: Arg) -> Callable[..., torch.Tensor]:
    found = formula_of(Case("case-0", f"aten::{op}.default", (), tuple(kwargs.items())))
    assert found is not None
    return found


def fp8(*sizes: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(seed)).to(torch.float8_e4m3fn)


def scales(*sizes: int, seed: int = 1) -> torch.Tensor:
    return torch.rand(*sizes, generator=torch.Generator().manual_seed(seed)) + 0.5


def close(given: torch.Tensor, expected: torch.Tensor, atol: float = 1e-5) -> None:
    torch.testing.assert_close(given.double(), expected.double(), rtol=1e-5, atol=atol)


def test_the_formula_is_that_of_the_cpu_kernel() -> None:
    a, b, scale_a, scale_b = fp8(32, 64), fp8(48, 64, seed=2), scales(32, 1), scales(1, 48)
    given = torch._scaled_mm(a, b.t(), scale_a, scale_b, out_dtype=torch.float32)
    close(given, formula("_scaled_mm")(a.double(), b.double().t(), scale_a, scale_b))


def test_the_second_version_of_the_op_has_the_same_formula() -> None:
    a, b, one, two = fp8(32, 64), fp8(48, 64, seed=2), torch.tensor(0.5), torch.tensor(3.0)
    given = torch.ops.aten._scaled_mm_v2(a, b.t(), [one], [0], [0], [two], [0], [0], None, torch.float32)
    close(given, formula("_scaled_mm_v2")(a.double(), b.double().t(), [one], [0], [0], [two], [0], [0]))


def test_an_fp8_result_saturates_as_on_a_gpu() -> None:
    """The CPU's kernel does so too, but for oneDNN's where the processor has AVX512-FP16: that gives NaN."""
    a, one = torch.full((32, 64), 8.0).to(torch.float8_e4m3fn), torch.tensor(1.0)
    b = (-a.double()).to(torch.float8_e4m3fn).t()
    given = torch._scaled_mm(a, b, one, one, out_dtype=torch.float8_e4m3fn)
    asked = formula("_scaled_mm", out_dtype=Named("dtype", "float8_e4m3fn"))
    assert float(asked(a.double(), b.double(), one, one)[0, 0]) == -448.0
    assert float(given[0, 0]) == -448.0 or bool(given.float().isnan().all())


def test_scales_of_blocks_are_spread_over_them() -> None:
    """1 x 128 of the left and 128 x 128 of the right, as DeepSeek has them."""
    a, b, scale_a, scale_b = fp8(4, 256).double(), fp8(256, 384, seed=2).double(), scales(4, 2), scales(2, 3)
    expected = torch.zeros(4, 384, dtype=torch.float64)
    for block in range(2):
        for column in range(384):
            inner = slice(128 * block, 128 * block + 128)
            expected[:, column] += (a[:, inner] @ b[inner, column]) * scale_a[:, block] * scale_b[block, column // 128]
    close(formula("_scaled_mm")(a, b, scale_a, scale_b), expected)


@pytest.mark.parametrize("swizzle", [0, 1], ids=["in rows", "swizzled"])
def test_scales_of_32_are_read_in_rows_or_in_tiles_of_128_x_4(swizzle: int) -> None:
    a, b, plain_a, plain_b = (
        fp8(160, 192).double(),
        fp8(192, 48, seed=2).double(),
        scales(160, 6),
        scales(48, 6, seed=3),
    )
    expected = torch.zeros(160, 48, dtype=torch.float64)
    for block in range(6):
        inner = slice(32 * block, 32 * block + 32)
        expected += (a[:, inner] * plain_a[:, block, None]) @ (b[inner] * plain_b[:, block])
    given = (swizzled(plain_a), swizzled(plain_b)) if swizzle else (plain_a, plain_b)
    close(formula("_scaled_mm_v2")(a, b, [given[0]], [3], [swizzle], [given[1]], [3], [swizzle]), expected)


def swizzled(scale: torch.Tensor) -> torch.Tensor:
    """By the offset that cuBLAS' documentation gives for an element of a tile."""
    rows, columns = -(-scale.size(0) // 128), -(-scale.size(1) // 4)
    line = torch.zeros(rows * columns * 512)
    for r, c in itertools.product(*map(range, scale.shape)):
        tile = (r // 128) * columns + c // 4
        line[tile * 512 + (r % 32) * 16 + (r % 128 // 32) * 4 + c % 4] = scale[r, c]
    return line


def test_scales_whose_shape_fits_nothing_are_left_without_a_formula() -> None:
    with pytest.raises(NotImplementedError, match="5 scales for 64 elements"):
        formula("_scaled_mm")(torch.ones(32, 64), torch.ones(64, 48), torch.ones(32, 5), torch.ones(5, 48))


@pytest.mark.parametrize(
    ("left", "right", "rows", "columns"),
    [((12, 8), (3, 8, 6), (12,), (3, 6)), ((5, 12), (12, 6), (15,), (18,)), ((3, 5, 8), (8, 12), (3, 5), (12,))],
    ids=["rows", "inner dimension", "columns"],
)
def test_each_group_of_a_grouped_product_has_its_own_scales(
    left: tuple[int, ...], right: tuple[int, ...], rows: tuple[int, ...], columns: tuple[int, ...]
) -> None:
    a, b, scale_a, scale_b = fp8(*left).double(), fp8(*right, seed=2).double(), scales(*rows), scales(*columns, seed=3)
    given = formula("_scaled_grouped_mm")(a, b, scale_a, scale_b, torch.tensor([4, 6, 12], dtype=torch.int32))
    for group, (start, end) in enumerate(((0, 4), (4, 6), (6, 12))):
        part = slice(start, end)
        if len(right) == 3:
            close(given[part], (a[part] * scale_a[part, None]) @ (b[group] * scale_b[group]))
        elif len(left) == 3:
            close(given[:, part], (a[group] * scale_a[group, :, None]) @ (b[:, part] * scale_b[part]))
        else:
            row, column = scale_a.view(3, 5)[group], scale_b.view(3, 6)[group]
            close(given[group], (a[:, part] * row[:, None]) @ (b[part] * column))


# --- integers ----------------------------------------------------------------------------------------------------


def test_an_int8_weight_has_its_formula_too() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(4, 64, generator=generator, dtype=torch.float32)
    weight = torch.randint(-128, 127, (48, 64), generator=generator, dtype=torch.int8)
    given = torch._weight_int8pack_mm(x, weight, scales(48))
    close(given, formula("_weight_int8pack_mm")(x.double(), weight, scales(48)), atol=1e-3)


def nibbles(n: int, k: int) -> torch.Tensor:
    return torch.randint(0, 16, (n, k), generator=torch.Generator().manual_seed(0))


def in_bytes(values: torch.Tensor) -> torch.Tensor:
    return (values[:, ::2] << 4 | values[:, 1::2]).to(torch.uint8)


@pytest.mark.parametrize("hip", [True, False], ids=["AMD", "NVIDIA"])
@pytest.mark.parametrize("inner_tiles", [2, 8])
def test_packed_weights_have_the_documented_shape_and_come_back(hip: bool, inner_tiles: int) -> None:
    values = nibbles(48, 256)
    words = packed(in_bytes(values), inner_tiles, hip)
    assert words.shape == (6, 256 // (16 * inner_tiles), 32, inner_tiles // 2)
    assert torch.equal(unpacked(words, hip), values)


def test_a_lane_holds_what_its_matrix_unit_wants() -> None:
    """AMD's lane 17 and NVIDIA's lane 5 have row 1, and of it two pairs of columns of two k-tiles."""
    values = torch.zeros(16, 32, dtype=torch.int64)
    values[1] = torch.arange(32) % 16
    amd, nvidia = (packed(in_bytes(values), 2, hip).reshape(-1) for hip in (True, False))
    assert [int(amd[17]) >> shift & 15 for shift in range(0, 32, 4)] == [4, 6, 4, 6, 5, 7, 5, 7]
    assert [int(nvidia[5]) >> shift & 15 for shift in range(0, 32, 4)] == [2, 10, 2, 10, 3, 11, 3, 11]


def test_an_int4_weight_is_eight_less_times_its_scale_plus_its_zero() -> None:
    values, x = nibbles(16, 64), torch.randn(3, 64, generator=torch.Generator().manual_seed(1))
    scales_and_zeros = torch.rand(2, 16, 2, generator=torch.Generator().manual_seed(2))
    expected = torch.zeros(3, 16, dtype=torch.float64)
    for n, k in itertools.product(range(16), range(64)):
        scale, zero = scales_and_zeros[k // 32, n].double()
        expected[:, n] += x[:, k].double() * ((values[n, k] - 8) * scale + zero)
    words = packed(in_bytes(values), 2)
    close(formula("_weight_int4pack_mm")(x.double(), words, 32, scales_and_zeros.double()), expected)


# --- as references -------------------------------------------------------------------------------------------------


def prepared(case: Case, folder: Path) -> dict[str, Expected]:
    reference = Reference(None, folder, seed=0)
    assert reference.prepare(case)["outcome"]["kind"] == "ok"
    return reference._prepared[case.key].expected


def test_an_int4_product_is_compared_though_the_cpu_has_no_kernel(tmp_path: Path) -> None:
    x, words = spec((4, 64), "bfloat16"), spec((2, 2, 32, 1), "int32", storage=1)
    case = Case("int4-0", "aten::_weight_int4pack_mm.default", (x, words, 32, spec((2, 16, 2), "bfloat16", storage=2)))
    [expected] = prepared(case, tmp_path).values()
    assert expected.wide is not None
    assert (expected.fact.sizes, expected.fact.dtype) == ((4, 16), "bfloat16")
    assert 0 < expected.noise < float(expected.wide.abs().max()) * 2**-6  # of weights and result in bf16


def test_the_packing_of_int4_weights_is_compared_bit_for_bit(tmp_path: Path) -> None:
    case = Case("pack-0", "aten::_convert_weight_to_int4pack.default", (spec((16, 16), "uint8"), 2))
    [expected] = prepared(case, tmp_path).values()
    assert (expected.standard, expected.fact.sizes, expected.fact.dtype) == ("exact", (2, 1, 32, 1), "int32")


def test_a_grouped_fp8_product_is_compared_though_the_cpu_has_no_kernel(tmp_path: Path) -> None:
    operands = spec((32, 64), "float8_e4m3fn"), spec((2, 64, 48), "float8_e4m3fn", (3072, 1, 64), 1)
    more = spec((32,), "float32", storage=2), spec((2, 48), "float32", storage=3), spec((2,), "int32", storage=4)
    asked = (("out_dtype", Named("dtype", "bfloat16")),)
    case = Case("grouped-0", "aten::_scaled_grouped_mm.default", (*operands, *more), asked)
    [expected] = prepared(case, tmp_path).values()
    assert expected.wide is not None
    assert (expected.fact.sizes, expected.fact.dtype) == ((32, 48), "bfloat16")
    assert 0 < expected.noise < float(expected.wide.abs().max()) * 2**-8


def test_numbers_of_four_bits_are_said_to_have_no_reference(tmp_path: Path) -> None:
    left, right = spec((32, 32), "float4_e2m1fn_x2"), spec((32, 48), "float4_e2m1fn_x2", (1, 32), 1)
    rest = spec((512,), "float8_e4m3fn", storage=2), spec((512,), "float8_e4m3fn", storage=3)
    case = Case("fp4-0", "aten::_scaled_mm.default", (left, right, *rest))
    answer = Reference(None, tmp_path, seed=0).prepare(case)
    assert answer["outcome"]["kind"] != "ok" or answer["notes"]
