"""The least time that a call can take on a device: by arithmetic, by bytes that must move, by the launch of one kernel.

What is above is the most that can be gained, and no judgement. The largest of the three is the floor (the roofline of
Williams, Waterman and Patterson, CACM 52, 2009, with a launch below it). Bytes that fit the last level of cache may
never touch memory, so only those beyond it count. A replay flushes the caches before each call that it times: what such
a call reads comes from memory, and only what it writes may stay.
"""

from __future__ import annotations

from dataclasses import dataclass

from audit.rules.rates import cache_bytes, launch_us, rates_of
from audit.rules.work import Work, work_of
from audit.schema import Case, Ceilings, DeviceInfo, Measurement
from audit.verdicts import Bound

#: Names of kernels that reach a convolution by a transform, with fewer multiplications than a count of its taps says.
_TRANSFORMING = ("winograd", "wino_", "fft")
#: The dtype in which a card multiplies complex numbers.
_REAL = {"complex32": "float16", "complex64": "float32", "complex128": "float64"}


@dataclass(frozen=True)
class Floor:
    """``us`` a call, what holds it there, and the work that it was made of."""

    us: float
    bound: Bound
    work: Work


def floor_of(
    case: Case, device: DeviceInfo, ceilings: Ceilings | None = None, measurement: Measurement | None = None
) -> Floor | None:
    """None where the op, its arguments or the device's rates are not known. ``measurement`` tells sizes of outputs."""
    work = work_of(case, measurement)
    return None if work is None else floor_of_work(work, case, device, ceilings, measurement)


def floor_of_work(
    work: Work, case: Case, device: DeviceInfo, ceilings: Ceilings | None, measurement: Measurement | None
) -> Floor | None:
    """The same where the work is known already."""
    bandwidth_gbs, tflops = rates_of(device, ceilings, _REAL.get(work.dtype, work.dtype))
    compute_us = work.flops / (tflops * 1e6) if tflops and not _by_transform(work, measurement) else 0.0
    memory_us = beyond_cache(case, work, device, measurement) / (bandwidth_gbs * 1e3) if bandwidth_gbs else 0.0
    limits: dict[Bound, float] = {
        "compute": compute_us,
        "memory": memory_us,
        "launch": 0.0 if ran_nothing(measurement) else launch_us(ceilings) or 0.0,
    }
    bound = max(limits, key=lambda name: limits[name])
    return Floor(limits[bound], bound, work) if limits[bound] > 0 else None


def beyond_cache(case: Case, work: Work, device: DeviceInfo, measurement: Measurement | None) -> float:
    """Bytes that no cache of the device can keep from its memory; a backward may find a second cacheful there."""
    cache = cache_bytes(device)
    if case.grads is not None:
        return max(0.0, work.moved_bytes - 2 * cache)
    if _began_cold(measurement):
        return work.read_bytes + max(0.0, work.written_bytes - cache)
    return max(0.0, work.moved_bytes - cache)


def _began_cold(measurement: Measurement | None) -> bool:
    """Whether the caches were flushed before each timed call, for which a device takes time (``Timing.lead_us``)."""
    time = measurement.device_time if measurement is not None else None
    return time is not None and time.lead_us is not None and time.lead_us > 0


def ran_nothing(measurement: Measurement | None) -> bool:
    """Whether a trustworthy observer saw no kernel and no copy."""
    if measurement is None or not measurement.path.complete:
        return False
    return not measurement.path.kernels and not measurement.path.copies and not measurement.path.moved_us


def _by_transform(work: Work, measurement: Measurement | None) -> bool:
    if work.op_class != "convolution" or measurement is None:
        return False
    names = " ".join(kernel.name.lower() for kernel in measurement.path.kernels)
    return any(name in names for name in _TRANSFORMING)
