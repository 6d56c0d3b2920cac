"""Masks to facts: along which indices, and where in memory, the true elements lie."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from audit.places import IndexRun, IndexSet
from audit.replay.pattern import PlaceTally, index_set, places_of


def mask(*sizes: int) -> torch.Tensor:
    return torch.zeros(sizes, dtype=torch.bool)


def along(*indices: int, size: int = 12) -> IndexSet:
    marked = mask(size)
    marked[list(indices)] = True
    return index_set(marked)


def test_a_range_is_one_run():
    assert along(3, 4, 5) == IndexSet(12, 3, 1, (IndexRun(3, 5),), 5, width=3)


def test_every_third_index_is_runs_of_one_at_a_step():
    found = along(1, 4, 7, 10)
    assert (found.n_runs, found.width, found.step, found.last) == (4, 1, 3, 10)


def test_blocks_at_a_step_may_be_cut_by_the_end():
    found = along(1, 2, 3, 6, 7, 8, 11)
    assert (found.width, found.step) == (3, 5)


def test_irregular_indices_have_neither_width_nor_step():
    found = along(1, 4, 5, 9)
    assert (found.n, found.n_runs, found.width, found.step) == (4, 3, 0, 0)


def test_only_the_first_runs_are_told():
    assert along(0, 2, 4, 7, 9, 11).runs == tuple(IndexRun(i, i) for i in (0, 2, 4, 7))


def test_nothing_is_nowhere():
    assert places_of(mask(3, 4)) is None


def test_a_tile_is_a_box_that_is_full():
    wrong = mask(64, 64)
    wrong[16:32, 48:64] = True
    found = places_of(wrong)
    assert (found.n, found.n_box, found.n_seen) == (256, 256, 4096)
    assert [side.runs for side in found.along] == [(IndexRun(16, 31),), (IndexRun(48, 63),)]
    assert not found.fills_steps


def test_a_tail_lies_in_one_run_of_memory():
    wrong = mask(8, 8)
    wrong[6:] = True
    found = places_of(wrong)
    assert (found.first_offset, found.last_offset, found.step, found.fills_steps) == (48, 63, 1, True)


def test_memory_is_told_by_the_strides_of_the_output():
    wrong = mask(4, 6)
    wrong[:, 2] = True
    column_major = places_of(wrong, (1, 4))
    assert (column_major.first_offset, column_major.last_offset, column_major.step) == (8, 11, 1)
    row_major = places_of(wrong)
    assert (row_major.first_offset, row_major.step, row_major.fills_steps) == (2, 6, True)


def test_every_seventh_element_of_memory_is_at_a_step():
    wrong = mask(5, 11)
    wrong.view(-1)[3::7] = True
    found = places_of(wrong)
    assert (found.first_offset, found.step, found.fills_steps) == (3, 7, True)


def test_the_diagonals_are_told():
    assert places_of(torch.ones(4, 4, dtype=torch.bool).triu(1)).diagonal == IndexRun(1, 3)


def test_a_number_has_one_place():
    found = places_of(torch.tensor(True))
    assert (found.n, found.along, found.fills_steps) == (1, (), True)


def test_of_parts_only_the_elements_looked_at_count():
    tally = PlaceTally((4, 4), (4, 1))
    seen = torch.tensor([0, 1, 2, 3, 12, 13, 14, 15])  # the first and the last row
    tally.add(torch.tensor([12, 13, 14, 15]))
    found = tally.places(8, seen)
    assert (found.n, found.n_seen, found.n_box) == (4, 8, 4)


def test_a_few_elements_astray_do_not_hide_the_rest():
    wrong = mask(64, 100)
    wrong[:, 40:60] = True
    wrong[[3, 17, 50], [2, 71, 99]] = True
    found = places_of(wrong)
    assert (found.n, found.n_astray, found.n_box) == (1283, 3, 1280)
    assert found.along[1].runs == (IndexRun(40, 59),)


def test_a_triangle_has_no_strays():
    assert places_of(torch.ones(64, 64, dtype=torch.bool).triu(1)).n_astray == 0


@given(st.lists(st.integers(0, 59), min_size=1, unique=True), st.permutations((12, 4, 1)))
def test_pieces_add_up_to_the_whole(flat, strides):
    whole = mask(5, 3, 4)
    whole.view(-1)[flat] = True
    tally = PlaceTally((5, 3, 4), tuple(strides))
    for index in flat:
        tally.add(torch.tensor([index]))
    found = tally.places(60)
    assert found == places_of(whole, tuple(strides))
    assert found.n == len(flat) <= found.n_box + 3 * found.n_astray
    if not found.n_astray:
        assert [side.n for side in found.along] == [int(whole.amax(d).sum()) for d in ((1, 2), (0, 2), (0, 1))]
