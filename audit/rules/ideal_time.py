"""The time of a call at the rates of its device, whatever is in a cache: by arithmetic or by the bytes that it moves.

Beside the floor (``audit.rules.floor``), below which no time can be, this is what a good kernel comes near.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from audit.rules.rates import rates_of
from audit.rules.work import Work, work_of
from audit.schema import Case, Ceilings, DeviceInfo, Measurement


@dataclass(frozen=True)
class IdealTime:
    """``us`` a call; ``is_measured``: by rates that were measured on the device, not by its datasheet."""

    us: float
    bound: Literal["compute", "memory"]
    work: Work
    is_measured: bool


def ideal_of(
    case: Case, measurement: Measurement | None, device: DeviceInfo, ceilings: Ceilings | None
) -> IdealTime | None:
    """None where the op does no work that is known, or the device's rates are not known."""
    work = work_of(case, measurement)
    if work is None:
        return None
    bandwidth_gbs, tflops = rates_of(device, ceilings, work.dtype)
    if not bandwidth_gbs:
        return None
    memory_us = (work.read_bytes + work.written_bytes) / (bandwidth_gbs * 1e3)
    compute_us = work.flops / (tflops * 1e6) if tflops else 0.0
    us = max(memory_us, compute_us)
    return IdealTime(us, "compute" if compute_us >= memory_us else "memory", work, ceilings is not None) if us else None
