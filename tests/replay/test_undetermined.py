"""Elements that nothing determines are not compared, and all others are."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from audit.replay.compare import Expected, compare, fact_of, flat
from audit.replay.inputs import Bound
from audit.replay.undetermined import undetermined
from audit.schema import Case, Values

A = torch.ops.aten


def free(op: str, *args: object, **kwargs: object) -> list[int]:
    """Flat places of the free elements of a call's result."""
    overload = getattr(getattr(A, op.split(".")[0]), op.split(".")[1])
    result = overload(*args, **kwargs)
    operands = [arg for arg in args if isinstance(arg, torch.Tensor)]
    mask, why = undetermined(Case("k", f"aten::{op}", ()), Bound(list(args), dict(kwargs), [], operands), result)
    assert (mask is None) == (why == "")
    return [] if mask is None else mask.reshape(-1).nonzero().flatten().tolist()


INDEX = torch.tensor([0, 2, 2, 1])
SOURCE = torch.tensor([5.0, 6.0, 7.0, 8.0])


@pytest.mark.parametrize(
    ("op", "args"),
    [
        ("scatter.src", (torch.zeros(4), 0, INDEX, SOURCE)),
        ("scatter_.src", (torch.zeros(4), 0, INDEX, SOURCE)),
        ("index_copy.default", (torch.zeros(4), 0, INDEX, SOURCE)),
        ("index_copy_.default", (torch.zeros(4), 0, INDEX, SOURCE)),
        ("index_put.default", (torch.zeros(4), [INDEX], SOURCE)),
        ("index_put_.default", (torch.zeros(4), [INDEX], SOURCE)),
        ("_index_put_impl_.default", (torch.zeros(4), [INDEX], SOURCE)),
        ("put_.default", (torch.zeros(2, 2), INDEX, SOURCE)),
    ],
)
def test_a_place_that_is_written_with_different_values_is_free(op: str, args: tuple[object, ...]):
    assert free(op, *args) == [2]


def test_equal_values_leave_no_choice():
    same = torch.tensor([5.0, 6.0, 6.0, 8.0])
    assert free("scatter.src", torch.zeros(4), 0, INDEX, same) == []
    assert free("scatter.value", torch.zeros(4), 0, INDEX, 3.0) == []
    assert free("index_put.default", torch.zeros(4), [INDEX], torch.tensor(1.0)) == []


def test_accumulation_is_determined():
    assert free("index_put.default", torch.zeros(4), [INDEX], SOURCE, True) == []
    assert free("scatter_add.default", torch.zeros(4), 0, INDEX, SOURCE) == []


def test_rows_are_looked_at_element_by_element():
    index = torch.tensor([[1, 1], [1, 0]])
    assert free("scatter.src", torch.zeros(2, 2), 0, index, torch.tensor([[1.0, 2.0], [3.0, 4.0]])) == [2]
    rows = torch.tensor([[1.0, 2.0], [1.0, 4.0]])
    assert free("index_put.default", torch.zeros(3, 2), [torch.tensor([2, 2])], rows) == [5]


def test_indices_from_the_end_and_masks_work_too():
    places = torch.tensor([-1, 3])
    assert free("index_put.default", torch.zeros(4), [places], torch.tensor([1.0, 2.0])) == [3]
    mask = torch.tensor([True, False, True, False])
    assert free("index_put.default", torch.zeros(4), [mask], torch.tensor([1.0, 2.0])) == []
    assert free("index_put.default", torch.zeros(2, 2), [None, torch.tensor([1, 1])], SOURCE.reshape(2, 2)) == [1, 3]


def test_what_is_no_integer_is_free_as_one():
    x = torch.tensor([1.5, float("nan"), float("inf"), -1e30, 255.9, 256.0])
    assert free("_to_copy.default", x, dtype=torch.uint8) == [1, 2, 3, 5]
    assert free("copy_.default", torch.zeros(6, dtype=torch.int64), x) == [1, 2, 3]
    assert free("_to_copy.default", x, dtype=torch.bool) == []
    assert free("_to_copy.default", x, dtype=torch.float16) == []


@pytest.mark.parametrize("standard", ["exact", "numeric"])
def test_free_elements_are_neither_compared_nor_counted(standard):
    cpu, actual = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([1.0, 9.0, 4.0])
    bound = Expected("output", fact_of(cpu), standard, same=flat(cpu), noise=1e-6)
    partly = dataclasses.replace(bound, free=torch.tensor([False, True, False]), why="several writes")
    assert compare(bound, actual, fact_of(actual)).n_different == 2
    compared = compare(partly, actual, fact_of(actual))
    assert (compared.n_elements, compared.n_different, compared.why) == (2, 1, "several writes")


FAULTS = """
def first_wins(call):
    self, dim, index, source = call.args
    return call.run(self, dim, index.flip(dim), source.flip(dim))

def loses_one(call):
    self, dim, index, source = call.args
    result = call.run(self, dim, index, source)
    return result.clone().view(-1).index_fill(0, index.new_tensor([int(index.view(-1)[0])]), 77.0).view(self.shape)

FAULTS = {"aten::scatter.src": first_wins, "aten::index_copy.default": loses_one}
"""


def test_another_winner_on_the_device_is_no_finding_and_a_wrong_value_is(build, fault_file, replay):
    four = Values(minimum=0, maximum=3)
    index = build.tensor([20], "int64", storage=1)
    chosen = build.case(
        "aten::scatter.src", build.tensor([10]), 0, index, build.tensor([20], storage=2), values={1: four}
    )
    distinct = Values(minimum=0, maximum=9, n_structured=10, n_distinct=10, max_multiplicity=1)
    wrong = build.case(
        "aten::index_copy.default",
        build.tensor([10]),
        0,
        build.tensor([10], "int64", storage=1),
        build.tensor([10], storage=2),
        values={1: distinct},
    )
    run = replay([chosen, wrong], device=fault_file(FAULTS))
    [compared] = run.of(chosen).comparisons
    assert (compared.n_elements, compared.n_different) == (6, 0)
    assert compared.why.startswith("several different values")
    [compared] = run.of(wrong).comparisons
    assert (compared.n_elements, compared.n_different) == (10, 1)


def test_where_several_values_stand_equally_often_any_is_the_mode():
    rows = torch.tensor([[1, 1, 2, 2], [3, 3, 3, 4]])
    mask, why = undetermined(
        Case("k", "aten::mode.default", ()), Bound([rows], {}, [], [rows]), torch.mode(rows).values
    )
    assert why.startswith("several values stand equally often")
    assert mask is not None
    assert mask.tolist() == [True, False]
