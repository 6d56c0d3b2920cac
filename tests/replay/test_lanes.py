"""Several devices at once: one lane of processes each, and one queue of cases."""

from __future__ import annotations

import time
from collections import Counter

import pytest

from audit.device.places import Place, places
from audit.errors import UsageError
from audit.replay.engine import DeviceLost, ReplaySettings
from audit.replay.pool import Pool
from audit.run_records import Started
from audit.schema import Measurement

SETTINGS = {"timing_budget_s": 0.002, "first_call_limit_s": 60.0, "steady_limit_s": 30.0}


@pytest.fixture(scope="module")
def two_devices(fault_file):
    """Writes a fault file; the name of two simulated devices that both have it."""

    def write(source: str) -> str:
        device = fault_file(source)
        return f"{device},{device}"

    return write


@pytest.fixture(scope="module")
def pool(two_devices, log):
    """Two warm lanes on which each call of ``neg`` takes a while and leaves a line: lane, size, start and end."""
    device = two_devices(f"""
        import os, time
        def slow(call):
            start = time.monotonic()
            time.sleep(0.05)
            with open({str(log)!r}, "a") as log:
                print(os.path.basename(os.getcwd()), call.args[0].numel(), start, time.monotonic(), file=log)
            return call.run(*call.args)
        FAULTS = {{"aten::neg.default": slow}}
    """)
    with Pool(ReplaySettings(device=device, lookahead_bytes=LARGE * 4 - 1, **SETTINGS)) as pool:
        yield pool


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    return tmp_path_factory.mktemp("lanes") / "log"


@pytest.fixture
def calls(log):
    """Reads what was logged since the test began: (lane, size, start, end)."""
    log.unlink(missing_ok=True)

    def read() -> list[tuple[str, int, float, float]]:
        rows = (line.split() for line in log.read_text().splitlines())
        return [(lane, int(size), float(start), float(end)) for lane, size, start, end in rows]

    return read


#: float32 elements from which on a case is large in these tests.
LARGE = 64


def negations(build, n: int, size: int = 2):
    return [build.case("aten::neg.default", build.tensor([size + k])) for k in range(n)]


def test_two_devices_share_the_cases_and_measure_each_once(build, pool, calls):
    cases = negations(build, 8)
    assert pool.device_info().properties["n_devices"] == "2"
    events = list(pool.replay(cases))
    order = [(event.key, type(event)) for event in events if not isinstance(event, DeviceLost)]
    assert sorted(key for key, kind in order if kind is Measurement) == sorted(case.key for case in cases)
    assert all(order.index((case.key, Started)) < order.index((case.key, Measurement)) for case in cases)
    lanes_of = {size: {lane for lane, logged, *_ in calls() if logged == size} for size in range(2, 10)}
    assert all(len(lanes) == 1 for lanes in lanes_of.values())
    assert set.union(*lanes_of.values()) == {"lane-0", "lane-1"}


@pytest.mark.parametrize(("size", "together"), [(2, True), (LARGE, False)])
def test_cases_run_at_the_same_time_but_for_large_ones(build, pool, calls, size, together):
    measured = [event for event in pool.replay(negations(build, 6, size)) if isinstance(event, Measurement)]
    assert len(measured) == 6
    rows = calls()
    assert together == any(a[2] < b[3] and b[2] < a[3] for a in rows for b in rows if a[0] < b[0])


def test_enough_is_enough_and_nothing_is_left_half_done(build, pool):
    started: list[str] = []
    measured: list[str] = []
    for event in pool.replay(negations(build, 20), lambda: len(measured) >= 3):
        (started if isinstance(event, Started) else measured).append(event.key)
    assert sorted(started) == sorted(measured)
    assert 3 <= len(measured) <= 6


def test_a_reader_that_goes_away_leaves_the_lanes_usable(build, pool):
    events = pool.replay(negations(build, 4))
    assert isinstance(next(events), Started)
    assert isinstance(next(events), Started)
    events.close()
    again = [event for event in pool.replay(negations(build, 3, 30)) if isinstance(event, Measurement)]
    assert [measurement.device.kind for measurement in again] == ["ok"] * 3


def test_a_closed_pool_does_not_wait_for_a_case_that_hangs(build, two_devices):
    device = two_devices("""
        import time
        FAULTS = {"aten::neg.default": lambda call: time.sleep(1000)}
    """)
    begin = time.monotonic()
    with Pool(ReplaySettings(device=device, timing_budget_s=0.002, first_call_limit_s=900.0)) as pool:
        for _, event in zip(range(2), pool.replay(negations(build, 4)), strict=False):
            assert isinstance(event, Started)
    assert time.monotonic() - begin < 300  # and not 900


