"""Products of quantised operands are held to their formula in double precision."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from audit.codec import contiguous_strides
from audit.replay.dequantised import formula_of
from audit.replay.reference import Reference
from audit.schema import Case, Named, TensorSpec


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


def test_the_formula_is_that_of_the_cpu_kernel() -> None:
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(n, 64, generator=generator).to(torch.float8_e4m3fn) for n in (32, 48))
    scale_a, scale_b = torch.rand(32, 1, generator=generator), torch.rand(1, 48, generator=generator)
    given = torch._scaled_mm(a, b.t(), scale_a, scale_b, out_dtype=torch.float32)
    formula = formula_of("aten::_scaled_mm.default")
    assert formula is not None
    torch.testing.assert_close(
        given.double(), formula(a.double(), b.double().t(), scale_a, scale_b), rtol=1e-5, atol=1e-5
    )


def test_an_int8_weight_has_its_formula_too() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(4, 64, generator=generator, dtype=torch.float32)
    weight = torch.randint(-128, 127, (48, 64), generator=generator, dtype=torch.int8)
    scales = torch.rand(48, generator=generator)
    formula = formula_of("aten::_weight_int8pack_mm.default")
    assert formula is not None
    torch.testing.assert_close(
        torch._weight_int8pack_mm(x, weight, scales).double(), formula(x.double(), weight, scales), rtol=1e-5, atol=1e-3
    )


def test_scales_of_blocks_are_left_to_the_cpus_own_answer() -> None:
    formula = formula_of("aten::_scaled_mm.default")
    assert formula is not None
    with pytest.raises(NotImplementedError, match="blocks"):
        formula(torch.ones(32, 64), torch.ones(64, 48), torch.ones(32, 2), torch.ones(2, 48))
