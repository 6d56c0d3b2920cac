"""Products of which parts are computed: each is that of the whole, whatever strides and factors there are."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from audit.comparison import Comparison
from audit.replay.compare import Expected, compare, fact_of, flat
from audit.replay.sampled import bilinear, linear_output
from audit.replay.sampled.exact import noise_by_row
from audit.replay.sampled.products import product_of
from audit.replay.sampled.sketch import sums_of
from audit.replay.stream import Stream
from audit.rules.thresholds import DEFAULT
from audit.rules.whole_output import allowed_variance, log10_chance


@pytest.fixture(autouse=True)
def _few_lines(monkeypatch):
    """As few exact rows and columns as a small product can have."""
    monkeypatch.setattr(bilinear, "MOST", 6)


def sampled(op, arguments, out, seed=1):
    form = product_of(op, arguments, out.dtype).with_wider_columns()
    return linear_output.prepared(form, Stream(seed, op))


def judged(reference, out) -> Comparison:
    return compare(Expected("output", fact_of(out), "numeric", sampled=reference), flat(out), fact_of(out))


def strided(generator: torch.Generator, sizes, order, gap, dtype) -> torch.Tensor:
    """Random numbers with their dimensions in any order in memory and gaps between them."""
    memory = torch.randn([sizes[d] for d in order] + [gap], generator=generator, dtype=torch.float32)
    inverse = [order.index(d) for d in range(len(sizes))]
    return memory[..., 0].permute(inverse).to(dtype) if gap == 1 else memory.to(dtype)[..., 0].permute(inverse)


SIZES = st.tuples(st.integers(1, 4), st.integers(1, 150), st.integers(1, 40), st.integers(1, 150))


@settings(max_examples=40, deadline=None)
@given(
    SIZES,
    st.permutations(range(3)),
    st.permutations(range(3)),
    st.integers(1, 2),
    st.sampled_from((torch.bfloat16, torch.float16, torch.float32, torch.float64)),
    st.sampled_from(((1, 1), (0.5, 2), (0, 1), (-1, 0.25))),
    st.sampled_from(("none", "bias", "matrix", "whole")),
    st.integers(0, 99),
)
def test_exact_parts_and_sketch_are_those_of_the_whole(sizes, left, right, gap, dtype, factors, addend, seed):
    parts, rows, depth, columns = sizes
    generator = torch.Generator().manual_seed(seed)
    a = strided(generator, (parts, rows, depth), left, gap, dtype)
    b = strided(generator, (parts, depth, columns), right, gap, dtype)
    shape = {"bias": (columns,), "matrix": (rows, columns), "whole": (parts, rows, columns)}.get(addend)
    arguments = {"batch1": a, "batch2": b, "self": a, "mat2": b, "beta": factors[0], "alpha": factors[1]}
    whole = factors[1] * (a.double() @ b.double())
    if shape is not None:
        arguments["self"] = torch.randn(shape, generator=generator).to(dtype)
        whole = whole + factors[0] * arguments["self"].double()
    else:
        del arguments["beta"], arguments["alpha"]
        whole = a.double() @ b.double()
    reference = sampled("bmm" if shape is None else "baddbmm", arguments, torch.empty(0, dtype=dtype), seed)
    exact = reference.exact
    torch.testing.assert_close(exact.wide, whole.flatten()[exact.places], rtol=1e-12, atol=1e-12)
    sums = sums_of(reference.form.view(whole.flatten()), reference.blocks)
    own = 1e-4 if dtype.itemsize == 2 else 1e-10  # the sketch of half precision is a product in float32
    torch.testing.assert_close(reference.reference, sums.total, rtol=1e-10, atol=own)
    result = judged(reference, whole.to(dtype))
    assert result.worst_ratio <= 1
    assert result.n_compared == exact.places.numel()
    assert {0, whole.numel() - 1} <= set(exact.places.tolist())


def test_the_other_ops_are_the_products_that_torch_computes():
    generator = torch.Generator().manual_seed(0)

    def some(*sizes):
        return torch.randn(sizes, generator=generator)

    calls = {
        "mm": {"self": some(70, 20), "mat2": some(20, 90)},
        "addmm": {"self": some(70, 1), "mat1": some(70, 20), "mat2": some(20, 90), "beta": 2, "alpha": 0.5},
        "addbmm": {"self": some(70, 90), "batch1": some(3, 70, 20), "batch2": some(3, 20, 90), "beta": 0.5, "alpha": 2},
        "linear": {"input": some(2, 35, 20), "weight": some(90, 20), "bias": some(90)},
        "matmul": {"self": some(4, 1, 70, 20), "other": some(3, 20, 90)},
        "mv": {"self": some(700, 20), "vec": some(20)},
        "addmv": {"self": some(700), "mat": some(700, 20), "vec": some(20), "beta": 3, "alpha": 1},
    }
    for op, arguments in calls.items():
        packet = getattr(torch.ops.aten, op)
        out = packet(**arguments)
        wide = packet(**{n: v.double() if isinstance(v, torch.Tensor) else v for n, v in arguments.items()})
        reference = sampled(op, arguments, out)
        exact = reference.exact
        torch.testing.assert_close(exact.wide, wide.flatten()[exact.places], rtol=1e-12, atol=1e-12, msg=op)
        assert judged(reference, wide.float()).worst_ratio <= 1, op


@pytest.mark.parametrize("kind", [torch.float8_e4m3fn, torch.float8_e4m3fnuz, torch.float8_e5m2])
@pytest.mark.parametrize("by_row", [False, True])
def test_fp8_products_are_those_of_the_numbers_times_their_scales(kind, by_row):
    generator = torch.Generator().manual_seed(0)
    first, second = (torch.randn(sizes, generator=generator).to(kind) for sizes in ((256, 64), (300, 64)))
    sizes = ((256, 1), (1, 300)) if by_row else ((), ())
    scales = [torch.rand(s, generator=generator) + 0.5 for s in sizes]
    bias = torch.randn(300, generator=generator).bfloat16()
    arguments = {"self": first, "mat2": second.t(), "scale_a": scales[0], "scale_b": scales[1], "bias": bias}
    wide = (first.double() * scales[0]) @ (second.t().double() * scales[1]) + bias.double()
    reference = sampled("_scaled_mm", arguments, wide.bfloat16())
    exact = reference.exact
    torch.testing.assert_close(exact.wide, wide.flatten()[exact.places], rtol=1e-5, atol=1e-5)
    healthy = judged(reference, wide.bfloat16())
    assert (healthy.worst_ratio <= 1, 0.8 < excess(healthy)["whole"] < 1.2) == (True, True)
    wide[64] *= 1.02
    assert excess(judged(reference, wide.bfloat16()))["row"] > 20


def test_scales_of_blocks_have_no_form_here():
    arguments = {"self": torch.zeros(128, 256), "mat2": torch.zeros(256, 128)}
    scales = {"scale_a": torch.ones(128, 2), "scale_b": torch.ones(2, 1)}
    assert product_of("_scaled_mm", {**arguments, **scales}, torch.bfloat16) is None


def test_int8_weights_are_numbers_times_the_scales_of_their_columns():
    generator = torch.Generator().manual_seed(0)
    left = torch.randn(256, 64, generator=generator).bfloat16()
    weight = torch.randint(-127, 128, (300, 64), generator=generator, dtype=torch.int8)
    scales = (torch.rand(300, generator=generator) / 64).bfloat16()
    wide = left.double() @ (weight.double() * scales.double().unsqueeze(1)).t()
    reference = sampled("_weight_int8pack_mm", {"self": left, "mat2": weight, "scales": scales}, wide.bfloat16())
    torch.testing.assert_close(reference.exact.wide, wide.flatten()[reference.exact.places], rtol=1e-6, atol=1e-6)
    assert 0.8 < excess(judged(reference, wide.bfloat16()))["whole"] < 1.2


def bf16_product(rows=256, depth=64, columns=300):
    generator = torch.Generator().manual_seed(3)
    a = torch.randn(rows, depth, generator=generator).bfloat16()
    b = torch.randn(depth, columns, generator=generator).bfloat16()
    return a, b, (a.float() @ b.float()).bfloat16()


def excess(result: Comparison) -> dict[str, float]:
    return {scale.name: scale.excess / max(scale.n_summed, 1) for scale in result.sketch.scales}


def test_a_healthy_product_has_an_excess_of_one():
    a, b, out = bf16_product()
    found = excess(judged(sampled("mm", {"self": a, "mat2": b}, out), out))
    assert 0.8 < found["whole"] < 1.2
    assert found["column"] < 1.6


@pytest.mark.parametrize("scales", [(1, 1), (2.0**60, 2.0**50), (2.0**-55, 2.0**-60), (2.0**40, 2.0**-45)])
def test_a_sketch_is_as_sharp_at_the_ends_of_the_range(scales):
    a, b, _ = bf16_product()
    a, b = a * scales[0], b * scales[1]
    out = (a.double() @ b.double()).bfloat16()
    reference = sampled("mm", {"self": a, "mat2": b}, out)
    assert 0.8 < excess(judged(reference, out))["whole"] < 1.2
    out[64:80, 128:144] = out[64:80, 128:144].flip(1).clone()
    assert excess(judged(reference, out))["tile"] > 1e4


@pytest.mark.parametrize("small", [2.0**-10, 2.0**-70])
def test_a_fault_in_rows_that_are_small_is_seen_beside_large_ones(small):
    a, b, _ = bf16_product()
    a[::2] *= small
    out = (a.double() @ b.double()).bfloat16()
    reference = sampled("mm", {"self": a, "mat2": b}, out)
    healthy = judged(reference, out)
    assert excess(healthy)["entry"] < 30
    assert 0.8 < excess(healthy)["whole"] < 1.2
    out[64, 128:144] = out[64, 128:144].flip(0).clone()
    found = {scale.name: scale for scale in judged(reference, out).sketch.scales}
    assert found["entry"].excess > 1000
    assert found["entry"].place[0] == 64


@pytest.mark.parametrize(("dtype", "share"), [(torch.float32, 0.001), (torch.bfloat16, 0.5)])
def test_elements_of_small_rows_have_the_noise_of_their_own_row(dtype, share):
    generator = torch.Generator().manual_seed(5)
    magnitudes = 2.0 ** (torch.rand(256, 1, generator=generator) * 40 - 20)
    a = (torch.randn(256, 1024, generator=generator) * magnitudes).to(dtype)
    b = torch.randn(1024, 300, generator=generator).to(dtype)
    out = (a.float() @ b.float()).to(dtype)
    reference = sampled("mm", {"self": a, "mat2": b}, out)
    assert judged(reference, out).worst_ratio <= 2  # 1.5 with most processors' kernels
    row = int(magnitudes.flatten()[1:-1].argmin()) + 1
    out[row, 0] += share * out[row].std()  # the first column is always among the exact ones
    found = judged(reference, out)
    assert found.worst_ratio > 8
    assert found.worst_index == (row, 0)


def test_a_row_that_is_quiet_by_chance_has_the_noise_of_the_median_row():
    worst, scale = torch.tensor([[4.0, 0.0, 2.0, 300.0]], dtype=torch.float64), torch.tensor([[1.0, 1.0, 1.0, 100.0]])
    assert noise_by_row(worst, 20, torch.float32, scale)[::20].tolist() == [4.0, 2.0, 2.0, 300.0]
    assert noise_by_row(worst, 8, torch.float32, scale)[::8].tolist() == [4.0, 4.0, 3.0, 300.0]
    assert noise_by_row(worst, 8, torch.float64, scale)[::8].tolist() == [300.0] * 4


def test_a_permuted_tile_stands_out_and_is_placed():
    a, b, out = bf16_product()
    out[64:80, 128:144] = out[64:80, 128:144].flip(1).clone()
    [tile] = [s for s in judged(sampled("mm", {"self": a, "mat2": b}, out), out).sketch.scales if s.name == "tile"]
    assert tile.place == (64, 128)
    assert tile.excess > 1e4 * tile.n_summed


def test_equal_rows_and_columns_do_not_raise_an_alarm():
    a, b, _ = bf16_product()
    for left, right in (
        (a[:1].expand(256, -1), b),
        (a, b[:, :1].expand(-1, 300)),
        (a[:1].expand(256, -1), b[:, ::100].repeat(1, 100)),
    ):
        out = (left.float() @ right.float()).bfloat16()
        result = judged(sampled("mm", {"self": left, "mat2": right}, out), out)
        allowed = allowed_variance(result.sketch, DEFAULT)
        assert min(log10_chance(scale, allowed) for scale in result.sketch.scales) > -6


def test_nan_and_inf_among_the_operands_are_expected_where_they_belong():
    a, b, _ = bf16_product()
    a[7, 3], b[5, 9] = float("nan"), float("inf")
    out = (a.float() @ b.float()).bfloat16()
    result = judged(sampled("mm", {"self": a, "mat2": b}, out), out)
    assert (result.n_nan_mismatch, result.n_inf_mismatch) == (0, 0)
    assert excess(result)["whole"] < 1.2
    assert 0 < result.unseen_fraction < 0.01


def test_a_single_nan_anywhere_is_found():
    a, b, out = bf16_product()
    out[101, 77] = float("nan")
    result = judged(sampled("mm", {"self": a, "mat2": b}, out), out)
    assert (result.n_nan_mismatch, result.worst_index) == (1, (101, 77))
    assert excess(result)["whole"] < 1.2


def test_results_beyond_the_range_of_the_dtype_are_inf_and_rightly_so():
    a, b, _ = bf16_product()
    a, b = (a * 64).half(), (b * 64).half()
    b[:, 17] *= 8
    out = (a.float() @ b.float()).half()
    assert bool(torch.isinf(out).any())
    result = judged(sampled("mm", {"self": a, "mat2": b}, out), out)
    assert (result.n_inf_mismatch, result.worst_ratio <= 1) == (0, True)
    assert excess(result)["tile"] < 4


def test_a_difference_of_rows_or_of_operands_that_is_all_zero_is_not_off():
    a, b, _ = bf16_product()
    a[16:64] = 0
    out = (a.float() @ b.float()).bfloat16()
    assert excess(judged(sampled("mm", {"self": a, "mat2": b}, out), out))["row"] < 6
