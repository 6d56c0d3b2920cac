"""The CPU device and the guarded storages that all devices share."""

from __future__ import annotations

import ctypes

import pytest
import torch

from audit.device.cpu import CpuDevice
from audit.device.guarded import GUARD_BYTES, GuardedStorage, host_copy
from audit.device.timing import interquartile_range, repeat


def _storage(n: int) -> GuardedStorage:
    return GuardedStorage(torch.arange(n, dtype=torch.uint8), torch.device("cpu"))


def test_a_buffer_holds_its_content_between_guards() -> None:
    buffer = CpuDevice().buffer(torch.arange(10, dtype=torch.uint8))
    assert buffer.read().tolist() == list(range(10))
    assert buffer.guards_intact()


@pytest.mark.parametrize("position", [-1, -GUARD_BYTES, 100, 100 + GUARD_BYTES - 1])
def test_one_byte_written_into_either_guard_is_found(position: int) -> None:
    storage = _storage(100)
    view = storage.view(torch.uint8, (100,), (1,), 0)
    ctypes.memset(view.data_ptr() + position, 0, 1)
    assert not storage.guards_intact()


def test_writing_the_whole_operand_does_not_touch_the_guards() -> None:
    storage = _storage(100)
    storage.view(torch.float32, (25,), (1,), 0).fill_(1.0)
    assert storage.guards_intact()
    assert storage.read().view(torch.float32).tolist() == [1.0] * 25


def test_a_view_ends_where_its_storage_ends() -> None:
    view = _storage(100).view(torch.float32, (3, 2), (4, 2), 1)
    assert view.untyped_storage().nbytes() == 100
    assert (view.stride(), view.storage_offset()) == ((4, 2), 1)


def test_an_operand_keeps_the_alignment_of_an_allocation() -> None:
    assert GUARD_BYTES % 512 == 0
    whole = torch.empty(100, dtype=torch.uint8)
    assert _storage(100).view(torch.uint8, (100,), (1,), 0).data_ptr() % 64 == whole.data_ptr() % 64


def test_an_empty_operand_has_guards_too() -> None:
    storage = GuardedStorage(torch.empty(0, dtype=torch.uint8), torch.device("cpu"))
    assert storage.view(torch.float32, (0, 3), (3, 1), 0).shape == (0, 3)
    assert storage.guards_intact()


@pytest.mark.parametrize("strides", [(4, 1), (1, 3), (8, 2), (0, 1), (0, 0)])
def test_a_host_copy_has_the_strides_of_the_original(strides: tuple[int, int]) -> None:
    original = torch.arange(50.0).as_strided((3, 4), strides, 5)
    copy = host_copy(original)
    assert copy.stride() == strides
    assert torch.equal(copy, original)
    assert copy.data_ptr() != original.data_ptr()


def test_a_host_copy_resolves_conjugation() -> None:
    z = torch.tensor([1 + 2j, 3 - 4j])
    assert host_copy(z.conj()).tolist() == [1 - 2j, 3 + 4j]


def test_timing_stops_when_the_budget_is_spent_and_reports_quartiles() -> None:
    durations = iter([50.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    timing = repeat(lambda: next(durations), 0.0)
    assert timing.first_us == 50.0
    assert timing.n == 1  # twice the budget is spent after the first run
    assert interquartile_range([1.0, 2.0, 3.0, 4.0, 5.0]) == 2.0
    assert interquartile_range([7.0]) == 0.0


def test_timing_runs_at_least_five_times_within_its_budget() -> None:
    durations = iter(float(i) for i in range(10_000))
    timing = repeat(lambda: next(durations), 0.005)
    assert 5 <= timing.n <= 100
    assert timing.first_us == 0.0


def test_the_cpu_says_which_instruction_set_its_kernels_use() -> None:
    info = CpuDevice().info()
    assert info.backend == "cpu"
    assert info.arch == torch.backends.cpu.get_cpu_capability().lower()
