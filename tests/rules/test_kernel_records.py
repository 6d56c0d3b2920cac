"""FBK306: kernel records against the time between events."""

from __future__ import annotations

import pytest

from audit.schema import Kernel, Path, Timing


def _path(us: float, count: int = 1, moved_us: float | None = 0.0) -> Path:
    return Path(observed=True, complete=True, kernels=(Kernel("gemm", us, count),), moved_us=moved_us)


def _time(us: float, host_us: float | None = 20.0, lead_us: float | None = 150.0, waits: bool = False) -> Timing:
    return Timing(us, 0.1, 50, host_us=host_us, lead_us=lead_us, waits=waits)


def test_kernels_that_explain_a_tenth_of_the_time_are_said_to_be_incomplete(build):
    [finding] = build.findings(build.measurement(path=_path(10.0), device_time=_time(100.0)))
    assert (finding.code, finding.status) == ("FBK306", "supported")
    assert finding.message == (
        "the path was not fully seen: the kernels explain 10 µs of 100 µs: records may be missing"
    )
    assert finding.data == {"kernel_us": 10.0, "device_us": 100.0}


def test_kernels_that_take_far_longer_than_the_call_ran_beside_each_other(build):
    [finding] = build.findings(build.measurement(path=_path(300.0), device_time=_time(100.0)))
    assert finding.message == "300 µs of kernels ran in 100 µs: beside each other, or slower under the profiler"


@pytest.mark.parametrize(
    ("path", "time"),
    [
        (_path(60.0), _time(100.0)),  # more than half
        (_path(20.0, count=5), _time(100.0)),  # five launches take their time
        (_path(10.0, moved_us=80.0), _time(100.0)),  # a copy
        (_path(10.0, moved_us=None), _time(100.0)),  # a run file of before
        (_path(1.0), _time(39.0)),  # short: mostly the events' own cost
        (_path(10.0), _time(100.0, host_us=200.0)),  # the device may have waited for the host
        (_path(10.0), _time(100.0, waits=True)),
        (_path(10.0), _time(100.0, host_us=None, lead_us=None)),
        (_path(10.0), _time(100.0, lead_us=0.0)),
    ],
)
def test_nothing_is_said_where_the_two_agree_or_cannot_be_compared(build, path, time):
    assert build.findings(build.measurement(path=path, device_time=time)) == []


def test_without_markers_the_path_is_unknown_and_not_judged_by_time(build):
    path = Path(observed=True, complete=False, moved_us=0.0)
    [finding] = build.findings(build.measurement(path=path, device_time=_time(100.0)))
    assert "the observer had not passed its self-test" in finding.message


def test_a_run_whose_profiler_cannot_be_believed_says_so_once(build):
    seen, unseen = Path(observed=True, complete=True), Path(observed=True)

    def remarks(n_unseen, n_seen, backend="hip"):
        keys = [f"mm-{number}" for number in range(n_unseen + n_seen)]
        paths = [unseen] * n_unseen + [seen] * n_seen
        measured = tuple(build.measurement(key=key, path=path) for key, path in zip(keys, paths, strict=True))
        judgement = build.judgement(tuple(build.case(key=key) for key in keys), measured, backend)
        return [cause.message for cause in judgement.root_causes if cause.code == "FBK306"]

    assert remarks(2, 10) == [
        "the profiler did not vouch for what it saw of 2 of the 12 cases that ran: a fallback may be hidden there"
    ]
    assert remarks(1, 10) == []
    assert remarks(5, 0, backend="sim") == []
