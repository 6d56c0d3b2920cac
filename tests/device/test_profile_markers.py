"""The call among the events of a session, between kernels that are known: what was lost is known to be lost."""

from __future__ import annotations

from audit.device.profile import around, markers_needed

_MS = 1_000_000


class Event:
    """A Kineto event by name, side and its span in milliseconds."""

    def __init__(self, name: str, start_ms: float, end_ms: float, device: str = "CUDA") -> None:
        self._name, self._start_ms, self._end_ms, self._device = name, start_ms, end_ms, device

    def name(self) -> str:
        return self._name

    def device_type(self) -> str:
        return f"DeviceType.{self._device}"

    def start_ns(self) -> int:
        return int(self._start_ms * _MS)

    def end_ns(self) -> int:
        return int(self._end_ms * _MS)


RANGE = Event("rocm-audit: the call", 1.0, 2.0, device="CPU")
MARKER, LAST = Event("add_kernel", 0.1, 0.11), Event("add_kernel", 2.6, 2.61)
OP, GEMM = Event("aten::mm", 1.1, 1.2, device="CPU"), Event("gemm", 1.3, 1.9)


def names(events: list[Event]) -> list[str]:
    return [event.name() for event in events]


def test_the_call_is_told_from_the_markers_before_and_after_it() -> None:
    annotation = Event("rocm-audit: the call", 1.3, 1.9)
    marking = Event("aten::add_", 0.05, 0.06, device="CPU")
    leaving = Event("profiler::_record_function_exit", 1.99, 2.0, device="CPU")
    before, mine, after = around([marking, MARKER, RANGE, OP, annotation, GEMM, leaving, LAST])
    assert (names(before), names(mine), names(after)) == (["add_kernel"], ["aten::mm", "gemm"], ["add_kernel"])


def test_a_kernel_whose_clock_is_a_tenth_of_a_millisecond_early_is_still_the_call_s() -> None:
    _, mine, _ = around([MARKER, RANGE, Event("early", 0.9, 1.0), LAST])
    assert names(mine) == ["early"]


def test_a_session_that_lost_its_first_records_has_no_marker_before_the_call() -> None:
    before, mine, after = around([RANGE, OP, LAST])
    assert (before, names(mine), names(after)) == ([], ["aten::mm"], ["add_kernel"])


def test_without_the_range_everything_is_the_call_s_and_nothing_vouches_for_it() -> None:
    assert around([OP, GEMM]) == ([], [OP, GEMM], [])


def test_a_copy_is_no_marker() -> None:
    before, _, _ = around([Event("Memcpy HtoD (Pageable -> Device)", 0.1, 0.2), RANGE])
    assert before == []


def test_the_more_records_a_session_lost_the_more_markers_lead_the_next() -> None:
    assert [markers_needed(8, seen) for seen in (8, 7, 0)] == [8, 10, 24]
    assert markers_needed(1024, 0) == 1024
