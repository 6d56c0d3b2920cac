"""Which standard an op is held to, and that dropout decides by its probability and mode."""

from __future__ import annotations

import pytest

from audit.replay.overload import resolve
from audit.replay.standards import EXACT, standard_of
from audit.schema import Case, Named, TensorSpec


@pytest.mark.parametrize(
    ("op", "standard"),
    [
        ("aten::mm.default", "numeric"),
        ("aten::_softmax.default", "numeric"),
        ("aten::index_add.default", "numeric"),
        ("aten::cat.default", "exact"),
        ("aten::view.default", "exact"),
        ("aten::transpose.int", "exact"),
        ("aten::gt.Tensor", "exact"),
        ("aten::embedding.default", "exact"),
        ("aten::empty.memory_format", "metadata"),
        ("aten::new_empty.default", "metadata"),
        ("aten::randn.default", "metadata"),
        ("aten::bernoulli_.float", "metadata"),
        ("aten::multinomial.default", "metadata"),
    ],
)
def test_the_standard_follows_from_the_op(build, op, standard):
    assert standard_of(build.case(op, build.tensor([4]))).standard == standard


@pytest.mark.parametrize("op", ["aten::abs.default", "aten::sgn.default"])
def test_the_size_of_a_complex_number_is_a_root_and_is_rounded(build, op):
    assert standard_of(build.case(op, build.tensor([4], "complex64"))).standard == "numeric"
    assert standard_of(build.case(op, build.tensor([4]))).standard == "exact"


def test_a_scatter_that_reduces_adds_in_any_order(build):
    x, index = build.tensor([4]), build.tensor([4], "int64", storage=1)
    assert standard_of(build.case("aten::scatter.src", x, 0, index, x)).standard == "exact"
    assert standard_of(build.case("aten::scatter.reduce", x, 0, index, x, reduce="add")).standard == "numeric"


def test_every_exact_op_is_one_that_torch_knows():
    import torch

    assert [name for name in sorted(EXACT) if not hasattr(torch.ops.aten, name)] == []


def test_dropout_is_random_only_while_training_with_a_chance_above_zero(build):
    x = build.tensor([4])
    assert standard_of(build.case("aten::dropout.default", x, 0.5, True)).random
    assert not standard_of(build.case("aten::dropout.default", x, 0.0, True)).random
    assert not standard_of(build.case("aten::dropout.default", x, 0.5, False)).random
    assert standard_of(build.case("aten::native_dropout.default", x, 0.5, None)).random


def test_attention_is_random_only_with_dropout(build):
    q, k, v = (build.tensor([1, 1, 4, 8], storage=n) for n in range(3))
    assert not standard_of(build.case("aten::scaled_dot_product_attention.default", q, k, v)).random
    assert standard_of(build.case("aten::scaled_dot_product_attention.default", q, k, v, None, 0.1)).random
    assert standard_of(build.case("aten::scaled_dot_product_attention.default", q, k, v, dropout_p=0.1)).random


def test_a_recurrent_net_without_dropout_is_numeric(build):
    x, h, w = build.tensor([3, 1, 2]), build.tensor([1, 1, 2], storage=1), build.tensor([2, 2], storage=2)
    arguments = (x, h, (w, w), False, 1)
    assert standard_of(build.case("aten::rnn_tanh.input", *arguments, 0.0, True, False, False)).standard == "numeric"
    assert standard_of(build.case("aten::rnn_tanh.input", *arguments, 0.5, True, False, False)).standard == "metadata"


def test_random_outputs_must_be_written_and_repeat_where_their_law_is_known(build):
    random = standard_of(build.case("aten::randn.default", (4,)))
    assert random.must_be_written("output")
    assert random.must_repeat("output")
    shares = standard_of(build.case("aten::_sample_dirichlet.default", build.tensor((4,))))
    assert shares.must_be_written("output")
    assert not shares.must_repeat("output")


def test_uninitialised_outputs_need_neither(build):
    empty = standard_of(build.case("aten::empty.memory_format", (4,), dtype=Named("dtype", "float32")))
    assert not empty.must_be_written("output")
    assert not empty.must_repeat("output")


def test_outputs_for_the_devices_own_backward_are_not_compared(build):
    attention = standard_of(build.case("aten::_scaled_dot_product_efficient_attention.default", build.tensor([1])))
    assert attention.of_output("output") == ("numeric", "")
    assert attention.of_output("log_sumexp") == ("numeric", "")
    assert attention.of_output("philox_seed") == ("metadata", "private to the device that made it")


def test_private_outputs_are_named_as_the_schema_names_them():
    returns = {r.name for r in resolve("aten::_scaled_dot_product_flash_attention.default")._schema.returns}
    assert {"rng_state", "unused", "debug_attn_mask", "cum_seq_q", "max_q"} <= returns


@pytest.mark.parametrize("op", ["aten::from_file.default", "prim::Print.default", "aten::save.default"])
def test_what_no_tracer_records_is_not_run_for_a_strangers_trace(op):
    with pytest.raises(AttributeError, match="is no aten operator of the dispatcher, or opens files"):
        resolve(op)


def test_an_output_that_was_not_asked_for_is_not_compared() -> None:
    spec = TensorSpec((4,), (1,), "float32", extent=4)
    alone = standard_of(Case("u-0", "aten::_unique2.default", (spec, True, False, False)))
    assert [alone.is_private(f"output {n}") for n in range(3)] == [False, True, True]
    counted = standard_of(Case("u-1", "aten::unique_consecutive.default", (spec, False, True)))
    assert [counted.is_private(f"output {n}") for n in range(3)] == [False, True, False]
    loss = (spec, spec, None)
    assert standard_of(Case("n-0", "aten::nll_loss_forward.default", (*loss, 0, -100))).is_private("total_weight")
    assert not standard_of(Case("n-1", "aten::nll_loss_forward.default", (*loss, 1, -100))).is_private("total_weight")


def test_what_only_some_drivers_give_is_compared_where_one_was_named() -> None:
    spec = TensorSpec((3, 3), (3, 1), "float32", extent=9)
    by_default = standard_of(Case("l-0", "aten::linalg_lstsq.default", (spec, spec)))
    assert [by_default.is_private(name) for name in ("solution", "rank", "singular_values")] == [False, True, True]
    named = standard_of(Case("l-1", "aten::linalg_lstsq.default", (spec, spec), (("driver", "gelsd"),)))
    assert not named.is_private("rank")
