"""SPD401 to SPD403: steady time against the CPU and the device's own rates, and the first call.

Only where a real GPU was timed.
"""

from __future__ import annotations

from collections.abc import Iterator

from audit.knowledge.expectations import expectation_of
from audit.rules.arguments import is_transfer, kernels_us, launches_a_call
from audit.rules.ideal_time import IdealTime, ideal_of
from audit.rules.rates import launch_us
from audit.rules.thresholds import Thresholds
from audit.rules.wording import duration, plural, size
from audit.run_records import RunHeader
from audit.schema import Case, Measurement, Timing
from audit.verdicts import Finding

_KEEP_LAYOUT = (
    "a copy that changes the order of the dimensions is several times slower than one that keeps it: keep one memory "
    "format, and transposed operands as views"
)
#: Backends whose times mean something: sim and cpu time Python and the CPU itself.
TIMED = ("hip", "cuda")


def slower_than_cpu(
    case: Case, measurement: Measurement, header: RunHeader, thresholds: Thresholds
) -> Iterator[Finding]:
    """SPD401: slower by a factor, beyond both sides' noise, and above what launching any kernel costs."""
    device, reference = measurement.device_time, measurement.reference_time
    if header.device.backend not in TIMED or device is None or reference is None:
        return
    if is_transfer(case) or not has_spread(device):
        return
    device_us, reference_us = device.median_us - device.iqr_us, reference.median_us + reference.iqr_us
    if device.median_us < thresholds.slow_floor_us or device_us <= thresholds.slower_than_cpu_factor * reference_us:
        return
    cost_us = (device.median_us - reference.median_us) * case.n_calls
    factor = f"{device.median_us / reference.median_us:.3g} times" if reference.median_us > 0 else "far more than"
    yield Finding(
        "SPD401",
        "slow",
        f"takes {duration(device.median_us)} on the device and {duration(reference.median_us)} on the CPU, "
        f"{factor} that; it costs {cost_text(cost_us, case)}",
        {
            "device_us": device.median_us,
            "device_iqr_us": device.iqr_us,
            "reference_us": reference.median_us,
            "reference_iqr_us": reference.iqr_us,
            "cost_ms": cost_us / 1000,
            "n": device.n,
        },
    )


def has_spread(time: Timing) -> bool:
    """Whether the noise is known: one call of a recording has none. A replay has called twice at least."""
    return time.n > 1 or time.first_us is not None


def cost_text(us: float, case: Case) -> str:
    """``7 ms over 12 calls``."""
    return f"{duration(us)} over {plural(case.n_calls, 'call')}"


def launch_or_guess_us(header: RunHeader, thresholds: Thresholds) -> float:
    """Microseconds of a launch: as measured on the device, else as much as any takes."""
    return launch_us(header.ceilings) or thresholds.unmeasured_launch_us


def fixed_us(measurement: Measurement, header: RunHeader, thresholds: Thresholds) -> float:
    """What a call may take whatever it does: launches, by the kernels that ran."""
    n_launches = max(launches_a_call(measurement), 1.0)
    return thresholds.fixed_launches * launch_or_guess_us(header, thresholds) * n_launches


def far_from_the_limit(
    case: Case, measurement: Measurement, header: RunHeader, thresholds: Thresholds
) -> Iterator[Finding]:
    """SPD403: a share of the device's rates below what is expected of any sound kernel of its class."""
    time = measurement.device_time
    if header.device.backend not in TIMED or time is None or is_transfer(case) or not has_spread(time):
        return
    ideal = ideal_of(case, measurement, header.device, header.ceilings)
    expected = expectation_of(ideal.work.op_class, ideal.bound) if ideal is not None else None
    if ideal is None or expected is None:
        return
    fraction = expected.least_fraction * (1.0 if ideal.is_measured else thresholds.datasheet_fraction)
    allowed_us = fixed_us(measurement, header, thresholds) + ideal.us / fraction
    busy_us = _busy_us(time, measurement)
    if busy_us < thresholds.far_from_limit_us or busy_us <= allowed_us:
        return
    cost_us = (time.median_us - ideal.us) * case.n_calls
    does = "does" if ideal.bound == "compute" else "moves"
    amount = f"{ideal.work.flops / 1e9:.3g} GFLOP" if ideal.bound == "compute" else size(ideal.work.moved_bytes)
    rates = "as measured" if ideal.is_measured else "by its datasheet"
    yield Finding(
        "SPD403",
        "slow",
        f"takes {duration(time.median_us)}; it {does} {amount}, for which the device needs {duration(ideal.us)} at its "
        f"rates {rates}: {100 * ideal.us / time.median_us:.2g} % of them, at least {100 * fraction:.2g} % are expected "
        f"of {ideal.work.op_class}; that costs {cost_text(cost_us, case)}{_collisions(case, ideal)}",
        {
            "device_us": time.median_us,
            "device_iqr_us": time.iqr_us,
            "ideal_us": ideal.us,
            "bound": ideal.bound,
            "fraction": ideal.us / time.median_us,
            "expected_fraction": fraction,
            "cost_ms": cost_us / 1000,
            "n": time.n,
            "source": expected.source,
            "remedy": _KEEP_LAYOUT if ideal.work.op_class == "copy" else None,
        },
    )


def _collisions(case: Case, ideal: IdealTime) -> str:
    """Additions in one place come one after the other; how many, where the recorded indices tell."""
    most = max((values.max_multiplicity or 0 for values in case.values.values()), default=0)
    return f"; up to {most:,} of its indices name one place" if ideal.work.op_class == "scatter" and most > 1 else ""


def _busy_us(time: Timing, measurement: Measurement) -> float:
    """What the device surely worked: the median less its spread, or less where its kernels took less between gaps."""
    least_us = time.median_us - time.iqr_us
    worked_us = kernels_us(measurement)
    return min(least_us, worked_us) if measurement.path.complete and worked_us else least_us


def first_call(case: Case, measurement: Measurement, header: RunHeader, thresholds: Thresholds) -> Iterator[Finding]:
    """SPD402: seconds are a note, since they are paid once a shape; above the search time of a library it is slow."""
    time = measurement.device_time
    if header.device.backend not in TIMED or time is None or time.first_us is None:
        return
    if time.first_us >= thresholds.first_call_note_us:
        yield Finding(
            "SPD402",
            "slow" if time.first_us >= thresholds.first_call_slow_us else "supported",
            f"the first call took {duration(time.first_us)}, later ones {duration(time.median_us)}; "
            "every new shape may pay that once a process",
            {"first_us": time.first_us, "device_us": time.median_us},
        )
