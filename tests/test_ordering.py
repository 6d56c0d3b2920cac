"""A limited audit replays what costs the model most first."""

from __future__ import annotations

from audit.ordering import costliest_first, guessed_cost
from audit.schema import Case, TensorSpec


def matrix(*sizes: int) -> TensorSpec:
    return TensorSpec(sizes, (sizes[1], 1) if len(sizes) == 2 else (1,), "bfloat16")


def test_large_products_come_before_copies_and_copies_before_scalars() -> None:
    cases = [
        Case("c", "aten::add.Tensor", (matrix(1), 1)),
        Case("b", "aten::clone.default", (matrix(4096, 4096),)),
        Case("a", "aten::mm.default", (matrix(8192, 4096), matrix(4096, 14336))),
    ]
    assert [case.key for case in costliest_first(cases)] == ["a", "b", "c"]


def test_calls_multiply_the_cost() -> None:
    once = Case("a", "aten::clone.default", (matrix(64, 64),))
    often = Case("b", "aten::clone.default", (matrix(64, 64),), n_calls=10)
    assert guessed_cost(often) == 10 * guessed_cost(once)


def test_every_op_has_a_cost_and_ties_are_in_a_fixed_order() -> None:
    cases = [Case(key, "aten::scalar_tensor.default", (1.0,)) for key in ("z", "a")]
    assert [case.key for case in costliest_first(cases)] == ["a", "z"]
