"""Operator-input logs become cases that replay; what cannot is named, and every call is in one place or the other."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from audit.errors import UsageError
from audit.importers.account import SYNTHESISED
from audit.importers.operator_log import MAX_BYTES, read_recording
from audit.importers.registry import find_importer
from audit.schema import Named, Trace
from tests.importers.replayed import outcome_on_cpu


def read(folder: Path, text: str) -> Trace:
    path = folder / "step.txt"
    path.write_text(text)
    return read_recording(path)


def adds_up(trace: Trace) -> bool:
    listed = sum(item.n_calls for item in trace.not_audited)
    return trace.n_recorded == sum(case.n_calls for case in trace.cases) + listed


def test_equal_lines_fold_into_one_case(tmp_path: Path):
    line = "((T([8, 6], f32), T([6, 4], f32)), {})"
    trace = read(tmp_path, f"Operator: aten.mm.default\ncnt: 2, {line}\ncnt: 5, {line}\n")
    assert [(case.op, case.n_calls, case.phase) for case in trace.cases] == [("aten::mm.default", 7, "forward")]
    assert trace.n_recorded == 7


def test_the_source_says_that_it_is_a_log_and_the_values_are_made(tmp_path: Path):
    trace = read(tmp_path, "Operator: aten.exp.default\ncnt: 1, ((T([8], f32),), {})\n")
    assert (trace.source.kind, trace.source.name) == ("operator log, values synthesised", "step.txt")
    assert trace.notes[0] == SYNTHESISED


def test_an_op_that_autograd_alone_calls_is_of_the_backward_phase(tmp_path: Path):
    trace = read(
        tmp_path,
        "Operator: aten._softmax_backward_data.default\n"
        "cnt: 1, ((T([3, 5], f32), T([3, 5], f32), -1, f32), {})\n"
        "Operator: aten.gelu_backward.default\n"
        "cnt: 1, ((T([3, 5], f32), T([3, 5], f32)), {})\n",
    )
    assert [case.phase for case in trace.cases] == ["backward", "backward"]


# --- old names ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "call", "new", "args"),
    [
        ("sum.SymInt", "T([4, 6], f16), [0], True", "aten::sum.dim_IntList", ((0,), True)),
        ("col2im_backward.default", "T([2, 3, 8, 8], f32), [3, 3], [1, 1], [1, 1], [2, 2]", "aten::im2col.default",
         ((3, 3), (1, 1), (1, 1), (2, 2))),
        ("im2col_backward.default", "T([2, 27, 16], f32), [8, 8], [3, 3], [1, 1], [1, 1], [2, 2]",
         "aten::col2im.default", ((8, 8), (3, 3), (1, 1), (1, 1), (2, 2))),
        ("upsample_nearest2d_backward.vec", "T([1, 2, 7, 9], f32), None, [1, 2, 3, 4], [2.5, 2.25]",
         "aten::upsample_nearest2d_backward.default", ((7, 9), (1, 2, 3, 4), 2.5, 2.25)),
        ("upsample_bilinear2d_backward.vec", "T([1, 2, 6, 8], f32), [6, 8], [1, 2, 3, 4], True, None",
         "aten::upsample_bilinear2d_backward.default", ((6, 8), (1, 2, 3, 4), True, None, None)),
        ("expand.SymInt", "T([1, 6], f32), [4, 6]", "aten::expand.default", ((4, 6),)),
    ],
)  # fmt: skip
def test_an_overload_that_torch_gave_up_is_called_as_it_is_now(
    old: str, call: str, new: str, args: tuple[object, ...], tmp_path: Path
):
    trace = read(tmp_path, f"Operator: aten.{old}\ncnt: 3, (({call}), {{}})\n")
    assert [(case.op, case.args[1:]) for case in trace.cases] == [(new, args)]
    assert outcome_on_cpu(trace.cases[0]).kind == "ok"
    assert any(note.startswith(f"aten::{old} is {new} in this torch (3 calls; https://") for note in trace.notes)


# --- what is no case -----------------------------------------------------------------------------------------------


def test_what_cannot_be_a_case_is_named_with_its_reason(tmp_path: Path):
    trace = read(
        tmp_path,
        "Operator: aten.exp.default\n"
        "cnt: 4, ((T([8], f32),), {})\n"
        "cnt: 3, ((T([8] f32),), {})\n"
        "cnt: 2, ((ST([8, 8], f32, torch.sparse_coo, True, nnz=2),), {})\n"
        "garbage\n"
        "Operator: aten.gone_since.default\n"
        "cnt: 5, ((T([8], f32),), {})\n"
        "Operator: aten.cudnn_batch_norm.default\n"
        "cnt: 6, ((T([8], f32),), {})\n"
        "Operator: aten._sparse_coo_tensor_with_dims_and_tensors.default\n"
        "cnt: 7, ((1, 1, [9, 4], T([1, 5], i64), T([5, 4], f16)), {'layout': torch.sparse_coo})\n"
        "Operator: mylib.special.default\n"
        "cnt: 8, ((T([8], f32),), {})\n"
        "Operator: aten.exp_.default\n"
        "cnt: 9, ((T([9223372036854775807], f32),), {})\n",
    )
    assert [(case.op, case.n_calls) for case in trace.cases] == [("aten::exp.default", 4)]
    assert {(item.what, item.n_calls): item.reason.split(":")[0] for item in trace.not_audited} == {
        ("line 3", 3): "not in the grammar of operator logs",
        ("aten::exp.default", 2): "not strided tensor (sparse_coo)",
        ("line 5", 1): "not in the grammar of operator logs",
        ("aten::gone_since.default", 5): "no aten operator that the torch here knows and a replay may run",
        ("aten::cudnn_batch_norm.default", 6): "only one vendor's device has this op, and another would run something "
        "else",
        ("aten::_sparse_coo_tensor_with_dims_and_tensors.default", 7): "not strided result (sparse)",
        ("mylib::special.default", 8): "not an aten op",
        ("aten::exp_.default", 9): "no call that torch could have made",
    }
    assert adds_up(trace)


def test_calls_before_any_operator_are_named(tmp_path: Path):
    trace = read(tmp_path, "Operator: ???\ncnt: 2, ((T([8], f32),), {})\n")
    assert [(item.what, item.n_calls) for item in trace.not_audited] == [("line 1", 1), ("line 2", 2)]


def test_a_device_is_where_the_op_runs(tmp_path: Path):
    trace = read(
        tmp_path,
        "Operator: aten.new_zeros.default\n"
        "cnt: 1, ((T([8], f32), [3]), {'dtype': f16, 'layout': torch.strided, 'device': 'cuda', 'pin_memory': False})\n"
    )  # fmt: skip
    assert dict(trace.cases[0].kwargs)["device"] == Named("device", "device")


@pytest.mark.parametrize(
    ("content", "slug"),
    [
        (b"Operator: aten.exp.default\n", "unreadable-recording"),
        (gzip.compress(b"Operator: aten.exp.default\ncnt: 1, ((T([8], f32),), {})\n")[:-9], "unreadable-recording"),
        (gzip.compress(b"Operator: aten.exp.default\n" + b" " * MAX_BYTES), "too-large-recording"),
    ],
    ids=["no call", "truncated", "too large"],
)
def test_a_file_that_gives_nothing_is_refused_in_one_sentence(content: bytes, slug: str, tmp_path: Path):
    path = tmp_path / "log.txt.gz"
    path.write_bytes(content)
    assert find_importer(path) is not None
    with pytest.raises(UsageError, match=rf"\[{slug}\]$"):
        read_recording(path)


# --- cases that replay ---------------------------------------------------------------------------------------------

SAMPLE = """
Operator: aten._softmax.default
cnt: 1, ((T([6, 10], f16), -1, True), {})
Operator: aten._softmax_backward_data.default
cnt: 1, ((T([6, 10], f32), T([6, 10], f32), -1, f16), {})
Operator: aten._fft_c2c.default
cnt: 1, ((T([1, 16, 12], c32), [1, 2], 0, False), {})
Operator: aten.embedding.default
cnt: 1, ((T([50, 8], f16), T([3, 7], i64), 0), {})
Operator: aten.embedding_dense_backward.default
cnt: 1, ((T([3, 7, 8], f16), T([3, 7], i64), 50, 0, False), {})
Operator: aten._embedding_bag.default
cnt: 1, ((T([50, 8], f16), T([21], i64), T([4], i64), False, 0, False, None), {})
Operator: aten.index.Tensor
cnt: 1, ((T([5, 9, 9], f16), [None, T([12], i64), T([12], i64)]), {})
cnt: 1, ((T([5, 9], f16), [T([5, 9], b8)]), {})
Operator: aten.index_put.default
cnt: 1, ((T([40, 3], f16), [T([100], i64)], T([100, 3], f16, stride=(1, 100)), True), {})
Operator: aten.gather.default
cnt: 1, ((T([4, 30], f16), 1, T([4, 6], i64)), {})
Operator: aten.scatter_add.default
cnt: 1, ((T([4, 30], f16), 1, T([4, 6], i64), T([4, 6], f16)), {})
Operator: aten.index_select.default
cnt: 1, ((T([30, 4], f16), 0, T([9], i64)), {})
Operator: aten.index_add_.default
cnt: 1, ((T([30, 4], f16), 0, T([9], i64), T([9, 4], f16)), {})
Operator: aten.nll_loss_forward.default
cnt: 1, ((T([6, 10], f16), T([6], i64), None, 1, -100), {})
Operator: aten.nll_loss_backward.default
cnt: 1, ((T([], f16), T([6, 10], f16), T([6], i64), None, 1, -100, T([], f16)), {})
Operator: aten.max_pool2d_with_indices_backward.default
cnt: 1, ((T([2, 3, 4, 4], f16), T([2, 3, 8, 8], f16), [2, 2], [2, 2], [0, 0], [1, 1], False, T([2, 3, 4, 4], i64)), {})
Operator: aten.native_batch_norm_backward.default
cnt: 1, ((T([2, 3, 4, 4], f16), T([2, 3, 4, 4], f16), T([3], f16), T([3], f16), T([3], f16), T([3], f32), T([3], f32), True, 1e-05, [True, True, True]), {})
Operator: aten._log_softmax_backward_data.default
cnt: 1, ((T([6, 10], f16), T([6, 10], f16), 1, f16), {})
Operator: aten.upsample_bilinear2d.vec
cnt: 1, ((T([1, 3, 9, 7], f16, stride=(3, 1, 21, 3)), [18, 14], False, None), {})
Operator: aten.convolution_backward.default
cnt: 1, ((T([2, 4, 6, 6], f16), T([2, 3, 6, 6], f16), T([4, 3, 3, 3], f16), [4], [1, 1], [1, 1], [1, 1], False, [0, 0], 1, [True, True, True]), {})
Operator: aten.bernoulli_.float
cnt: 1, ((T([6, 6], f16), 0.9), {})
Operator: aten.where.self
cnt: 1, ((T([6, 6], b8), T([6, 6], f16), T([], f16)), {})
Operator: aten._to_copy.default
cnt: 1, ((T([], f32),), {'dtype': f16, 'device': "torch.device('cpu')"})
"""  # noqa: E501  # lines as PyTorch writes them


@pytest.mark.filterwarnings("ignore:ComplexHalf")
def test_a_log_replays_on_the_cpu_with_arguments_that_are_made(tmp_path: Path):
    trace = read(tmp_path, SAMPLE)
    assert trace.not_audited == ()
    assert len(trace.cases) == 23
    assert {case.op: outcome_on_cpu(case) for case in trace.cases if outcome_on_cpu(case).kind != "ok"} == {}
