"""The ceilings of a run, raised by what its own calls did: what a device has done it can do.

A calibration is no bound. A card that draws all its power slows down in the largest product, so that a smaller one of
the program may run faster than any that was tried (an H200 in bf16: 721 TFLOPS against 823 in a Llama step). No call
raises a ceiling above the datasheet's peak, where one is known: that would be a mistake of ours.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from math import isfinite

from audit.rules.floor import beyond_cache, ran_nothing
from audit.rules.rates import launch_us, rates_of
from audit.rules.work import Work, work_of
from audit.run_records import Run
from audit.schema import IMPORTED, Case, Ceilings, Measurement, Rate


def works_of(run: Run) -> dict[str, Work | None]:
    """By key. A recording does not say whether the mantissa of float32 was cut: then it may have been."""
    works = {case.key: work_of(case, run.measurements.get(case.key)) for case in run.cases}
    if run.header.source.kind != IMPORTED:
        return works
    return {
        key: dataclasses.replace(work, dtype="tf32") if work is not None and work.dtype == "float32" else work
        for key, work in works.items()
    }


def shown_ceilings(run: Run, works: Mapping[str, Work | None]) -> Ceilings | None:
    """None where the run measured none: then floors are of datasheet peaks. ``works`` by the key of their case."""
    ceilings = run.header.ceilings
    if ceilings is None:
        return None
    fastest: dict[str, float] = {}
    bandwidth, launch = 0.0, launch_us(ceilings)
    for case, measurement, us in _timed(run):
        work = works.get(case.key)
        if work is None or ran_nothing(measurement):
            continue
        if work.op_class == "gemm":
            fastest[work.dtype] = max(fastest.get(work.dtype, 0.0), work.flops / us / 1e6)
        bandwidth = max(bandwidth, beyond_cache(case, work, run.header.device, measurement) / us / 1e3)
        launch = min(launch, us) if launch is not None else None
    return dataclasses.replace(
        ceilings,
        copy_gbs=_raised(ceilings.copy_gbs, bandwidth, rates_of(run.header.device, None, "")[0]),
        gemm_tflops=_products(run, ceilings.gemm_tflops, fastest),
        launch_us=dataclasses.replace(ceilings.launch_us, median=launch) if launch is not None else ceilings.launch_us,
    )


def _timed(run: Run) -> list[tuple[Case, Measurement, float]]:
    found = []
    for case in run.cases:
        measurement = run.measurements.get(case.key)
        time = measurement.device_time if measurement is not None else None
        if measurement is not None and time is not None and isfinite(time.median_us) and time.median_us > 0:
            found.append((case, measurement, time.median_us))
    return found


def _products(run: Run, measured: Mapping[str, Rate], fastest: Mapping[str, float]) -> dict[str, Rate]:
    raised = dict(measured)
    for dtype, tflops in fastest.items():
        if dtype in raised:
            raised[dtype] = _raised(raised[dtype], tflops, rates_of(run.header.device, None, dtype)[1])
    return raised


def _raised(rate: Rate, shown: float, peak: float | None) -> Rate:
    """The rate, or what was shown where that is more; not more than the peak."""
    at_most = shown if peak is None else min(shown, peak)
    return dataclasses.replace(rate, median=at_most) if at_most > rate.median else rate
