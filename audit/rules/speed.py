"""SPD401, SPD402: steady time against the CPU, and the first call. Only where a real GPU was timed."""

from __future__ import annotations

from collections.abc import Iterator

from audit.codec import tensors_of
from audit.rules.thresholds import Thresholds
from audit.rules.wording import duration
from audit.schema import Case, Measurement, Named, RunHeader
from audit.verdicts import Finding

#: A copy between host and device is bound by the bus; the CPU's own copy in memory is no yardstick for it.
_TRANSFERS = ("_to_copy", "copy_", "_pin_memory")
#: Backends whose times mean something: sim and cpu time Python and the CPU itself.
TIMED = ("hip", "cuda")


def slower_than_cpu(
    case: Case, measurement: Measurement, header: RunHeader, thresholds: Thresholds
) -> Iterator[Finding]:
    """SPD401: slower by a factor, beyond both sides' noise, and above what launching any kernel costs."""
    device, reference = measurement.device_time, measurement.reference_time
    if header.device.backend not in TIMED or device is None or reference is None or _is_transfer(case):
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
        f"{factor} that; {cost_us / 1000:.3g} ms over {case.n_calls} calls",
        {
            "device_us": device.median_us,
            "device_iqr_us": device.iqr_us,
            "reference_us": reference.median_us,
            "reference_iqr_us": reference.iqr_us,
            "cost_ms": cost_us / 1000,
            "n": device.n,
        },
    )


def _is_transfer(case: Case) -> bool:
    """Whether the case moves data between host and device."""
    if case.op.split("::")[-1].split(".")[0] not in _TRANSFERS:
        return False
    to_host = Named("device", "cpu") in (*case.args, *(value for _, value in case.kwargs))
    return to_host or any(spec.host for spec in tensors_of(case.args, case.kwargs))


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
