"""SPD404: a product in float64 in a program that multiplies in something faster, as a forgotten cast makes one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from audit.knowledge.op_classes import class_of
from audit.rules.arguments import dtypes_of
from audit.rules.rates import rates_of
from audit.rules.speed import TIMED, cost_text, fixed_us
from audit.rules.thresholds import Thresholds
from audit.rules.wording import duration
from audit.run_records import Run, RunHeader
from audit.schema import Case, DeviceTimes, Measurement
from audit.verdicts import CaseRule, Finding

_WIDE = "float64"
_PRODUCTS = ("gemm", "convolution", "attention")


def stray_dtypes(run: Run, there: DeviceTimes | None, thresholds: Thresholds) -> CaseRule:
    """SPD404 of a case. A program that computes in float64 throughout means to."""
    dtypes = Counter[str]()
    for case in run.cases:
        if (dtype := _dtype(case)) is not None:
            dtypes[dtype] += case.n_calls
    usual, n_usual = dtypes.most_common(1)[0] if dtypes else ("", 0)
    is_stray = 0 < dtypes[_WIDE] <= thresholds.stray_dtype_fraction * dtypes.total()
    is_judged = run.header.device.backend in TIMED and n_usual and is_stray

    def of_case(case: Case, measurement: Measurement | None) -> Iterator[Finding]:
        if is_judged and measurement is not None and _dtype(case) == _WIDE:
            yield from _stray(case, measurement, usual, run.header, thresholds)

    return of_case


def _stray(
    case: Case, measurement: Measurement, usual: str, header: RunHeader, thresholds: Thresholds
) -> Iterator[Finding]:
    time = measurement.device_time
    rates = [rates_of(header.device, header.ceilings, dtype)[1] for dtype in (_WIDE, usual)]
    wide, narrow = rates
    if time is None or not wide or not narrow or narrow < thresholds.wider_dtype_factor * wide:
        return
    if time.median_us - time.iqr_us <= fixed_us(measurement, header, thresholds):
        return  # launching it costs as much in any dtype
    saved_us = time.median_us * (1 - wide / narrow) * case.n_calls
    yield Finding(
        "SPD404",
        "slow",
        f"multiplies in float64, the program's other products are in {usual}, in which this device is "
        f"{narrow / wide:.2g} times as fast; {duration(time.median_us)} a call, up to "
        f"{cost_text(saved_us, case)} would be saved",
        {
            "device_us": time.median_us,
            "dtype": _WIDE,
            "usual_dtype": usual,
            "float64_tflops": wide,
            "usual_tflops": narrow,
            "cost_ms": saved_us / 1000,
        },
    )


def _dtype(case: Case) -> str | None:
    """The dtype in which a product is done; None of other ops."""
    if class_of(case.op) not in _PRODUCTS:
        return None
    return next((dtype for dtype in dtypes_of(case) if dtype.startswith(("float", "bfloat"))), None)
