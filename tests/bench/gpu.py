"""What looking at a call costs beside the call, on a HIP or CUDA GPU: the timed part, the observed part, all of it.

Each case is a different op. Its measuring runs in this process, as it does in a device child.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from time import perf_counter
from typing import Any, TypeVar

import torch
from torch.nn import functional

from audit.detect.registry import DETECTORS
from audit.device.gpu import GpuDevice, flavour
from audit.device.profile import Profiler
from audit.replay.engine import ReplaySettings
from audit.replay.execute import call
from audit.replay.inputs import seed_generators
from audit.replay.measure import DeviceSide
from audit.replay.overload import resolve
from audit.replay.reference import Reference
from audit.schema import Case, Source, Timing
from audit.schema import Path as Taken
from audit.tracer.recorder import Recorder
from tests.bench.lines import Line
from tests.bench.material import CHECKOUT

T = TypeVar("T")
N_PLAIN = 20
#: So many sessions one after the other, for what a session loses and leaves behind.
N_SESSIONS = 200


def measure() -> Iterator[Line]:
    if not torch.cuda.is_available():
        yield Line("gpu", "not measured", "torch sees no HIP or CUDA GPU here")
        return
    device = Watched()
    before = a_small_op(device)
    first_s, _ = stopped(lambda: device.observe(lambda: None))
    yield Line("first profiler session of a process", f"{first_s:.2f} s", "with the profiler's test of itself")
    yield Line("an op on one element: issued, on the device", before, "before that session")
    yield Line("the same", a_small_op(device), "after it")
    with tempfile.TemporaryDirectory() as folder:
        yield from cases(device, Path(folder))
    yield from sessions(device)
    yield from parts_of_a_session(device)
    yield from with_teardown()
    yield Line("an op on one element: issued, on the device", a_small_op(device), "after all sessions")


class Watched(GpuDevice):
    """A GPU that counts the seconds of its timing and observing."""

    def __init__(self) -> None:
        super().__init__()
        self.timed_s = self.observed_s = 0.0

    def observe(self, call: Callable[[], T]) -> tuple[T, Taken]:
        seconds, result = stopped(lambda: super(Watched, self).observe(call))
        self.observed_s += seconds
        return result

    def time(self, call: Callable[[], object], budget_s: float) -> Timing:
        seconds, result = stopped(lambda: super(Watched, self).time(call, budget_s))
        self.timed_s += seconds
        return result


def cases(device: Watched, folder: Path) -> Iterator[Line]:
    settings = ReplaySettings()
    reference = Reference(None, folder, seed=0)
    detectors = [make() for make in DETECTORS if make.__module__ != "audit.detect.stderr"]  # this process keeps its own
    side = DeviceSide(device, detectors, folder, 0, settings.fill_bytes, settings.timing_budget_s, 2)
    plain, timed, observed, whole = [], [], [], []
    n_complete = n_kernels = 0
    for case in different_ops():
        job = reference.prepare(case)
        if not job["device_may_run"]:
            continue
        device.timed_s = device.observed_s = 0.0
        seconds, answer = stopped(lambda: side.measure(case, job, say=lambda stage: None))  # noqa: B023
        whole.append(seconds)
        timed.append(device.timed_s)
        observed.append(device.observed_s)
        plain.append(plain_s(device, side, case, job))
        n_complete += bool(answer["path"].get("complete"))
        n_kernels += bool(answer["path"].get("kernels"))
        reference.forget(case.key)
    how = f"median of {len(whole)} cases of different ops, {flavour()}"
    yield Line("plain call, synchronised", f"{statistics.median(plain) * 1e6:.0f} µs", how)
    yield Line("observed part of a case", f"{statistics.median(observed) * 1e3:.1f} ms", how)
    yield Line("the slowest of them", f"{max(observed) * 1e3:.1f} ms", "the observed part")
    yield Line("timed part of a case", f"{statistics.median(timed) * 1e3:.1f} ms", f"{how}; the budget is 50 ms")
    yield Line("a whole case on the device side", f"{statistics.median(whole) * 1e3:.1f} ms", how)
    share = sum(observed) / sum(whole)
    yield Line("share of the observed part", f"{100 * share:.0f} %", "of the whole, all cases together")
    yield Line("whole case / two plain calls", f"{sum(whole) / (2 * sum(plain)):.0f}", "all cases together")
    yield Line("cases with all markers seen", f"{n_complete} of {len(whole)}", f"{n_kernels} of them show a kernel")


def sessions(device: Watched) -> Iterator[Line]:
    a = torch.ones(256, 256, device=device.torch_device)
    taken, lost = [], 0
    for _ in range(N_SESSIONS):
        seconds, (_, path) = stopped(lambda: device.observe(lambda: torch.mm(a, a)))
        taken.append(seconds)
        lost += not path.kernels
    early, late = (statistics.median(part) * 1e3 for part in (taken[:20], taken[-20:]))
    yield Line("a session around one product", f"{early:.1f} ms, then {late:.1f} ms", f"20 first, last of {N_SESSIONS}")
    yield Line(
        "sessions without the product's kernel", f"{lost} of {N_SESSIONS}", "in one process, one after the other"
    )


def parts_of_a_session(device: Watched) -> Iterator[Line]:
    """Torch's own start and stop, without markers and pauses."""
    a = torch.ones(256, 256, device=device.torch_device)
    starts, stops = [], []
    for _ in range(30):
        start_s, profiler = stopped(Profiler._start)
        torch.mm(a, a)
        device.synchronize()
        stop_s, _ = stopped(lambda: Profiler._stop(profiler))  # noqa: B023
        starts.append(start_s * 1e3)
        stops.append(stop_s * 1e3)
    values = f"{statistics.median(starts):.1f} ms, {statistics.median(stops):.1f} ms"
    yield Line("start and stop of a session", values, "median of 30, without markers and pauses")


