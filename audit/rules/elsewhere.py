"""SPD405: another device's times, brought to the limits of this one.

A call that takes this device far longer than its limits explain, when another device keeps to its own, is slow here and
not by nature. Where the limits of both are known, a time is scaled by their ratio; on the same device it is taken as it
is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from audit.rules.arguments import is_transfer
from audit.rules.ideal_time import ideal_of
from audit.rules.side_by_side import times_by_kind
from audit.rules.speed import TIMED, cost_text, fixed_us, has_spread
from audit.rules.thresholds import Thresholds
from audit.rules.wording import duration
from audit.run_records import Run, RunHeader
from audit.schema import Case, DeviceTimes, Measurement, Timing
from audit.verdicts import CaseRule, Finding

#: What a reader of times has to know of the software that they were taken with.
VERSIONS = ("torch", "hip", "cuda", "rocm")


def times_of(run: Run) -> DeviceTimes:
    """Of every case that a GPU ran; none of another device, whose times mean nothing."""
    measured = run.measurements.items() if run.header.device.backend in TIMED else ()
    return _device_times(run, {key: item.device_time for key, item in measured if item.device_time is not None})


def times_for(here: Run, there: Run) -> DeviceTimes:
    """What the cases of ``here`` took in another run, by their kind: layouts and overloads may differ there."""
    return _device_times(there, times_by_kind(here, there) if there.header.device.backend in TIMED else {})


def _device_times(run: Run, times: Mapping[str, Timing]) -> DeviceTimes:
    header = run.header
    return DeviceTimes(
        device=header.device,
        evidence=header.evidence,
        environment={name: header.environment[name] for name in VERSIONS if name in header.environment},
        times=times,
        ceilings=header.ceilings,
    )


def slower_than_elsewhere(run: Run, there: DeviceTimes | None, thresholds: Thresholds) -> CaseRule:
    """SPD405 of a case; nothing where no other device's times are at hand, or this one's mean nothing."""

    def of_case(case: Case, measurement: Measurement | None) -> Iterator[Finding]:
        if there is None or measurement is None or run.header.device.backend not in TIMED:
            return
        if case.key in there.times:
            yield from _slower(case, measurement, run.header, there, thresholds)

    return of_case


def _slower(
    case: Case, measurement: Measurement, header: RunHeader, there: DeviceTimes, thresholds: Thresholds
) -> Iterator[Finding]:
    if is_transfer(case):
        return
    here, other = measurement.device_time, there.times[case.key]
    scale = _scale(case, measurement, header, there)
    if here is None or scale is None or other.median_us <= 0 or not (has_spread(here) and has_spread(other)):
        return
    expected_us = other.median_us * scale
    factor = (
        thresholds.slower_than_baseline_factor if _is_same(header, there) else thresholds.slower_than_elsewhere_factor
    )
    allowed_us = factor * (other.median_us + other.iqr_us) * scale + fixed_us(measurement, header, thresholds)
    if here.median_us - here.iqr_us <= allowed_us:
        return
    cost_us = (here.median_us - expected_us) * case.n_calls
    brought = "" if scale == 1 else f", {duration(expected_us)} at this device's limits"
    yield Finding(
        "SPD405",
        "slow",
        f"takes {duration(here.median_us)}; {duration(other.median_us)} on {there.device.name} ({there.evidence})"
        f"{brought}: {here.median_us / expected_us:.3g} times that; it costs {cost_text(cost_us, case)}",
        {
            "device_us": here.median_us,
            "there_us": other.median_us,
            "there_iqr_us": other.iqr_us,
            "scale": scale,
            "cost_ms": cost_us / 1000,
            "there": there.device.name,
            "n": other.n,
        },
    )


def _is_same(header: RunHeader, there: DeviceTimes) -> bool:
    device = header.device
    return (device.name, device.arch, device.backend) == (there.device.name, there.device.arch, there.device.backend)


def _scale(case: Case, measurement: Measurement, header: RunHeader, there: DeviceTimes) -> float | None:
    """How much longer the call may take here by the limits of both devices; None where these are not known."""
    if _is_same(header, there):
        return 1.0
    here = ideal_of(case, measurement, header.device, header.ceilings)
    other = ideal_of(case, measurement, there.device, there.ceilings)
    if here is None or other is None or here.is_measured != other.is_measured or not other.us:
        return None
    return here.us / other.us
