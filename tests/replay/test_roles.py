"""Inputs made for an op from nothing but its arguments: valid, and telling, for every row of the table of roles."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from audit.replay import inputs
from audit.replay.inputs import ValueFile, bind, materialise
from audit.replay.operands import narrow_operands
from audit.replay.overload import operand_names
from audit.replay.reference import Reference
from audit.replay.roles import ROLES, row_of
from audit.schema import Case, Source, Values
from audit.tracer.recorder import Recorder
from tests.replay.role_calls import ROLE_CALLS, RoleCall

each_call = pytest.mark.parametrize("entry", ROLE_CALLS, ids=lambda entry: entry.name)


def traced(entry: RoleCall) -> Case:
    """The entry's op as a case of which no values are known."""
    recorder = Recorder(None)
    torch.manual_seed(0)
    recorder.start()
    try:
        entry.call()
    finally:
        recorder.stop()
    trace, _ = recorder.build(Source("script", "test"), {})
    return next(case for case in trace.cases if case.op.split("::")[1].split(".")[0] == entry.op)


def made(case: Case, operand: str) -> torch.Tensor:
    contents = materialise(case, ValueFile(None), seed=0)
    call = bind(case, narrow_operands(case, contents), torch.device("cpu"), 0)
    return call.operands[operand_names(case).index(operand)]


def replays(case: Case, folder: Path) -> bool:
    """Whether the CPU takes the inputs and gives numbers."""
    reference = Reference(None, folder, seed=0, n_threads=1)
    outcome = reference.prepare(case)["outcome"]
    expected = reference._prepared[case.key].expected if outcome["kind"] == "ok" else {}
    numbers = [e.wide if e.wide is not None else e.same for e in expected.values()]
    return outcome["kind"] == "ok" and not any(x is not None and x.isnan().any() for x in numbers)


@each_call
def test_made_inputs_are_valid(entry: RoleCall, tmp_path: Path):
    case = traced(entry)
    assert entry.holds(made(case, entry.operand))
    assert replays(case, tmp_path)


