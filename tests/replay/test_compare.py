"""The comparison's numbers, on tensors small enough to check by hand."""

from __future__ import annotations

import math

import pytest
import torch

from audit.comparison import Comparison, TensorFact
from audit.replay import compare as module
from audit.replay.compare import Expected, compare, error_between, fact_of, flat, unravel, worse
from audit.replay.ties import Tie

INF, NAN = math.inf, math.nan
EPS32 = 2.0**-23


def numeric(actual, wide, same=None, noise=0.0, dtype=torch.float32) -> Comparison:
    device = torch.tensor(actual, dtype=dtype)
    expected = Expected(
        "output",
        fact_of(device),
        "numeric",
        same=torch.tensor(actual if same is None else same, dtype=dtype).flatten(),
        wide=torch.tensor(wide, dtype=torch.float64).flatten(),
        noise=noise,
    )
    return compare(expected, flat(device), fact_of(device))


def exact(actual, same, tie=None) -> Comparison:
    device, cpu = torch.as_tensor(actual), torch.as_tensor(same)
    expected = Expected("output", fact_of(cpu), "exact", same=flat(cpu), tie=tie)
    return compare(expected, flat(device), fact_of(device))


def test_errors_are_absolute_and_root_mean_square():
    result = numeric([1.0, 2.0, 3.5, 4.0], [1.0, 2.5, 3.5, 4.0])
    assert (result.max_abs_error, result.rms_error) == (0.5, 0.25)
    assert (result.n_elements, result.worst_index) == (4, (1,))
    assert (result.worst_actual, result.worst_expected) == ("2.0", "2.5")


def test_the_ratio_is_error_over_noise_plus_one_rounding_step():
    result = numeric([3.0, 8.0], [2.0, 8.0], noise=0.25)
    assert result.eps == EPS32
    assert result.worst_ratio == pytest.approx(1.0 / (0.25 + EPS32 * 2.0), rel=1e-12)


def test_ratio_counts_count_elements_above_each_power_of_two():
    result = numeric([0.5, 1.5, 3.0, 9.0, 0.0], [0.0] * 5, noise=1.0)
    assert result.ratio_counts == (3, 2, 1, 1)  # > 1: three; > 2: two; > 4 and > 8: one


def test_an_error_without_any_floor_has_an_infinite_ratio():
    result = numeric([1e-30, 0.0], [0.0, 0.0])
    assert result.worst_ratio == INF
    assert len(result.ratio_counts) == 64


def test_equal_results_have_no_ratio():
    result = numeric([0.0, 1.0], [0.0, 1.0])
    assert (result.worst_ratio, result.ratio_counts, result.max_abs_error) == (0.0, (), 0.0)


def test_nan_where_neither_reference_has_one_is_a_mismatch():
    result = numeric([1.0, NAN, 3.0], [1.0, 2.0, 3.0], same=[1.0, 2.0, 3.0])
    assert (result.n_nan_mismatch, result.worst_index, result.worst_actual) == (1, (1,), "nan")
    assert result.max_abs_error == 0.0


def test_a_missing_nan_is_a_mismatch_too():
    result = numeric([1.0, 2.0], [1.0, NAN], same=[1.0, NAN])
    assert result.n_nan_mismatch == 1


def test_an_overflow_to_inf_that_the_dtype_explains_is_right():
    result = numeric([INF], [1e6], same=[INF], dtype=torch.float16)
    assert (result.n_inf_mismatch, result.n_different) == (0, 0)


@pytest.mark.parametrize(
    ("actual", "wide", "n"),
    [
        (INF, 65490.0, 0),
        (65504.0, 65530.0, 0),
        (-INF, -65490.0, 0),
        (INF, 64000.0, 1),
        (65504.0, 70000.0, 1),
        (-INF, 65490.0, 1),
        (65504.0, INF, 1),
    ],
)
def test_at_the_edge_of_overflow_both_sides_are_right(actual, wide, n):
    result = numeric([actual, 1.0], [wide, 1.0], same=[wide, 1.0], dtype=torch.float16)
    assert result.n_inf_mismatch == n
    assert (result.wrong is None) == (n == 0)


def test_inf_of_the_wrong_sign_is_a_mismatch():
    result = numeric([-INF, INF], [INF, INF], same=[INF, INF])
    assert (result.n_inf_mismatch, result.worst_index) == (1, (0,))


def test_where_cpu_and_fp64_disagree_on_inf_either_is_accepted():
    assert numeric([INF], [5.0], same=[INF]).n_inf_mismatch == 0
    assert numeric([5.0], [5.0], same=[INF]).n_inf_mismatch == 0


