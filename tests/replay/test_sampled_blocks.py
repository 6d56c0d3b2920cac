"""Large cases that are measured block by block: the same is said of them as of the whole."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch

from audit.codec import decode, encode
from audit.comparison import Comparison
from audit.places import IndexRun
from audit.replay.compare import fact_of, flat
from audit.replay.execute import call, with_mutated
from audit.replay.forwards import with_own_forward
from audit.replay.inputs import bind
from audit.replay.operands import narrow_operands
from audit.replay.overload import resolve
from audit.replay.reference import Reference
from audit.replay.sampled import blocks, plan
from audit.replay.sampled.independent import independent_parts
from audit.replay.spool import read_spool, write_spool
from tests.replay.conftest import Build

tensor = Build.tensor
NOTHING_ELSE = {
    "n_unwritten": 0, "first_unwritten": [], "n_not_repeated": 0, "unwritten": None, "not_repeated": None,
    "n_runs": 2, "n_runs_differing": 0,
}  # fmt: skip


def cases():
    rows, weight = (96, 80), (80,)

    def some(storage, sizes=rows, dtype="bfloat16", **given):
        return tensor(sizes, dtype, storage, **given)

    yield Build.case("aten::gelu.default", some(0))
    yield Build.case("aten::mul.Tensor", some(0), some(1, weight))
    yield Build.case("aten::div_.Tensor", some(0, (1, *rows)), some(1, (96, 1)))
    yield Build.case("aten::add.Tensor", some(0, strides=(1, 96)), some(1), alpha=0.3)
    yield Build.case("aten::_softmax.default", some(0), 1, False)
    yield Build.case("aten::_log_softmax_backward_data.default", some(0), some(1), 1, dtype_of("bfloat16"))
    yield Build.case("aten::native_layer_norm.default", some(0), weight, some(1, weight), some(2, weight), 1e-5)
    yield Build.case(
        "aten::native_layer_norm_backward.default", some(0), some(1), weight, some(2, (96, 1), "float32"),
        some(3, (96, 1), "float32"), some(4, weight), some(5, weight), (True, True, True),
    )  # fmt: skip
    yield Build.case(
        "aten::rms_norm.default", some(0, requires_grad=True), weight, some(1, weight, requires_grad=True), 1e-5,
        grads=(some(2),),
    )  # fmt: skip
    yield Build.case("aten::sum.dim_IntList", some(0), (1,), False)
    yield Build.case("aten::sum.dim_IntList", some(0), (0,), False)
    yield Build.case("aten::sum.default", some(0, dtype="float32"))
    yield Build.case("aten::mean.dim", some(0, (2, 12, 8, 40)), (0, 2, 3), False)
    yield Build.case("aten::mean.default", some(0, dtype="float32"))
    yield Build.case("aten::linalg_vector_norm.default", some(0, dtype="float32"), 2)
    yield Build.case("aten::cumsum.default", some(0, dtype="float32"), 0)
    yield Build.case("aten::_softmax.default", some(0), 0, False)
    yield Build.case("aten::_softmax.default", some(0, (1, 12, 8, 80)), 1, False)
    yield Build.case("aten::add.Tensor", some(0, (96, 1)), some(1, (1, 80)))
    yield from norms(some)
    yield from moved_and_indexed(some)
    yield from put_together(some)
    labels, indices = some(2, (96,), "int64"), some(1, (5, 6), "int64")
    yield Build.case("aten::nll_loss_backward.default", some(0, ()), some(1), labels, None, 1, -100, some(3, ()))
    yield Build.case("aten::embedding_dense_backward.default", some(0, (5, 6, 80)), indices, 96, -1, False)
    yield Build.case("aten::avg_pool2d.default", some(0, (1, 12, 20, 30)), (3, 3), (2, 2), (1, 1))
    yield Build.case("aten::_foreach_mul.Scalar", (some(0), some(1, (7,)), some(2), some(3, (5, 5))), 0.3)
    yield Build.case("aten::_foreach_addcdiv_.ScalarList", *lists(4), (0.1, 0.2, 0.3, 0.4))
    yield Build.case("aten::_foreach_norm.Scalar", lists(5)[0])


def moved_and_indexed(some):
    """Ops whose outputs are held to bits, and those that move or add along one dimension."""
    yield Build.case("aten::where.self", some(0, dtype="bool"), some(1), some(2, (1, 80)))
    yield Build.case("aten::clone.default", some(0, strides=(1, 96)))
    yield Build.case("aten::_to_copy.default", some(0), dtype=dtype_of("float32"))
    yield Build.case("aten::_to_copy.default", some(0), dtype=dtype_of("int32"))
    yield Build.case("aten::copy_.default", some(0), some(1, (80,)))
    yield Build.case("aten::eq.Tensor", some(0), some(1))
    yield Build.case("aten::fill_.Scalar", some(0), 0.5)
    yield Build.case("aten::_foreach_neg.default", (some(0), some(1, (7,))))
    full, line = some(1, (50, 80), "int64"), some(1, (50,), "int64")
    yield Build.case("aten::scatter_add.default", some(0), 0, full, some(2, (50, 80)))
    yield Build.case("aten::scatter.src", some(0, (80, 96)), 1, some(1, (80, 50), "int64"), some(2, (80, 50)))
    yield Build.case("aten::index_add.default", some(0), 0, line, some(2, (50, 80)), alpha=0.5)
    yield Build.case("aten::index_put.default", some(0), (line,), some(2, (50, 80)))
    yield Build.case("aten::index_put_.default", some(0), (line,), some(2, (1, 80)), True)


def put_together(some):
    """Reductions of everything."""
    for op in ("var", "std", "var_mean", "std_mean"):
        yield Build.case(f"aten::{op}.correction", some(0, dtype="float32"), None, correction=1, keepdim=False)
    yield Build.case("aten::var.correction", some(0, dtype="float32"), (1,), correction=0, keepdim=True)
    yield Build.case("aten::sum.default", some(0, dtype="int8"))
    for reduction in (0, 1, 2):
        labels = some(1, (96,), "int64")
        yield Build.case("aten::nll_loss_forward.default", some(0, dtype="float32"), labels, None, reduction, -100)
    yield Build.case("aten::_adaptive_avg_pool2d_backward.default", some(0, (3, 12, 4, 4)), some(1, (3, 12, 20, 9)))


def norms(some):
    """Over groups of channels, of several images and of one, and over images."""
    for n in (3, 1):
        image, weight = some(0, (n, 12, 5, 60 // n)), some(1, (12,))
        sizes, stats = (n, 12, 300 // n, 4), [some(k, (n, 4), "float32") for k in (2, 3)]
        yield Build.case("aten::native_group_norm.default", image, weight, some(2, (12,)), *sizes, 1e-5)
        grad, mask = some(4, image.sizes), (True, True, True)
        yield Build.case("aten::native_group_norm_backward.default", grad, image, *stats, weight, *sizes, mask)
        operands = some(0, image.sizes, requires_grad=True), 4, some(1, (12,), requires_grad=True), some(2, (12,))
        yield Build.case("aten::group_norm.default", *operands, 1e-5, grads=(some(3, image.sizes),))
    channels = [some(k, (12,), "float32") for k in range(1, 7)]
    image, *learned = (
        some(k, s, "float32", requires_grad=True) for k, s in ((0, (3, 12, 5, 10)), (1, (12,)), (2, (12,)))
    )
    given = image, *learned, *channels[2:4], True, 0.1, 1e-5, False
    yield Build.case("aten::batch_norm.default", *given, grads=(some(9, image.sizes, "float32"),))
    for strides in ((600, 50, 10, 1), (600, 1, 120, 12)):  # as images usually lie, and with channels last
        image, grad = (some(k, (3, 12, 5, 10), strides=strides) for k in (0, 9))
        yield Build.case("aten::native_batch_norm.default", image, *channels[:4], True, 0.1, 1e-5)
        operands = channels[0], *channels[2:]
        yield Build.case("aten::native_batch_norm_backward.default", grad, image, *operands, True, 1e-5, (True,) * 3)


def dtype_of(name):
    from audit.schema import Named

    return Named("dtype", name)


def lists(n):
    sizes = [(96, 80), (7,), (64, 33), (96, 80), (2, 2)][:n]
    return tuple(tuple(tensor(s, "float32", 10 * k + i) for i, s in enumerate(sizes)) for k in range(3))


def outputs_of(case, reference, folder):
    """What the CPU gives for the case as a device would leave it; nothing where its operands are not spooled."""
    index = reference._prepared[case.key].index
    contents = read_spool(folder / f"{case.key}.inputs", index)
    bound = bind(case, narrow_operands(case, contents), torch.device("cpu"), 0)
    bound, _ = with_own_forward(case, bound, resolve)
    produced = call(case, resolve(case.op), bound)
    found = with_mutated(case, bound, produced, reference._prepared[case.key].mutated)
    return {item.name: item.tensor.detach() for item in found if item.tensor is not None}


def judged(case, folder, spoil=None) -> tuple[dict[str, Comparison], tuple[str, ...]]:
    folder.mkdir(exist_ok=True)
    reference = Reference(None, folder, 0, 1)
    notes = tuple(reference.prepare(case)["notes"])
    outputs = outputs_of(case, reference, folder)
    if spoil is not None:
        spoil(outputs)
    index = write_spool(folder / "outputs", {name: flat(t).view(torch.uint8) for name, t in outputs.items()})
    told = {
        name: {"fact": encode(fact_of(t)), "stored_dtype": str(flat(t).dtype).removeprefix("torch."),
               **NOTHING_ELSE}
        for name, t in outputs.items()
    }  # fmt: skip
    found = [decode(Comparison, item) for item in reference.compare(case.key, told, folder / "outputs", index)]
    return {comparison.name: comparison for comparison in found}, notes


@pytest.fixture
def in_blocks(monkeypatch):
    monkeypatch.setattr(plan, "_BYTES_LIMIT", 1)
    monkeypatch.setattr(plan, "BLOCKS_LIMIT_BYTES", 1000)
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 4000)


@pytest.mark.parametrize("case", list(cases()), ids=lambda case: case.op)
def test_the_same_is_said_of_a_case_in_blocks_as_of_the_whole(case, tmp_path: Path, monkeypatch):
    whole, _ = judged(case, tmp_path / "whole")
    monkeypatch.setattr(plan, "_BYTES_LIMIT", 1)
    monkeypatch.setattr(plan, "BLOCKS_LIMIT_BYTES", 1000)
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 4000)
    found, notes = judged(case, tmp_path / "blocks")
    assert any("compared in parts" in note for note in notes)
    assert found.keys() == whole.keys()
    for name, comparison in found.items():
        assert comparison.standard == whole[name].standard
        assert (comparison.n_elements, comparison.n_compared) == (whole[name].n_elements, None)
        assert comparison.worst_ratio <= 3  # the CPU's own sum of all rows is in the whole's noise alone
        assert comparison.max_abs_error == pytest.approx(whole[name].max_abs_error, rel=1e-3)
        assert comparison.rms_error == pytest.approx(whole[name].rms_error, rel=1e-3)


def test_an_error_is_placed_in_the_whole_output(tmp_path: Path, in_blocks):
    def spoil(outputs):
        outputs["output"][77, 31] += 1

    found, _ = judged(Build.case("aten::gelu.default", tensor((96, 80), "float32")), tmp_path, spoil)
    assert found["output"].worst_index == (77, 31)
    assert found["output"].worst_ratio > 1e5


def test_errors_of_several_blocks_are_placed_together(tmp_path: Path, in_blocks):
    def spoil(outputs):
        outputs["output"][:, 40:] += 1

    for op in ("gelu", "relu"):  # compared in fp64, and bit for bit
        found, _ = judged(Build.case(f"aten::{op}.default", tensor((96, 80), "float32")), tmp_path / op, spoil)
        wrong = found["output"].wrong
        assert (wrong.n, wrong.n_seen, wrong.n_box) == (3840, 7680, 3840)
        assert [side.runs for side in wrong.along] == [(IndexRun(0, 95),), (IndexRun(40, 79),)]


@pytest.mark.parametrize("op", ["gelu", "_softmax"])
def test_a_tile_that_is_slightly_off_is_found_in_its_place(op, tmp_path: Path, in_blocks, monkeypatch):
    """Each element is within its own allowance in half precision, and all of them are not."""
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 16_000)

    def spoil(outputs):
        outputs["output"][64:80, 16:32] *= 1.03

    given = (1, False) if op == "_softmax" else ()
    case = Build.case(f"aten::{op}.default", tensor((96, 80), "bfloat16"), *given)
    assert judged(case, tmp_path)[0]["output"].parts == ()
    found, notes = judged(case, tmp_path, spoil)
    assert any("compared in parts" in note for note in notes)
    assert found["output"].worst_ratio < 8
    [tile] = [part for part in found["output"].parts if part.kind == "tile"]
    assert (tile.place, tile.n) == ((4, 1), 256)
    assert tile.ratio > 6


def test_an_error_in_a_list_is_found_in_its_entry(tmp_path: Path, in_blocks):
    def spoil(outputs):
        outputs["self[3] (mutated)"][95, 79] = float("nan")

    case = Build.case("aten::_foreach_addcdiv_.ScalarList", *lists(4), (0.1, 0.2, 0.3, 0.4))
    found, _ = judged(case, tmp_path, spoil)
    assert {name for name, c in found.items() if c.n_nan_mismatch} == {"self[3] (mutated)"}
    assert found["self[3] (mutated)"].worst_index == (95, 79)


@pytest.mark.parametrize(("op", "given"), [("neg", ()), ("sum", ()), ("var.correction", (None,))])
def test_two_long_rows_are_cut_as_well(op, given):
    case = Build.case(f"aten::{op}" if "." in op else f"aten::{op}.default", tensor((2, 1 << 22), "int8"), *given)
    independent = independent_parts(case, (2, 1 << 22), 1 << 23)
    assert independent is not None
    assert len(list(blocks.blocks_of(case, independent))) > 1
    assert independent.dim == 1


def test_a_block_that_cannot_be_measured_is_told(tmp_path: Path, in_blocks, monkeypatch):
    original = Reference._measured

    def failing(self, case, contents):
        return {} if case.key.endswith("-0") else original(self, case, contents)

    monkeypatch.setattr(Reference, "_measured", failing)
    found, _ = judged(Build.case("aten::gelu.default", tensor((96, 80), "float32")), tmp_path)
    comparison = found["output"]
    assert (comparison.n_elements, comparison.n_compared) == (7680, 7200)
    assert comparison.unseen_fraction == 0.0625
    assert dataclasses.replace(comparison, n_compared=None).reference == "fp64"
