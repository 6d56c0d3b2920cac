"""Does the audit itself work here: planted faults must be found, and a matrix product seen on the real device."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import audit
from audit.codec import case_key
from audit.knowledge.kernels import classify_kernel
from audit.replay.engine import DeviceLost, ReplaySettings
from audit.replay.pool import Pool
from audit.rules.judge import judge
from audit.run_records import Run, RunEnd, RunHeader, Started
from audit.schema import EVIDENCE_BY_BACKEND, Arg, Case, DeviceInfo, Measurement, Source, Status, TensorSpec, Values
from audit.verdicts import Verdict

FAULT_FILE = Path(__file__).with_name("planted_faults.py")

#: Rows and columns of every operand: small, and above the size where a copy to the host could be a scalar's.
SIDE = 256

#: A planted hang ends after this; a healthy case of this size takes milliseconds.
HANG_LIMIT_S = 20.0


@dataclass(frozen=True)
class Planted:
    """A fault in the simulated device and the status that the audit must give the op."""

    op: str
    fault: str
    expected: Status


PLANTED: tuple[Planted, ...] = (
    Planted("aten::mul.Tensor", "none: a healthy op", "supported"),
    Planted("aten::mm.default", "every element one percent off", "divergent"),
    Planted("aten::relu.default", "one element is NaN", "divergent"),
    Planted("aten::silu.default", "half of the output is never written", "divergent"),
    Planted("aten::exp.default", "one element differs from run to run", "divergent"),
    Planted("aten::addmm.default", "raises a HIP error", "unsupported"),
    Planted("aten::bmm.default", "segmentation fault", "unsupported"),
    Planted("aten::cumsum.default", "computed on the host", "falling_back"),
    Planted("aten::tanh.default", "never ends", "unsupported"),
)


@dataclass(frozen=True)
class Found:
    """What the audit said of a planted fault."""

    planted: Planted
    status: Status | None
    codes: tuple[str, ...] = ()

    @property
    def right(self) -> bool:
        return self.status == self.planted.expected


@dataclass(frozen=True)
class GemmSeen:
    """A matrix product on the real device. ``problem`` is empty where it was right and its kernel was seen."""

    device: DeviceInfo
    measurement: Measurement | None
    status: Status | None
    problem: str


def planted_cases() -> tuple[Case, ...]:
    """One case for each planted fault, on float32 operands drawn from a normal distribution."""
    return tuple(_case(planted.op, _arguments(planted.op)) for planted in PLANTED)


def gemm_case() -> Case:
    """A float32 product of two square matrices, four times the side of the planted cases."""
    side = 4 * SIDE
    return _case("aten::mm.default", (_operand(0, side, side), _operand(1, side, side)))


def find_planted_faults() -> tuple[Found, ...]:
    """Replays the planted cases on the simulated device and judges them."""
    settings = ReplaySettings(
        device=f"sim:{FAULT_FILE}", first_call_limit_s=HANG_LIMIT_S, steady_limit_s=HANG_LIMIT_S, timing_budget_s=0.01
    )
    _, verdicts, _ = _replay(settings, planted_cases())
    by_op = {verdict.op: verdict for verdict in verdicts}
    return tuple(_found(planted, by_op.get(planted.op)) for planted in PLANTED)


def look_for_gemm(device: str) -> GemmSeen:
    """Runs a known product on ``device``. Raises what opening the device raises."""
    info, verdicts, measurements = _replay(ReplaySettings(device=device), (gemm_case(),))
    measurement = next(iter(measurements.values()), None)
    status = verdicts[0].status if measurement is not None else None
    return GemmSeen(info, measurement, status, _gemm_problem(measurement, status))


def _gemm_problem(measurement: Measurement | None, status: Status | None) -> str:
    if measurement is None:
        return "the device was lost before the product could be run"
    if measurement.device.kind != "ok":
        return f"the product {measurement.device.kind}: {measurement.device.message}"
    if status in ("divergent", "inconclusive"):
        return f"the product was judged {status}"
    path = measurement.path
    if not path.observed or not path.complete:
        return "the profiler's own test did not pass, so kernels and copies are not evidence here"
    names = [kernel.name for kernel in path.kernels]
    if not any("gemm" in classify_kernel(name).category for name in names):
        return f"no kernel of the product was recognised as a GEMM; seen: {', '.join(names) or 'none'}"
    return ""


def _replay(
    settings: ReplaySettings, cases: tuple[Case, ...]
) -> tuple[DeviceInfo, tuple[Verdict, ...], Mapping[str, Measurement]]:
    run = replayed_run(settings, cases)
    return run.header.device, judge(run).verdicts, run.measurements


def replayed_run(settings: ReplaySettings, cases: tuple[Case, ...]) -> Run:
    """Replays the cases, without a file. Raises what opening the device raises."""
    measurements: dict[str, Measurement] = {}
    started: set[str] = set()
    end = RunEnd(complete=True)
    with Pool(settings) as pool:
        info = pool.device_info()
        for event in pool.replay(cases):
            if isinstance(event, Started):
                started.add(event.key)
            elif isinstance(event, DeviceLost):
                end = RunEnd(False, f"the device was lost: {event.reason}")
                break
            else:
                measurements[event.key] = event
    header = RunHeader(
        evidence=EVIDENCE_BY_BACKEND[info.backend],
        source=Source("opset", "selftest"),
        device=info,
        environment={},
        settings={},
        created=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        audit_version=audit.__version__,
        n_cases=len(cases),
        n_recorded=len(cases),
    )
    return Run(header, cases, measurements, frozenset(started - measurements.keys()), end)


def _found(planted: Planted, verdict: Verdict | None) -> Found:
    if verdict is None:
        return Found(planted, None)
    return Found(planted, verdict.status, tuple(finding.code for finding in verdict.findings))


def _arguments(op: str) -> tuple[Arg, ...]:
    square = _operand(0, SIDE, SIDE)
    if op == "aten::bmm.default":
        return _operand(0, 2, SIDE, SIDE), _operand(1, 2, SIDE, SIDE)
    if op == "aten::addmm.default":
        return _operand(0, SIDE), _operand(1, SIDE, SIDE), _operand(2, SIDE, SIDE)
    if op == "aten::cumsum.default":
        return square, 1
    return (square, _operand(1, SIDE, SIDE)) if op in ("aten::mm.default", "aten::mul.Tensor") else (square,)


def _operand(storage: int, *sizes: int) -> TensorSpec:
    """A contiguous float32 tensor on a storage of its own."""
    strides = [1]
    for size in reversed(sizes[1:]):
        strides.insert(0, strides[0] * size)
    return TensorSpec(sizes, tuple(strides), "float32", extent=strides[0] * sizes[0], storage=storage)


def _case(op: str, args: tuple[Arg, ...]) -> Case:
    normal = Values(n_sampled=1, minimum=-4.0, maximum=4.0, mean=0.0, std=1.0)
    n_tensors = sum(isinstance(arg, TensorSpec) for arg in args)
    return Case(case_key(op, args, (), "forward", None), op, args, values=dict.fromkeys(range(n_tensors), normal))
