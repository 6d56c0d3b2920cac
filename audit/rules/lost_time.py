"""What a program loses to the limits of its device: calls x (time - floor), by op, by module and by library.

A step is the program's recorded calls over its steps, so what it does once before them is spread over them. Traffic
between host and device is left out: it is bound by the bus, and most of it happens once. So are views in which nothing
ran: between the events around one lies a microsecond or two, which is the events' own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from audit.knowledge.op_classes import class_of
from audit.rules.arguments import is_transfer
from audit.rules.floor import ran_nothing
from audit.rules.rates import rates_of
from audit.rules.shown_rates import shown_ceilings, works_of
from audit.run_records import Run
from audit.schema import Case
from audit.verdicts import Verdict

#: What is not inside a module, and kernels of no library that is known.
OUTSIDE, OPTIMIZER, UNKNOWN = "(outside of modules)", "(optimizer)", "unknown"


@dataclass(frozen=True)
class LostTime:
    """Device time of a group of cases in one step, in microseconds: what it took, and what is above its floor.

    ``without_floor_us`` is the part of ``us`` for which no floor is known, and which therefore loses nothing here.
    """

    name: str
    n_calls: int
    us: float
    lost_us: float
    without_floor_us: float


@dataclass(frozen=True)
class Step:
    """One step on the device. ``lost_us`` is what it would gain if every call ran at its floor.

    ``flops`` are those of products, convolutions and attention, each counted once though recomputed; ``peak_us`` is the
    least time in which the device could do them at the rates that its limits are made of, None where one is not known.
    ``host_us`` is what the host takes to issue all calls, None where it was not measured. Not in ``us``: ``bus_us`` of
    copies between host and device, ``no_case_us`` of kernels that no case stands for, and ``n_untimed`` of the cases.
    """

    n_steps: int
    us: float
    lost_us: float
    without_floor_us: float
    flops: float
    peak_us: float | None
    host_us: float | None
    bus_us: float = 0.0
    no_case_us: float = 0.0
    n_untimed: int = 0

    @property
    def utilisation(self) -> float | None:
        """Model FLOPs utilisation: the least time of the step's arithmetic over its device time, a fraction."""
        return self.peak_us / self.us if self.peak_us and self.us > 0 else None

    @property
    def is_bound_by_host(self) -> bool:
        """Whether issuing the calls takes longer than running them."""
        return self.host_us is not None and self.host_us > self.us


def lost_us(verdict: Verdict) -> float | None:
    """Device time of all calls above the floor; None where no floor is known."""
    if verdict.floor_us is None or verdict.total_us is None:
        return None
    return max(0.0, verdict.total_us - verdict.floor_us * verdict.n_calls)


def lost_by_op(run: Run, verdicts: Iterable[Verdict]) -> list[LostTime]:
    """By the op's name without its overload, dearest first, like the other two."""
    return _grouped(run, verdicts, lambda verdict: verdict.op.partition(".")[0])


def lost_by_module(run: Run, verdicts: Iterable[Verdict]) -> list[LostTime]:
    """By the first module that the case was called in; layers that differ by their number alone are one."""
    return _grouped(run, verdicts, _module)


def lost_by_library(run: Run, verdicts: Iterable[Verdict]) -> list[LostTime]:
    """By the library of the heaviest kernel."""
    return _grouped(run, verdicts, lambda verdict: (verdict.library or UNKNOWN).partition(" (")[0])


def step_of(run: Run, verdicts: Iterable[Verdict]) -> Step | None:
    """None where nothing was timed on a GPU, which ``verdicts`` show by their times."""
    verdicts = list(verdicts)
    timed = _timed(run, verdicts)
    if not timed:
        return None
    n = _n_steps(run)
    total = _sum("", timed, n)
    keys, transfers = {verdict.key for verdict in timed}, _transfers(run)
    flops, peak_us = _arithmetic(run, [case for case in run.cases if case.key in keys])
    return Step(
        n,
        total.us,
        total.lost_us,
        total.without_floor_us,
        flops / n,
        None if peak_us is None else peak_us / n,
        _host_us(run, [verdict for verdict in verdicts if verdict.key not in transfers], n),
        bus_us=sum(verdict.total_us or 0.0 for verdict in verdicts if verdict.key in transfers) / n,
        no_case_us=sum(kernel.us for item in run.header.not_audited for kernel in item.kernels) / n,
        n_untimed=sum(verdict.total_us is None for verdict in verdicts),
    )


def _n_steps(run: Run) -> int:
    return max(run.header.source.n_steps or 1, 1)


def _timed(run: Run, verdicts: Iterable[Verdict]) -> list[Verdict]:
    """What took time on the device."""
    transfers = _transfers(run)
    return [
        verdict
        for verdict in verdicts
        if verdict.total_us is not None
        and verdict.key not in transfers
        and not (class_of(verdict.op) == "view" and ran_nothing(run.measurements.get(verdict.key)))
    ]


def _transfers(run: Run) -> frozenset[str]:
    return frozenset(case.key for case in run.cases if is_transfer(case))


def _grouped(run: Run, verdicts: Iterable[Verdict], name: Callable[[Verdict], str]) -> list[LostTime]:
    groups: dict[str, list[Verdict]] = {}
    for verdict in _timed(run, verdicts):
        groups.setdefault(name(verdict), []).append(verdict)
    sums = [_sum(group, members, _n_steps(run)) for group, members in groups.items()]
    return sorted(sums, key=lambda item: (-item.lost_us, -item.us, item.name))


def _sum(name: str, members: list[Verdict], n_steps: int) -> LostTime:
    return LostTime(
        name,
        round(sum(verdict.n_calls for verdict in members) / n_steps),
        sum(verdict.total_us or 0.0 for verdict in members) / n_steps,
        sum(lost_us(verdict) or 0.0 for verdict in members) / n_steps,
        sum(verdict.total_us or 0.0 for verdict in members if verdict.floor_us is None) / n_steps,
    )


def _module(verdict: Verdict) -> str:
    if verdict.phase == "optimizer":
        return OPTIMIZER
    return _layer(verdict.modules[0]) if verdict.modules else OUTSIDE


def _layer(module: str) -> str:
    """``model.layers.*.mlp`` of ``model.layers.17.mlp``."""
    return ".".join("*" if part.isdecimal() else part for part in module.split("."))


def _arithmetic(run: Run, cases: Iterable[Case]) -> tuple[float, float | None]:
    """(FLOPs of all calls but recomputed ones, the least microseconds for them)."""
    flops, peak_us, is_whole = 0.0, 0.0, True
    works = works_of(run)
    ceilings = shown_ceilings(run, works)
    for case in cases:
        work = works.get(case.key)
        if work is None or not work.flops:
            continue
        of_all = work.flops * (case.n_calls - case.n_recomputed)
        _, tflops = rates_of(run.header.device, ceilings, work.dtype)
        flops += of_all
        is_whole = is_whole and bool(tflops)
        peak_us += of_all / (tflops * 1e6) if tflops else 0.0
    return flops, peak_us if is_whole and flops else None


def _host_us(run: Run, issued_by: Iterable[Verdict], n_steps: int) -> float | None:
    """Views too: they take the host time."""
    issued = [
        time.host_us * verdict.n_calls
        for verdict in issued_by
        if (measurement := run.measurements.get(verdict.key)) is not None
        and (time := measurement.device_time) is not None
        and time.host_us is not None
    ]
    return sum(issued) / n_steps if issued else None