@each_call
def test_without_the_role_they_are_not(entry: RoleCall, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    case = traced(entry)
    monkeypatch.setattr(inputs, "role_of", lambda op, name: None)
    assert not (entry.holds(made(case, entry.operand)) and replays(case, tmp_path))


# --- ops without a CPU kernel --------------------------------------------------------------------------------------


def packed_attention(build) -> Case:
    """Seven queries and ten keys of three sequences, none longer than 4 and 5."""
    q, k = build.tensor([7, 2, 16], "float16"), build.tensor([10, 2, 16], "float16", storage=1)
    starts = [build.tensor([4], "int32", storage=place) for place in (2, 3)]
    return build.case("aten::_flash_attention_forward.default", q, k, k, *starts, 4, 5, 0.0, False, False)


def efficient_attention(build) -> Case:
    q, k = build.tensor([1, 7, 2, 16]), build.tensor([1, 10, 2, 16], storage=1)
    starts = [build.tensor([4], "int32", storage=place) for place in (2, 3)]
    bias = build.tensor([1, 2, 7, 10], storage=4)
    return build.case("aten::_efficient_attention_forward.default", q, k, k, bias, *starts, 4, 5, 0.0, 0)


def scaled_product(build) -> Case:
    scales = [build.tensor([], storage=place) for place in (2, 3)]
    a, b = build.tensor([16, 16], "float8_e4m3fn"), build.tensor([16, 16], "float8_e4m3fn", storage=1)
    return build.case("aten::_scaled_mm.default", a, b, *scales)


def test_packed_sequences_end_where_the_rows_end(build):
    for case, queries, keys in (
        (packed_attention(build), "cum_seq_q", "cum_seq_k"),
        (efficient_attention(build), "cu_seqlens_q", "cu_seqlens_k"),
    ):
        assert made(case, queries).tolist() == [0, 2, 4, 7]
        assert made(case, keys).tolist() == [0, 3, 6, 10]


def test_a_bias_without_values_is_a_causal_mask(build):
    bias = made(efficient_attention(build), "bias")
    allowed = torch.ones(7, 10, dtype=torch.bool).tril(3)
    assert torch.equal(bias == 0, allowed.expand(1, 2, 7, 10))
    assert (bias[..., ~allowed] == -torch.inf).all()


def batch_norm_over_devices(build) -> Case:
    image, *channels = (build.tensor(sizes, storage=place) for place, sizes in enumerate([[2, 3, 4], *[[3]] * 5]))
    return build.case("aten::batch_norm_gather_stats_with_counts.default", image, *channels[:4], 0.1, 1e-5, channels[4])


def fused_cell_backward(build) -> Case:
    states = [build.tensor([2, 3], storage=place) for place in range(4)]
    workspace = build.tensor([2, 12], storage=4)
    return build.case("aten::_thnn_fused_lstm_cell_backward_impl.default", *states, workspace, True)


def test_activated_gates_are_what_a_sigmoid_gives(build):
    gates = made(fused_cell_backward(build), "workspace")
    assert 0 < gates.min() < gates.max() < 1


def test_scales_and_counts_are_positive(build):
    assert made(scaled_product(build), "scale_a") > 0
    assert made(batch_norm_over_devices(build), "counts").tolist() == [8.0, 8.0, 8.0]


UNTRACED = packed_attention, efficient_attention, scaled_product, batch_norm_over_devices, fused_cell_backward


def test_every_row_of_the_table_is_tried(build):
    cases = [make(build) for make in UNTRACED]
    reached = {row_of(traced(entry).op, entry.operand.split("[")[0]) for entry in ROLE_CALLS}
    reached |= {row_of(case.op, name) for case in cases for name in operand_names(case)}
    assert [row[:2] for number, row in enumerate(ROLES) if number not in reached] == []


# --- what was recorded says more than the op ---------------------------------------------------------------------


def embedding(build, values: Values) -> torch.Tensor:
    case = build.case(
        "aten::embedding.default", build.tensor([50, 4]), build.tensor([4, 25], "int64", storage=1), values={1: values}
    )
    return made(case, "indices")


def test_indices_keep_their_recorded_range_and_repetitions(build):
    indices = embedding(build, Values(minimum=3, maximum=30, n_structured=100, n_distinct=5, max_multiplicity=60))
    counts = indices.unique(return_counts=True)[1]
    assert (indices.min(), indices.max(), len(counts), counts.max()) == (3, 30, 5, 60)


def test_indices_outside_of_what_they_point_into_are_brought_inside(build):
    indices = embedding(build, Values(minimum=0, maximum=4999))
    assert 0 <= indices.min() <= indices.max() < 50


def test_indices_are_sorted_in_each_row_where_they_were(build):
    indices = embedding(build, Values(minimum=0, maximum=49, n_structured=100, order="ascending"))
    assert torch.equal(indices, indices.sort(-1).values)
    assert (indices[1:, 0] < indices[:-1, -1]).any()


def test_ignored_targets_are_among_the_recorded_range(build):
    logits, target = build.tensor([64, 5]), build.tensor([64], "int64", storage=1)
    case = build.case(
        "aten::nll_loss_forward.default", logits, target, None, 1, -100, values={1: Values(minimum=-100, maximum=4)}
    )
    assert made(case, "target").unique().tolist() == [-100, 0, 1, 2, 3, 4]


def test_a_mask_keeps_its_recorded_pattern(build):
    queries = [build.tensor([2, 1, 4, 8], storage=place) for place in range(3)]
    mask = build.tensor([2, 1, 4, 4], "bool", storage=3)
    for values, expected in (
        (Values(pattern="block", n_distinct=2, mean=0.5), [[1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 1, 1], [0, 0, 1, 1]]),
        (Values(pattern="lower", mean=0.6), [[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1]]),
        (Values(pattern="prefix", mean=1.0), [[1, 1, 1, 1]] * 4),
    ):
        case = build.case("aten::scaled_dot_product_attention.default", *queries, mask, values={3: values})
        assert made(case, "attn_mask")[0, 0].int().tolist() == expected


def test_an_additive_mask_has_the_recorded_lowest_value_and_a_bias_stays_one(build):
    queries = [build.tensor([1, 1, 4, 8], storage=place) for place in range(3)]
    mask = build.tensor([1, 1, 4, 4], storage=3)
    lowest = torch.finfo(torch.float32).min
    for values, low in (
        (Values(minimum=lowest, maximum=0.0, mean=lowest / 2, std=1e30, zero_fraction=0.6, pattern="lower"), lowest),
        (Values(minimum=-2.0, maximum=2.0, mean=0.0, std=1.0), -2.0),
    ):
        case = build.case("aten::scaled_dot_product_attention.default", *queries, mask, values={3: values})
        bias = made(case, "attn_mask")
        assert (bias.min().item(), len(bias.unique()) > 2) == (low, low == -2.0)


def test_dimensions_of_stride_zero_stay_expanded(build):
    index = build.tensor([20, 4], "int64", storage=1, strides=(1, 0), extent=20)
    case = build.case("aten::gather.default", build.tensor([9, 4]), 0, index)
    indices = made(case, "index")
    assert torch.equal(indices, indices[:, :1].expand(20, 4))
    assert len(indices.unique()) > 3


def test_arguments_that_fit_no_values_are_our_fault_and_one_sentence(build):
    case = build.case("aten::gather.default", build.tensor([9, 4]), 7, build.tensor([2, 4], "int64", storage=1))
    with pytest.raises(inputs.InputError, match=r"no values fit index of aten::gather.default: tuple index"):
        materialise(case, ValueFile(None), seed=0)