def test_the_blocks_add_up(monkeypatch):
    monkeypatch.setattr(module, "BLOCK", 3)
    result = numeric(
        [[0.0, 1.0, 2.0, 3.0], [4.0, 5.0, 6.0, 9.0]], [[0.0, 1.5, 2.0, 3.0], [4.0, 5.0, 6.0, 7.0]], noise=1.0
    )
    assert (result.max_abs_error, result.worst_index) == (2.0, (1, 3))
    assert result.rms_error == pytest.approx(math.sqrt((0.25 + 4.0) / 8))


def test_complex_errors_are_distances():
    result = Expected(
        "o", fact_of(torch.zeros(1, dtype=torch.complex64)), "numeric", wide=torch.zeros(1, dtype=torch.complex128)
    )
    measured = compare(result, torch.tensor([3 + 4j], dtype=torch.complex64), result.fact)
    assert measured.max_abs_error == 5.0


def test_without_an_fp64_form_the_cpu_is_the_reference():
    fact = fact_of(torch.zeros(2))
    expected = Expected("o", fact, "numeric", same=torch.tensor([1.0, 2.0]), noise=0.5)
    result = compare(expected, torch.tensor([1.0, 3.0]), fact)
    assert (result.reference, result.max_abs_error, result.n_different) == ("same-dtype", 1.0, 1)
    assert result.worst_ratio == pytest.approx(1 / (0.5 + 2 * EPS32))


# --- what is off is looked at more closely ----------------------------------------------------------------------------


def test_errors_that_are_too_large_are_placed_and_counted_in_ulp():
    result = numeric([[1.0, 2.0], [1.0, 4.0]], [[1.0, 2.0], [1.0, 1.0]], noise=0.1)
    assert (result.wrong.n, result.wrong.n_seen, result.wrong.first_offset) == (1, 4, 3)
    assert (result.ulp_counts[0], sum(result.ulp_counts), len(result.ulp_counts)) == (3, 4, 26)  # 2^24 ULP


def test_a_nan_is_placed_and_has_no_distance():
    result = numeric([1.0, NAN, INF], [1.0, 2.0, 3.0], same=[1.0, 2.0, 3.0])
    assert (result.wrong.n, result.ulp_counts) == (2, (1,))


def test_what_is_right_is_not_looked_at_twice():
    result = numeric([1.0, 2.0], [1.0, 2.0 + 2 * EPS32], noise=EPS32)
    assert (result.wrong, result.ulp_counts) == (None, ())


def test_the_pieces_of_a_large_output_add_up(monkeypatch):
    monkeypatch.setattr(module, "BLOCK", 3)
    result = numeric([[0.0, 9.0], [0.0, 9.0], [0.0, 9.0]], [[0.0] * 2] * 3, noise=0.5)
    assert [(side.n, side.runs[0].first) for side in result.wrong.along] == [(3, 0), (1, 1)]


def test_fp8_is_counted_in_its_own_steps():
    actual, wide = torch.tensor([1.0, 448.0]), torch.tensor([1.125, 1.0], dtype=torch.float64)
    fact = TensorFact((2,), (1,), "float8_e4m3fn")
    result = compare(Expected("o", fact, "numeric", wide=wide, noise=0.01), actual, fact)
    assert result.ulp_counts == (0, 1, 0, 0, 0, 0, 0, 1)  # 1 ULP, 70 ULP


def test_whole_numbers_are_placed_without_ulp():
    result = exact([[1, 2], [3, 4]], [[1, 2], [9, 8]])
    assert (result.wrong.n, result.wrong.step, result.ulp_counts) == (2, 1, ())


# --- exact ---------------------------------------------------------------------------------------------------------


def test_exact_counts_differing_elements_and_names_the_first():
    result = exact([[1, 2], [3, 4]], [[1, 2], [9, 8]])
    assert (result.n_different, result.worst_index) == (2, (1, 0))
    assert (result.worst_actual, result.worst_expected) == ("3", "9")


def test_exact_lets_negative_zero_and_any_nan_pass():
    payload = torch.tensor([0x7FC00001], dtype=torch.int32).view(torch.float32)
    assert exact(torch.cat([torch.tensor([-0.0]), payload]), [0.0, NAN]).n_different == 0


def test_exact_tells_a_nan_from_a_number():
    result = exact([NAN, 1.0], [2.0, 1.0])
    assert (result.n_different, result.n_nan_mismatch) == (1, 1)


def test_another_shape_or_dtype_is_shown_and_not_compared():
    shape = exact([1.0, 2.0], [1.0])
    assert (shape.n_elements, shape.actual.sizes, shape.expected.sizes) == (0, (2,), (1,))
    dtype = exact(torch.tensor([1.0]), torch.tensor([1.0], dtype=torch.float64))
    assert (dtype.n_elements, dtype.actual.dtype, dtype.expected.dtype) == (0, "float32", "float64")


