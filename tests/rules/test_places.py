"""Places in words."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from audit.places import IndexRun, IndexSet, Places
from audit.rules.dimensions import dimensions
from audit.rules.places import describe, histogram


def some(size: int, *runs: tuple[int, int], n: int | None = None, **given) -> IndexSet:
    n = sum(last - first + 1 for first, last in runs) if n is None else n
    return IndexSet(
        size, n, given.pop("n_runs", len(runs)), tuple(IndexRun(*r) for r in runs[:4]), runs[-1][1], **given
    )


def every(size: int) -> IndexSet:
    return some(size, (0, size - 1))


def places(*along: IndexSet, n: int | None = None, **given) -> Places:
    n_box = 1
    for side in along:
        n_box *= side.n
    n_seen = 1
    for side in along:
        n_seen *= side.size
    return Places(n_box if n is None else n, n_seen, along, n_box, **given)


def test_a_tail_of_rows():
    assert describe(places(some(4096, (4080, 4095)), every(64))) == "rows 4080 to 4095 (the last 16 of 4096)"


def test_the_first_rows_and_a_middle_part():
    assert describe(places(some(64, (0, 3)), every(64))) == "rows 0 to 3 (the first 4 of 64)"
    assert describe(places(some(64, (5, 9)), every(64))) == "rows 5 to 9 (of 64)"


def test_every_second_column():
    columns = some(64, *((i, i) for i in range(1, 64, 2)), width=1, step=2)
    assert describe(places(every(64), columns)) == "every second column from 1"


def test_blocks_at_a_step_that_end_early():
    columns = some(512, (64, 95), (192, 223), (320, 351), width=32, step=128)
    assert describe(places(every(64), columns)) == "32 of every 128 columns from 64 to 351"


def test_one_tile():
    assert describe(places(some(512, (32, 47)), some(512, (64, 79)))) == (
        "rows 32 to 47 (of 512) and columns 64 to 79 (of 512) (one tile of 16 x 16)"
    )


def test_a_few_lines_are_listed_and_many_are_counted():
    assert describe(places(some(64, (3, 3), (17, 17), (40, 42)), every(64))) == "rows 3, 17 and 40 to 42"
    scattered = some(64, (1, 1), (4, 4), (5, 5), (9, 9), (60, 60))
    assert describe(places(scattered, every(64))) == "5 of 64 rows, from 1 to 60"


def test_one_element():
    assert describe(places(some(64, (3, 3)), some(64, (7, 7)))) == "row 3 and column 7"


def test_all_of_it_and_most_of_it():
    assert describe(places(every(8), every(8))) == "all of them"
    assert describe(places(every(8), every(8), n=48)) == "all over it (75 %)"


def test_part_of_the_elements_in_a_range():
    assert describe(places(some(64, (0, 3)), every(64), n=192)) == (
        "rows 0 to 3 (the first 4 of 64), 75 % of the elements there"
    )


def test_elements_astray_are_counted():
    assert describe(places(every(64), some(100, (40, 59)), n=1283, n_astray=3)) == (
        "columns 40 to 59 (of 100), but for 3 or more"
    )


def test_a_step_in_memory_where_rows_and_columns_say_nothing():
    found = places(every(64), every(63), n=54, first_offset=5, last_offset=4000, step=77, fills_steps=True)
    assert describe(found) == "every 77th element of memory from 5"


def test_above_the_diagonal():
    found = places(some(64, (0, 62)), some(64, (1, 63)), n=2016, diagonal=IndexRun(1, 63))
    assert describe(found).endswith(", above the diagonal")


def test_of_an_output_that_was_compared_in_parts():
    assert describe(places(some(8, (7, 7)), every(8)), n_compared=24) == "row 7 (of the parts that were compared)"


def test_dimensions_are_called_by_what_the_op_makes_of_them(build):
    convolution, attention = (
        build.case(f"aten::{op}.default") for op in ("convolution", "_scaled_dot_product_flash_attention")
    )
    one_channel = places(every(2), some(8, (3, 3)), every(4), every(4))
    assert describe(one_channel, convolution, "output") == "channel 3"
    assert describe(one_channel, attention, "output") == "head 3"
    assert [d.one for d in dimensions(build.case("aten::mm.default"), "output", 2)] == ["row", "column"]
    assert [d.many for d in dimensions(None, "output", 4)][:2] == ["slices (dim 0)", "slices (dim 1)"]


def test_a_group_of_channels_is_one(build):
    given, weight = build.tensor(2, 8, 4, 4), build.tensor(8, 2, 1, 1)
    pair = (1, 1)
    case = build.case("aten::convolution.default", given, weight, None, pair, (0, 0), pair, False, (0, 0), 4)
    found = places(every(2), some(8, (2, 3)), every(4), every(4))
    assert describe(found, case, "output") == "channels 2 to 3 (group 1 of 4)"


@pytest.mark.parametrize("n", range(7))
def test_every_dimension_has_a_name(build, n):
    for op in ("mm", "convolution", "max_pool2d", "_scaled_dot_product_flash_attention"):
        assert len(dimensions(build.case(f"aten::{op}.default"), "output 1", n)) == n


def test_a_histogram_leaves_out_empty_powers():
    assert histogram((3180, 12, 0, 0, 0, 0, 0, 0, 0, 4)) == "0 ULP: 3,180; 1: 12; 256 to 511: 4"
    assert histogram((0,) * 40 + (2,)) == "2^39 to 2^40 ULP: 2"


numbers = st.integers(-2, 2**70)
sets = st.builds(
    IndexSet, numbers, numbers, numbers, st.lists(st.builds(IndexRun, numbers, numbers), max_size=5).map(tuple),
    numbers, numbers, numbers,
)  # fmt: skip
any_places = st.builds(
    Places, numbers, numbers, st.lists(sets, max_size=6).map(tuple), numbers,
    st.none() | st.builds(IndexRun, numbers, numbers), numbers, numbers, numbers, st.booleans(), numbers,
)  # fmt: skip


@given(any_places)
def test_no_file_can_make_it_fail(build, found):
    for op in ("mm", "convolution", "_scaled_dot_product_flash_attention"):
        assert isinstance(describe(found, build.case(f"aten::{op}.default"), "output"), str)
