"""What the pool does when its own processes die, when the CPU refuses a case, and when the device is gone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

from audit.errors import UsageError
from audit.replay.engine import DeviceLost, ReplaySettings
from audit.replay.folder import SpoolFolder, remove_abandoned
from audit.replay.pool import Pool
from audit.run_records import Started
from audit.schema import Measurement

SETTINGS = {"device": "cpu", "timing_budget_s": 0.001}


def children(pid: int) -> dict[int, str]:
    """Live child processes by pid, with their command lines."""
    found = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rsplit(") ", 1)[1].split()
            command = (stat.parent / "cmdline").read_text().replace("\0", " ")
        except OSError:
            continue
        if int(fields[1]) == pid and fields[0] != "Z":
            found[int(stat.parent.name)] = command
    return found


def worker(role: str) -> int:
    [pid] = [pid for pid, command in children(os.getpid()).items() if f"audit.replay.worker {role}" in command]
    return pid


# --- the reference side ------------------------------------------------------------------------------------------


def test_a_case_that_the_cpu_refuses_never_touches_the_device(build, replay, fault_file):
    device = fault_file("""
        import os
        def kill(call):
            os.abort()
        FAULTS = {"aten::mm.default": kill, "aten::view.default": kill}
    """)
    mismatch = build.case("aten::mm.default", build.tensor([2, 3]), build.tensor([4, 5], storage=1))
    beyond = build.case("aten::view.default", build.tensor([6]), (4,))
    run = replay([mismatch, beyond], device=device)
    assert run.started == []
    for case, text in ((mismatch, "shapes cannot be multiplied"), (beyond, "is invalid for input of size 6")):
        measured = run.of(case)
        assert (measured.reference.kind, measured.device.kind) == ("raised", "not_run")
        assert text in measured.reference.message
        assert measured.device.message.startswith("invalid input")


def test_an_op_that_nobody_knows_is_invalid_input_by_name(build, replay):
    case = build.case("aten::no_such_op.default", build.tensor([2]))
    measured = replay([case], **SETTINGS).of(case)
    assert measured.reference.error_type == "AttributeError"
    assert "has no operator aten::no_such_op.default" in measured.reference.message
    assert measured.device.kind == "not_run"


def test_a_dtype_that_this_torch_lacks_is_about_the_audit(build, replay):
    case = build.case("aten::neg.default", build.tensor([2], "float3"))
    measured = replay([case], **SETTINGS).of(case)
    assert (measured.reference.kind, measured.reference.error_type) == ("not_run", "InputError")
    assert "has no dtype 'float3'" in measured.device.message


def test_the_reference_running_out_of_memory_ends_one_case(build, replay):
    huge = build.case("aten::zeros.default", (200_000_000_000,))
    small = build.case("aten::neg.default", build.tensor([3]))
    run = replay([huge, small], reference_memory_bytes=16 << 30, **SETTINGS)
    assert (run.of(huge).reference.kind, run.of(huge).device.kind) == ("out_of_memory", "not_run")
    assert run.of(small).device.kind == "ok"


def test_a_reference_that_does_not_end_is_stopped(build, replay):
    slow = build.case("aten::mm.default", build.tensor([5000, 5000]), build.tensor([5000, 5000], storage=1))
    small = build.case("aten::neg.default", build.tensor([3]))
    run = replay([slow, small], reference_limit_s=0.5, **SETTINGS)
    assert (run.of(slow).reference.kind, run.of(slow).reference.limit_s) == ("hung", 0.5)
    assert run.of(slow).device.message == "no reference: the CPU run did not end in time"
    assert run.started == [small.key]


@pytest.mark.slow
def test_the_reference_process_may_die_at_any_moment(build):
    cases = [build.case("aten::neg.default", build.tensor([n])) for n in range(2, 8)]
    measured = []
    with Pool(ReplaySettings(**SETTINGS)) as pool:
        for event in pool.replay(cases):
            if isinstance(event, Started):
                os.kill(worker("reference"), signal.SIGKILL)
            else:
                measured.append(event)
    assert [m.key for m in measured] == [case.key for case in cases]
    assert [m.reference.kind for m in measured] == ["ok"] * 6
    assert all(len(m.comparisons) == 1 and m.comparisons[0].n_different == 0 for m in measured)


def test_a_case_that_kills_the_reference_twice_does_not_touch_the_device(build):
    case = build.case("aten::bmm.default", build.tensor([8, 1500, 1500]), build.tensor([8, 1500, 1500], storage=1))
    after = build.case("aten::neg.default", build.tensor([2]))
    with Pool(ReplaySettings(**SETTINGS)) as pool:
        pool.device_info()
        stop = threading.Event()

        def killer() -> None:
            for _ in range(2):
                while not stop.is_set() and not list(pool._folder.rglob("bmm-*.inputs")):
                    time.sleep(0.005)
                for path in pool._folder.rglob("bmm-*.inputs"):
                    path.unlink()
                    os.kill(worker("reference"), signal.SIGKILL)

        thread = threading.Thread(target=killer)
        thread.start()
        events = list(pool.replay([case, after]))
        stop.set()
        thread.join()
    refused = events[0]
    assert (refused.reference.kind, refused.reference.signal, refused.reference.confirmed) == ("crashed", 9, True)
    assert refused.device.message == "no reference: the CPU run crashed"
    assert events[-1].device.kind == "ok"


# --- the device side -----------------------------------------------------------------------------------------------


def test_the_device_process_may_die_between_cases(build):
    cases = [build.case("aten::neg.default", build.tensor([n])) for n in (2, 3)]
    with Pool(ReplaySettings(**SETTINGS)) as pool:
        events = pool.replay(cases)
        assert isinstance(next(events), Started)
        os.kill(worker("device"), signal.SIGKILL)
        first = next(events)
        assert isinstance(first, Measurement)
        assert (first.device.kind, first.device.confirmed) == ("ok", False)
        assert "at first it crashed (signal 9), alone in a fresh process it passed" in first.notes[0]
        rest = list(events)
    assert rest[-1].device.kind == "ok"


def test_a_crash_that_does_not_recur_alone_names_what_ran_before(build, replay, fault_file):
    device = fault_file("""
        import os
        SEEN = []
        def remember(call):
            SEEN.append(call.op)
            return call.run(*call.args)
        def crash_after_others(call):
            if SEEN:
                os.abort()
            return call.run(*call.args)
        FAULTS = {"aten::neg.default": remember, "aten::exp.default": crash_after_others}
    """)
    before = build.case("aten::neg.default", build.tensor([2]))
    victim = build.case("aten::exp.default", build.tensor([2]))
    measured = replay([before, victim], device=device).of(victim)
    assert (measured.device.kind, measured.device.confirmed) == ("ok", False)
    assert len(measured.comparisons) == 1
    assert measured.notes == (
        "at first it crashed (signal 6), alone in a fresh process it passed; "
        f"before it in the first process ran: {before.key}",
    )


@pytest.mark.slow
def test_a_hang_is_repeated_only_when_asked_for(build, replay, fault_file):
    device = fault_file("""
        import time
        FAULTS = {"aten::neg.default": lambda call: time.sleep(1000)}
    """)
    case = build.case("aten::neg.default", build.tensor([2]))
    measured = replay([case], device=device, first_call_limit_s=2.0, confirm_hangs=True).of(case)
    assert (measured.device.kind, measured.device.confirmed) == ("hung", True)


@pytest.mark.slow
def test_a_hang_of_a_later_call_has_the_steady_limit(build, replay, fault_file):
    device = fault_file("""
        import time
        CALLS = []
        def hang_later(call):
            CALLS.append(1)
            if len(CALLS) > 1:
                time.sleep(1000)
            return call.run(*call.args)
        FAULTS = {"aten::neg.default": hang_later}
    """)
    case = build.case("aten::neg.default", build.tensor([2]))
    outcome = replay([case], device=device, steady_limit_s=2.0).of(case).device
    assert (outcome.kind, outcome.stage, outcome.limit_s) == ("hung", "steady", 2.0)


def test_a_wrong_canary_in_the_first_process_means_a_lost_device(build, replay, fault_file):
    device = fault_file("""
        FAULTS = {"aten::addbmm.default": lambda call: call.run(*call.args, **call.kwargs) * 0}
    """)
    run = replay([build.case("aten::neg.default", build.tensor([2]))], device=device)
    assert run.events == [DeviceLost("the canary op gave a wrong answer in a fresh process")]


def test_a_device_lost_over_a_case_still_has_its_measurement(build, replay, fault_file, tmp_path):
    device = fault_file(f"""
        import os, pathlib
        BROKEN = pathlib.Path({str(tmp_path / "broken")!r})
        def break_device(call):
            BROKEN.touch()
            os.abort()
        def canary(call):
            result = call.run(*call.args, **call.kwargs)
            return result + 1 if BROKEN.exists() else result
        FAULTS = {{"aten::neg.default": break_device, "aten::addbmm.default": canary}}
    """)
    broken, never = (build.case(f"aten::{op}.default", build.tensor([2])) for op in ("neg", "exp"))
    run = replay([broken, never], device=device)
    assert [type(event) for event in run.events] == [Started, Measurement, DeviceLost]
    assert (run.of(broken).device.kind, run.of(broken).device.confirmed) == ("crashed", None)


def test_a_device_that_is_not_there_is_wrong_use():
    with Pool(ReplaySettings(device="warp-drive")) as pool, pytest.raises(UsageError, match="unknown device") as caught:
        pool.device_info()
    assert caught.value.slug == "unknown-device"


def test_the_device_is_told_of_a_case_only_after_started_was_handled(build, fault_file, tmp_path):
    device = fault_file(f"""
        import pathlib
        def touch(call):
            pathlib.Path({str(tmp_path / "touched")!r}).touch()
            return call.run(*call.args)
        FAULTS = {{"aten::neg.default": touch}}
    """)
    with Pool(ReplaySettings(device=device)) as pool:
        events = pool.replay([build.case("aten::neg.default", build.tensor([2]))])
        assert isinstance(next(events), Started)
        time.sleep(0.3)
        assert not (tmp_path / "touched").exists()
        next(events)
        assert (tmp_path / "touched").exists()


# --- what stays behind ---------------------------------------------------------------------------------------------


def test_a_killed_auditor_leaves_no_process_behind(fault_file, tmp_path, checkout):
    device = fault_file("""
        def hang(call):
            while True:
                pass
        FAULTS = {"aten::neg.default": hang}
    """)
    script = tmp_path / "auditor.py"
    script.write_text(
        textwrap.dedent(f"""
        from audit.replay.engine import ReplaySettings
        from audit.replay.pool import Pool
        from audit.schema import Case, TensorSpec
        case = Case("neg-1", "aten::neg.default", (TensorSpec((2,), (1,), "float32", extent=2),))
        with Pool(ReplaySettings(device={device!r})) as pool:
            for event in pool.replay([case]):
                print(pool._folder, flush=True)
        """)
    )
    environment = {**os.environ, "PYTHONPATH": str(checkout)}
    auditor = subprocess.Popen([sys.executable, script], env=environment, stdout=subprocess.PIPE, text=True)
    assert auditor.stdout is not None
    folder = Path(auditor.stdout.readline().strip())
    time.sleep(0.5)  # into the hang
    workers = children(auditor.pid)
    assert sum("audit.replay.worker" in command for command in workers.values()) == 2
    auditor.kill()
    auditor.wait()
    deadline = time.monotonic() + 10
    while any(Path(f"/proc/{pid}").exists() for pid in workers) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert [pid for pid in workers if Path(f"/proc/{pid}").exists()] == []
    remove_abandoned(folder.parent)
    assert not folder.exists()


def test_the_folder_of_a_living_audit_is_left_alone():
    spool = SpoolFolder()
    remove_abandoned(spool.path.parent)
    assert spool.path.exists()
    spool.remove()
    assert not spool.path.exists()


@pytest.mark.slow
def test_a_flood_on_stderr_does_not_fill_the_disk(build, fault_file):
    """About 60 MB a second for six seconds: 360 MB if nobody looked."""
    device = fault_file("""
        import os, time
        def flood(call):
            while True:
                os.write(2, b"again and again " * 65_536)
                time.sleep(1 / 60)
        FAULTS = {"aten::neg.default": flood}
    """)
    sizes, done = [0], threading.Event()
    with Pool(ReplaySettings(device=device, first_call_limit_s=6.0)) as pool:

        def watch() -> None:
            while not done.wait(0.02):
                sizes.extend(path.stat().st_blocks * 512 for path in pool._folder.rglob("device-*.stderr"))

        watcher = threading.Thread(target=watch)
        watcher.start()
        [_, measured] = pool.replay([build.case("aten::neg.default", build.tensor([2]))])
        done.set()
        watcher.join()
    assert measured.device.kind == "hung"
    assert "again and again" in measured.device.stderr
    assert len(measured.device.stderr) <= 8192
    assert 1 << 20 < max(sizes) < 180 << 20


def test_a_closed_pool_leaves_neither_process_nor_file(build):
    with Pool(ReplaySettings(**SETTINGS)) as pool:
        list(pool.replay([build.case("aten::neg.default", build.tensor([2]))]))
        folder = pool._folder
        names = ["device-1.stderr", "lane-0", "owner.lock", "reference-1.stderr"]
        assert sorted(path.name for path in folder.rglob("*")) == names
    assert not folder.exists()
    assert not any("audit.replay.worker" in command for command in children(os.getpid()).values())