def test_an_output_that_did_not_come_is_shown_as_missing():
    result = compare(Expected("o", fact_of(torch.zeros(1)), "exact", same=torch.zeros(1)), None, None)
    assert result.actual is None


def test_metadata_shows_strides_and_looks_at_no_value():
    fact = fact_of(torch.zeros(2, 3))
    other = fact_of(torch.zeros(3, 2).t())
    result = compare(Expected("o", fact, "metadata", "random"), torch.ones(6), other)
    assert (result.n_elements, result.expected.strides, result.actual.strides) == (0, (3, 1), (1, 2))


# --- ties ----------------------------------------------------------------------------------------------------------

ROW = torch.tensor([[5.0, 7.0, 7.0, 1.0]])


def test_another_index_of_an_equal_value_is_no_difference():
    tie = Tie(ROW, 1, "same rank", distinct=True)
    assert exact([[2, 1]], [[1, 2]], tie).n_different == 0


def test_an_index_of_another_value_is_a_difference():
    tie = Tie(ROW, 1, "same rank", distinct=True)
    assert exact([[1, 0]], [[1, 2]], tie).n_different == 1


def test_the_same_index_twice_is_a_difference_where_indices_are_distinct():
    assert exact([[2, 2]], [[1, 2]], Tie(ROW, 1, "same rank", distinct=True)).n_different == 1


def test_an_index_out_of_range_is_a_difference():
    assert exact([[1, 4]], [[1, 2]], Tie(ROW, 1, "same rank")).n_different == 1
    assert exact([[1, -1]], [[1, 2]], Tie(ROW, 1, "same rank")).n_different == 1


def test_a_reduced_dimension_may_pick_either_of_equal_values():
    assert exact([2], [1], Tie(ROW, 1, "reduced")).n_different == 0
    assert exact([0], [1], Tie(ROW, 1, "reduced")).n_different == 1


def test_an_argmax_over_everything_counts_in_the_flattened_tensor():
    assert exact(torch.tensor(2), torch.tensor(1), Tie(ROW, None, "reduced")).n_different == 0


def test_two_nans_are_a_tie():
    source = torch.tensor([[NAN, 1.0, NAN]])
    assert exact([2], [0], Tie(source, 1, "reduced")).n_different == 0


def test_pooling_indices_count_within_the_plane():
    plane = torch.tensor([[[[3.0, 3.0], [1.0, 2.0]]]]).flatten(-2)
    assert exact(torch.tensor([[[[1]]]]), torch.tensor([[[[0]]]]), Tie(plane, -1, "pooled")).n_different == 0
    assert exact(torch.tensor([[[[3]]]]), torch.tensor([[[[0]]]]), Tie(plane, -1, "pooled")).n_different == 1


# --- small parts ---------------------------------------------------------------------------------------------------


def test_of_two_runs_the_worse_one_counts():
    right = torch.tensor([1.0, 2.0])
    expected = Expected("output", fact_of(right), "numeric", same=right, wide=right.double(), noise=1e-7)
    runs = [compare(expected, run, fact_of(run)) for run in (right, right * 1.5, torch.tensor([1.0, NAN]))]
    assert worse(runs[:2]) is runs[1]
    assert worse(runs) is runs[2]


def test_unravel_is_row_major():
    assert [unravel(i, (2, 3)) for i in (0, 2, 3, 5)] == [(0, 0), (0, 2), (1, 0), (1, 2)]
    assert unravel(0, ()) == ()


def test_error_between_leaves_out_what_is_not_finite():
    a, b = torch.tensor([1.0, NAN, 3.0]), torch.tensor([1.5, 2.0, INF], dtype=torch.float64)
    assert error_between(a, b) == (0.5, 0.5)


def test_flat_follows_logical_order_and_widens_fp8():
    assert flat(torch.tensor([[1, 2], [3, 4]]).t()).tolist() == [1, 3, 2, 4]
    assert flat(torch.ones(2).to(torch.float8_e4m3fn)).dtype is torch.float32


def test_complex_numbers_of_half_precision_are_compared_though_torch_cannot() -> None:
    same = torch.tensor([1 + 2j, 3 - 1j]).to(torch.complex32)
    expected = Expected("output", fact_of(same), "exact", same=same)
    assert compare(expected, same.clone(), fact_of(same)).n_different == 0
    other = torch.tensor([1 + 2j, 3 - 2j]).to(torch.complex32)
    assert compare(expected, other, fact_of(same)).n_different == 1
