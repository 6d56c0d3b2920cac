"""Unwritten and unrepeated elements, told apart from two runs over differently filled memory."""

from __future__ import annotations

import dataclasses

import torch

from audit.places import IndexRun
from audit.replay.compare import flat
from audit.replay.memory_facts import MemoryFacts, OutputRuns, memory_facts

FILLS = (0x5B, 0xA4)


def filled(byte: int, sizes: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    n = torch.Size(sizes).numel() * dtype.itemsize
    return torch.full((n,), byte, dtype=torch.uint8).view(dtype).reshape(sizes)


def facts(first, second, written=True, repeats=True) -> MemoryFacts:
    """Without places, and without the number of runs."""
    found = memory_facts(first, second, FILLS, written, repeats)
    return dataclasses.replace(found, unwritten=None, not_repeated=None, n_runs=0, n_runs_differing=0)


def differing(*runs: list[float]) -> tuple[int, int, int]:
    """(runs that differ, all runs, elements that differ from the first)."""
    output = OutputRuns(torch.tensor(runs[0]), written=True, repeats=True)
    for n, run in enumerate(runs[1:]):
        output.add(torch.tensor(run), FILLS if n == 0 else None)
    found = output.facts()
    return found.n_runs_differing, found.n_runs, found.n_not_repeated


def test_the_runs_that_differ_from_most_are_counted():
    assert differing([1.0, 2.0], [1.0, 2.0], [1.0, 2.0]) == (0, 3, 0)
    assert differing([1.0, 2.0], [1.0, 3.0]) == (2, 2, 1)
    assert differing([1.0, 2.0], [1.0, 2.0], [9.0, 2.0]) == (1, 3, 1)
    assert differing([1.0, 2.0], [1.0, 5.0], [1.0, 5.0]) == (1, 3, 1)  # the first is the odd one
    assert differing([1.0, 2.0], [1.0, 5.0], [7.0, 2.0]) == (3, 3, 2)


def test_what_was_not_written_does_not_make_a_later_run_differ():
    first, second = filled(FILLS[0], (2,), torch.float32), filled(FILLS[1], (2,), torch.float32)
    output = OutputRuns(first, written=True, repeats=True)
    output.add(second, FILLS)
    output.add(first.clone())
    assert (output.facts().n_runs_differing, output.facts().n_unwritten) == (0, 2)


def test_unwritten_and_unrepeated_elements_are_placed_apart():
    first, second = filled(FILLS[0], (4, 2), torch.float32), filled(FILLS[1], (4, 2), torch.float32)
    first[:3], second[:3] = 1, 1
    second[0] = 2
    found = memory_facts(first, second, FILLS, written=True, repeats=True)
    assert [found.unwritten.along[0].runs, found.not_repeated.along[0].runs] == [(IndexRun(3, 3),), (IndexRun(0, 0),)]


def test_equal_runs_have_nothing_to_say():
    assert facts(torch.ones(3), torch.ones(3)) == MemoryFacts()


def test_an_element_that_follows_the_fill_is_unwritten():
    for dtype in (torch.float32, torch.bfloat16, torch.int64, torch.uint8, torch.complex64):
        first, second = filled(FILLS[0], (2, 3), dtype), filled(FILLS[1], (2, 3), dtype)
        first[0], second[0] = 1, 1
        first[1, 2], second[1, 2] = 1, 1
        assert facts(first, second) == MemoryFacts(n_unwritten=2, first_unwritten=(1, 0))


def test_an_element_that_only_happens_to_equal_one_fill_was_written():
    first = filled(FILLS[0], (3,), torch.float32)
    assert facts(first, first.clone()) == MemoryFacts()


def test_other_differences_are_elements_that_did_not_repeat():
    assert facts(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([1.0, 2.5, 3.5])) == MemoryFacts(n_not_repeated=2)


def test_two_nans_repeat_whatever_their_payload():
    other = torch.tensor([0x7FC00001], dtype=torch.int32).view(torch.float32)
    assert facts(torch.tensor([float("nan")]), other) == MemoryFacts()


def test_exempt_outputs_are_not_counted():
    first, second = filled(FILLS[0], (2,), torch.float32), filled(FILLS[1], (2,), torch.float32)
    assert facts(first, second, written=False) == MemoryFacts()
    assert facts(torch.zeros(2), torch.ones(2), repeats=False) == MemoryFacts()


def test_another_shape_in_the_second_run_does_not_repeat():
    assert facts(torch.zeros(2), torch.zeros(3)) == MemoryFacts(n_not_repeated=3)


def test_strided_outputs_are_looked_at_in_logical_order():
    first = torch.zeros(2, 3).t().contiguous().t()
    second = first.clone()
    second[1, 0] = 5.0
    assert facts(first, second) == MemoryFacts(n_not_repeated=1)


def test_a_single_element_counts_as_contiguous_with_any_stride():
    lone = torch.arange(40.0).as_strided((1,), (20,), 3)
    assert facts(lone, lone.clone()) == MemoryFacts()
    assert facts(lone, lone + 1) == MemoryFacts(n_not_repeated=1)
    assert (flat(lone).stride(), flat(lone).tolist()) == ((1,), [3.0])