def with_teardown() -> Iterator[Line]:
    """The same sessions in a process whose CUPTI ends after each, for what is saved where it does not."""
    source = (
        "import statistics, torch\n"
        "from audit.device.gpu import GpuDevice\n"
        "from tests.bench.gpu import stopped\n"
        "device, a = GpuDevice(), torch.ones(256, 256, device='cuda')\n"
        "seen = [stopped(lambda: device.observe(lambda: torch.mm(a, a))) for _ in range(30)]\n"
        "lost = sum(not path.kernels for _, (_, path) in seen)\n"
        "print(f'{statistics.median(s for s, _ in seen) * 1e3:.1f} ms, {lost} of 30 without the kernel')\n"
    )
    environment = {**os.environ, "TEARDOWN_CUPTI": "1"}
    command = [sys.executable, "-c", source]
    try:
        done = subprocess.run(command, env=environment, cwd=CHECKOUT, capture_output=True, text=True, timeout=120)
        said = (done.stdout or done.stderr).strip().splitlines()[-1:] or [f"ended with {done.returncode}"]
    except subprocess.TimeoutExpired:
        said = ["hung for 120 s"]
    yield Line("a session where TEARDOWN_CUPTI=1", said[0], "median of 30 in a process of its own")


def a_small_op(device: GpuDevice) -> str:
    """Its time on the host and between the events."""
    one = torch.zeros(1, device=device.torch_device)
    timing = GpuDevice.time(device, lambda: one.add_(1.0), 0.2)
    return f"{timing.host_us:.1f} µs, {timing.median_us:.1f} µs"


def plain_s(device: Watched, side: DeviceSide, case: Case, job: dict[str, Any]) -> float:
    """The call alone, as a program would make it, and the wait for the device."""
    op, bound = resolve(case.op), side._place(case, job, verify=False).bound
    seed_generators(0, device.torch_device)
    return statistics.median(stopped(lambda: (call(case, op, bound), device.synchronize()))[0] for _ in range(N_PLAIN))


def stopped(action: Callable[[], T]) -> tuple[float, T]:
    """Seconds that it took, and its result."""
    start = perf_counter()
    result = action()
    return perf_counter() - start, result


def different_ops() -> list[Case]:
    """One case of each op that ``program`` calls."""
    recorder = Recorder(None).start()
    try:
        program()
    finally:
        recorder.stop()
    trace, _ = recorder.build(Source("context", "bench"), {})
    return list({case.op: case for case in trace.cases}.values())


def program() -> None:
    """A few dozen ops of training and inference, on operands of some megabytes."""
    torch.manual_seed(0)
    x, w, image = torch.randn(512, 1024), torch.randn(1024, 1024), torch.randn(8, 32, 56, 56)
    q, index, positive = torch.randn(2, 8, 256, 64), torch.randint(0, 512, (2048,)), torch.rand(512, 1024) + 0.1
    x @ w
    torch.addmm(x[0], x, w)
    torch.bmm(q.flatten(0, 1), q.flatten(0, 1).transpose(1, 2))
    functional.scaled_dot_product_attention(q, q, q)
    functional.conv2d(image, torch.randn(32, 32, 3, 3), padding=1)
    functional.batch_norm(image, torch.zeros(32), torch.ones(32), training=True)
    functional.layer_norm(x, (1024,))
    functional.max_pool2d(image, 2)
    functional.avg_pool2d(image, 2)
    functional.adaptive_avg_pool2d(image, 7)
    functional.interpolate(image, scale_factor=2, mode="bilinear")
    functional.embedding(index, x)
    for function in (functional.gelu, functional.silu, functional.relu, torch.tanh, torch.sigmoid, torch.exp):
        function(x)
    for function in (torch.log, torch.sqrt, torch.rsqrt, torch.reciprocal, torch.abs, torch.neg, torch.sin):
        function(positive)
    functional.softmax(x, -1)
    functional.log_softmax(x, -1)
    functional.nll_loss(x.log_softmax(-1), index[:512])
    for function in (torch.add, torch.mul, torch.maximum, torch.div):
        function(x, positive)
    for function in (torch.sum, torch.mean, torch.cumsum, torch.amax, torch.argmax, torch.sort):
        function(x, dim=1)
    torch.topk(x, 10)
    torch.nonzero(x > 2)
    torch.where(x > 0, x, positive)
    torch.gather(x, 1, index[:512, None])
    torch.cat([x, x])
    x.index_select(0, index)
    x.transpose(0, 1).contiguous()
    x.to(torch.bfloat16)
    torch.linalg.vector_norm(x)