@pytest.mark.slow
def test_a_lost_device_leaves_its_cases_to_the_other(build, two_devices, tmp_path):
    device = two_devices(f"""
        import os, pathlib
        BROKEN = pathlib.Path({str(tmp_path / "broken")!r})
        def break_this_device(call):
            BROKEN.write_text(os.getcwd())
            os.abort()
        def canary(call):
            result = call.run(*call.args, **call.kwargs)
            return result + 1 if BROKEN.exists() and BROKEN.read_text() == os.getcwd() else result
        FAULTS = {{"aten::exp.default": break_this_device, "aten::addbmm.default": canary}}
    """)
    breaking = build.case("aten::exp.default", build.tensor([2]))
    cases = [breaking, *negations(build, 6)]
    with Pool(ReplaySettings(device=device, **SETTINGS)) as pool:
        events = list(pool.replay(cases))
    kinds = Counter((type(event).__name__, getattr(getattr(event, "device", None), "kind", "")) for event in events)
    assert kinds == {("Started", ""): 7, ("Measurement", "crashed"): 1, ("Measurement", "ok"): 6}


@pytest.mark.slow
def test_when_every_device_is_lost_the_replay_says_so(build, two_devices, tmp_path):
    device = two_devices(f"""
        import os, pathlib
        BROKEN = pathlib.Path({str(tmp_path / "broken")!r})
        def break_all(call):
            BROKEN.touch()
            os.abort()
        def canary(call):
            result = call.run(*call.args, **call.kwargs)
            return result + 1 if BROKEN.exists() else result
        FAULTS = {{"aten::exp.default": break_all, "aten::addbmm.default": canary}}
    """)
    cases = [build.case("aten::exp.default", build.tensor([n])) for n in range(2, 12)]
    with Pool(ReplaySettings(device=device, **SETTINGS)) as pool:
        events = list(pool.replay(cases))
    assert events[-1] == DeviceLost("the canary op gave a wrong answer in a fresh process")
    assert sum(isinstance(event, DeviceLost) for event in events) == 1
    assert 1 <= sum(isinstance(event, Measurement) for event in events) <= 4


def test_a_lane_that_does_not_start_is_left_out_and_named(build, two_devices):
    device = two_devices("""
        import os
        def canary(call):
            result = call.run(*call.args, **call.kwargs)
            return result + 1 if os.getcwd().endswith("lane-1") else result
        FAULTS = {"aten::addbmm.default": canary}
    """)
    with Pool(ReplaySettings(device=device, **SETTINGS)) as pool:
        properties = pool.device_info().properties
        events = list(pool.replay(negations(build, 2)))
    assert properties["n_devices"] == "1"
    assert properties["left_out"].startswith("device 1: the device cannot be used: the canary op gave a wrong answer")
    assert [type(event) for event in events] == [Started, Measurement] * 2


# --- which devices a name means ------------------------------------------------------------------------------------


@pytest.fixture
def four_gpus(monkeypatch):
    """Four visible GPUs; the rest of torch is as it is here."""
    monkeypatch.setattr("torch.cuda.device_count", lambda: 4)
    for name in ("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


def test_cuda_means_every_visible_gpu_each_hidden_from_the_others(four_gpus):
    assert places("cuda") == tuple(Place("cuda", {"CUDA_VISIBLE_DEVICES": str(n)}) for n in range(4))
    assert places("cuda:2") == (Place("cuda", {"CUDA_VISIBLE_DEVICES": "2"}),)
    assert places("cuda:0,cuda:3") == (
        Place("cuda", {"CUDA_VISIBLE_DEVICES": "0"}),
        Place("cuda", {"CUDA_VISIBLE_DEVICES": "3"}),
    )


def test_gpus_that_the_user_chose_keep_their_names(four_gpus):
    four_gpus.setenv("CUDA_VISIBLE_DEVICES", "GPU-8f6f, 5,1,0")
    assert places("cuda:0") == (Place("cuda", {"CUDA_VISIBLE_DEVICES": "GPU-8f6f"}),)
    assert places("cuda:1") == (Place("cuda", {"CUDA_VISIBLE_DEVICES": "5"}),)


@pytest.mark.parametrize(
    ("given", "variable"),
    [
        ({}, "HIP_VISIBLE_DEVICES"),
        ({"HIP_VISIBLE_DEVICES": "4,5,6,7"}, "HIP_VISIBLE_DEVICES"),
        ({"CUDA_VISIBLE_DEVICES": "4,5,6,7"}, "CUDA_VISIBLE_DEVICES"),  # ROCm honours it where its own is not set
    ],
)
def test_on_rocm_the_variable_in_use_is_the_one_that_is_set(four_gpus, given, variable):
    four_gpus.setattr("torch.version.hip", "7.1.0")
    for name, value in given.items():
        four_gpus.setenv(name, value)
    assert places("hip:1") == (Place("hip", {variable: "5" if given else "1"}),)


def test_a_gpu_beyond_the_last_is_wrong_use(four_gpus):
    with pytest.raises(UsageError, match="there is no cuda:4: 4 GPUs are visible, counted from 0") as caught:
        places("cuda:4")
    assert caught.value.slug == "no-device"


def test_one_gpu_needs_no_pin():
    assert places("cuda") == (Place("cuda"),)


def test_simulated_devices_are_told_apart_at_their_commas():
    devices = [[place.device for place in places(text)] for text in ("sim:a,b.py", "sim,sim:f.py")]
    assert devices == [["sim:a,b.py"], ["sim", "sim:f.py"]]
