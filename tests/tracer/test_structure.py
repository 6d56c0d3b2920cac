"""What is said of the structure of indices and masks that are not kept."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from audit.schema import Values
from audit.tracer.structure import INTEGERS_LOOKED_AT, structure_of, with_structure
from audit.tracer.values import described
from tests.tracer.test_values import capture


def seen(*tensors: torch.Tensor) -> Values:
    values = Values()
    for tensor in tensors:
        values = with_structure(values, structure_of(tensor))
    return values


def test_repetitions_are_counted() -> None:
    values = seen(torch.tensor([[3, 1, 3], [3, 2, 1]]))
    assert (values.n_structured, values.n_distinct, values.max_multiplicity) == (6, 3, 3)


@pytest.mark.parametrize(
    ("elements", "order"),
    [
        ([1, 2, 3], "strictly ascending"),
        ([1, 2, 2], "ascending"),
        ([3, 2, 2], "descending"),
        ([1, 3, 2], ""),
        ([[1, 5], [0, 2]], "strictly ascending"),
        ([[1, 5], [2, 0]], ""),
        ([7], ""),
        (7, ""),
    ],
)
def test_order_is_that_of_every_row(elements: object, order: str) -> None:
    assert seen(torch.tensor(elements)).order == order


def test_a_long_tensor_is_looked_at_in_part() -> None:
    values = seen(torch.arange(INTEGERS_LOOKED_AT * 3))
    assert (values.n_structured, values.n_distinct, values.order) == (1 << 16, 1 << 16, "strictly ascending")


def test_an_expanded_dimension_repeats_nothing() -> None:
    index = torch.tensor([[4], [2], [4]]).expand(3, 100)
    assert (seen(index).n_structured, seen(index).max_multiplicity) == (3, 2)


SQUARE = torch.ones(4, 4, dtype=torch.bool)
BLOCKS = torch.block_diag(torch.ones(1, 1), torch.ones(3, 3)).bool()
RAGGED = torch.tensor([[1, 1, 0, 0], [1, 0, 0, 0], [1, 1, 1, 1]]).bool()


@pytest.mark.parametrize(
    ("mask", "pattern"),
    [
        (SQUARE.tril(), "lower"),
        (SQUARE.triu(1), "upper"),
        (torch.ones(2, 5, dtype=torch.bool).tril(3), "lower"),
        (SQUARE.tril().expand(3, 2, 4, 4), "lower"),
        (BLOCKS, "block"),
        (RAGGED, "prefix"),
        (~RAGGED, "suffix"),
        (RAGGED[:, None, None, :], "prefix"),
        (SQUARE, "prefix"),
        (torch.tensor([True, False, True]), ""),
        (torch.tensor(True), ""),
    ],
)
def test_the_pattern_of_a_mask(mask: torch.Tensor, pattern: str) -> None:
    assert seen(mask).pattern == pattern


def test_blocks_are_counted() -> None:
    assert seen(BLOCKS).n_distinct == 2


def test_what_the_sampled_calls_have_in_common_stays() -> None:
    assert seen(torch.tensor([1, 2]), torch.tensor([2, 2])).order == "ascending"
    assert seen(torch.tensor([1, 2]), torch.tensor([2, 1]), torch.tensor([1, 2])).order == ""
    assert seen(SQUARE.tril(), SQUARE.triu(1)).pattern == ""
    both = seen(torch.tensor([1, 2, 3]), torch.tensor([5, 5, 5]))
    assert (both.n_distinct, both.max_multiplicity) == (3, 3)


def test_indices_and_masks_without_a_budget_are_described(tmp_path: Path) -> None:
    mask = torch.zeros(4, 4).masked_fill(~SQUARE.tril(), -torch.inf)
    heads = torch.randn(3, 1, 2, 4, 8)

    def work() -> None:
        torch.randn(9, 2).index_select(0, torch.tensor([5, 5, 7]))
        torch.nn.functional.scaled_dot_product_attention(*heads, attn_mask=mask)
        torch.randn(4, 4).masked_fill(SQUARE.triu(1), 0.0)

    values, kept = capture(tmp_path, work, total_bytes=0)
    assert kept == {}
    index = values["aten::index_select.default"][1]
    assert (index.minimum, index.maximum, index.n_distinct, index.max_multiplicity) == (5, 7, 2, 2)
    assert index.order == "ascending"
    bias = values["aten::scaled_dot_product_attention.default"][3]
    assert (bias.pattern, bias.zero_fraction, bias.n_neginf) == ("lower", 0.625, 6)
    assert values["aten::masked_fill.Scalar"][1].pattern == "upper"


def test_what_is_kept_whole_is_not_looked_at_twice(tmp_path: Path) -> None:
    values, _ = capture(tmp_path, lambda: torch.randn(9, 2).index_select(0, torch.tensor([5, 5, 7])))
    assert values["aten::index_select.default"][1].n_structured == 0


def test_a_kept_copy_can_be_described_later() -> None:
    assert described(torch.tensor([1, 2, 2]), Values(stored=True, minimum=0, maximum=9)).max_multiplicity == 2
    mask = torch.zeros(4, 4).masked_fill(~SQUARE.tril(), -65504.0)
    assert described(mask, Values(stored=True, minimum=-65504.0, maximum=0.0)).pattern == "lower"
