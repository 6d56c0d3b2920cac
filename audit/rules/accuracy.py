"""NUM201..206, NUM211: the device's outputs against the reference, by the standard of each output."""

from __future__ import annotations

import math
from collections.abc import Iterator

from audit.comparison import Comparison, TensorFact
from audit.rules.places import described, histogram, places_data
from audit.rules.thresholds import DEFAULT, Thresholds
from audit.rules.wording import element, number, place
from audit.run_records import RunHeader
from audit.schema import Case, Measurement
from audit.verdicts import Finding


def judged(measurement: Measurement) -> tuple[Comparison, ...]:
    """The comparisons that say something of the op: it returned, its inputs had arrived intact, and the CPU does not
    contradict itself where it contradicts the device."""
    return tuple(comparison for comparison in _told(measurement) if not _is_doubtful(comparison))


def _told(measurement: Measurement) -> tuple[Comparison, ...]:
    if measurement.device.kind != "ok" or measurement.n_damaged_inputs:
        return ()
    return measurement.comparisons


def _is_doubtful(comparison: Comparison) -> bool:
    """Whether a third way agrees with the device: by bits where these count, else within the default allowance."""
    if not comparison.third or comparison.third_n_different:
        return False
    return comparison.standard == "exact" or comparison.third_ratio <= DEFAULT.allowed_ratio


def doubted(case: Case, measurement: Measurement, header: RunHeader, thresholds: Thresholds) -> Iterator[Finding]:
    """INC914: the CPU gives another answer by a third way, and that is the device's."""
    for comparison in _told(measurement):
        if _is_doubtful(comparison):
            yield Finding(
                "INC914",
                "inconclusive",
                f"{comparison.name}: the CPU contradicts itself: its answer differs from the device's at "
                f"{_worst(comparison)}, and computed by {comparison.third} it agrees with the device",
                {
                    "output": comparison.name,
                    "worst_ratio": comparison.worst_ratio,
                    "n_different": comparison.n_different,
                    "third": comparison.third,
                    "third_ratio": comparison.third_ratio,
                },
            )


def beyond_allowance(
    case: Case, measurement: Measurement, header: RunHeader, thresholds: Thresholds
) -> Iterator[Finding]:
    """NUM201: the worst element's error over its floor, against the allowed ratio."""
    for comparison in judged(measurement):
        if comparison.standard != "numeric":
            continue
        allowed = allowed_ratio(comparison, thresholds)
        if comparison.worst_ratio > allowed:
            yield _beyond(case, comparison, allowed)


def allowed_ratio(comparison: Comparison, thresholds: Thresholds) -> float:
    """How many times its floor the worst element of a numeric output may be off."""
    same_dtype = comparison.reference == "same-dtype" or _is_double(comparison)
    return thresholds.allowed_ratio_same_dtype if same_dtype else thresholds.allowed_ratio


def _is_double(comparison: Comparison) -> bool:
    """Then the reference in double precision has an error like the device's."""
    return comparison.expected is not None and comparison.expected.dtype in ("float64", "complex128")


def _beyond(case: Case, comparison: Comparison, allowed: float) -> Finding:
    error, floor = _worst_error(comparison)
    n_beyond, at_least = count_beyond(comparison, allowed)
    reference = "the same-dtype CPU run" if comparison.reference == "same-dtype" else "fp64"
    where, placed = "", described(comparison.wrong, case, comparison)
    if not (comparison.n_nan_mismatch or comparison.n_inf_mismatch):  # else the worst place is that of the mask
        where = f"; at {_worst(comparison)}"
    message = (
        f"{comparison.name} is off by {number(error)} from {reference} where {number(allowed * floor)} is allowed, "
        f"{allowed:g} x (noise {number(comparison.noise)} + eps {number(comparison.eps)} x |expected|){where}; "
        f"{at_least}{n_beyond} of {_compared(comparison)} elements are beyond{placed}"
    )
    return Finding(
        "NUM201",
        "divergent",
        message,
        {
            "output": comparison.name,
            "reference": comparison.reference,
            "error": error,
            "allowed": allowed * floor,
            "allowed_ratio": allowed,
            "worst_ratio": comparison.worst_ratio,
            "n_beyond": n_beyond,
            "n_elements": comparison.n_elements,
            "max_abs_error": comparison.max_abs_error,
            "rms_error": comparison.rms_error,
            "cpu_max_abs_error": comparison.cpu_max_abs_error,
            "cpu_rms_error": comparison.cpu_rms_error,
            "noise": comparison.noise,
            "eps": comparison.eps,
            "worst_place": place(comparison.worst_index),
            **_anatomy(case, comparison),
        },
    )


def _anatomy(case: Case, comparison: Comparison) -> dict[str, str | float]:
    """Where the wrong elements sit, and the errors in ULP; empty where nobody looked."""
    found: dict[str, str | float] = {**places_data(comparison.wrong, case, comparison)}
    if comparison.wrong is not None:
        found["n_placed"] = comparison.wrong.n
    return found | ({"ulp": histogram(comparison.ulp_counts)} if comparison.ulp_counts else {})


def _compared(comparison: Comparison) -> str:
    """``4096``, or ``163136 compared`` where only these were."""
    return str(comparison.n_elements) if comparison.n_compared is None else f"{comparison.n_compared} compared"


def _worst(comparison: Comparison) -> str:
    """``[0, 7]: got 1.5, expected 1``."""
    got, expected = element(comparison.worst_actual), element(comparison.worst_expected)
    return f"{place(comparison.worst_index)}: got {got}, expected {expected}"


def _worst_error(comparison: Comparison) -> tuple[float, float]:
    """(error, floor) at the worst place. The floor follows from the expected value where that is a finite number;
    otherwise (a floor of zero gives an infinite ratio) the largest error stands in."""
    try:
        expected = abs(complex(comparison.worst_expected.replace(" ", "")))
    except ValueError:
        expected = math.nan
    floor = comparison.noise + comparison.eps * expected
    if math.isfinite(floor) and floor > 0 and math.isfinite(comparison.worst_ratio):
        return comparison.worst_ratio * floor, floor
    error = comparison.max_abs_error
    return error, error / comparison.worst_ratio if comparison.worst_ratio else 0.0


def count_beyond(comparison: Comparison, allowed: float) -> tuple[int, str]:
    """(elements beyond, "" or "at least "): counts exist for powers of two, between them the next is a lower bound."""
    exponent = max(0, math.ceil(math.log2(allowed))) if allowed > 0 else 0
    n_beyond = comparison.ratio_counts[exponent] if exponent < len(comparison.ratio_counts) else 0
    if n_beyond == 0:
        return 1, "at least "  # the worst element itself is beyond
    return n_beyond, "" if 2.0**exponent == allowed else "at least "


def masks(case: Case, measurement: Measurement, header: RunHeader, thresholds: Thresholds) -> Iterator[Finding]:
    """NUM202, NUM203: NaN and Inf stand where the reference has them, and nowhere else."""
    for comparison in judged(measurement):
        placed = described(comparison.wrong, case, comparison)
        placed = f"; wrong elements of any kind{placed}" if placed else ""
        for code, what, count in (
            ("NUM202", "NaN", comparison.n_nan_mismatch),
            ("NUM203", "Inf", comparison.n_inf_mismatch),
        ):
            if count:
                where = ""
                if comparison.worst_actual != comparison.worst_expected and not _finite(comparison):
                    where = f"; at {_worst(comparison)}"
                yield Finding(
                    code,
                    "divergent",
                    f"{comparison.name} has {what} where the reference has none, or the reverse, "
                    f"in {count} of {comparison.n_elements} elements{where}{placed}",
                    {
                        "output": comparison.name,
                        "n_different": count,
                        "n_elements": comparison.n_elements,
                        **_anatomy(case, comparison),
                    },
                )


def _finite(comparison: Comparison) -> bool:
    texts = (comparison.worst_actual.lower(), comparison.worst_expected.lower())
    return not any("nan" in text or "inf" in text for text in texts)


def exact(case: Case, measurement: Measurement, header: RunHeader, thresholds: Thresholds) -> Iterator[Finding]:
    """NUM204: integers, booleans and copied bits are equal or wrong."""
    for comparison in judged(measurement):
        if comparison.standard == "exact" and comparison.n_different:
            yield Finding(
                "NUM204",
                "divergent",
                f"{comparison.name} must be bit for bit that of the CPU and differs in {comparison.n_different} of "
                f"{comparison.n_elements} elements{described(comparison.wrong, case, comparison)}; "
                f"at {_worst(comparison)}",
                {
                    "output": comparison.name,
                    "n_different": comparison.n_different,
                    "n_elements": comparison.n_elements,
                    "max_abs_error": comparison.max_abs_error,
                    **_anatomy(case, comparison),
                },
            )


def metadata(case: Case, measurement: Measurement, header: RunHeader, thresholds: Thresholds) -> Iterator[Finding]:
    """NUM205 shape and dtype; NUM206 stride, a note: values are where they belong, and a later view may copy."""
    for comparison in judged(measurement):
        expected, actual = comparison.expected, comparison.actual
        if expected is not None and actual is not None:
            yield from _fact_findings(comparison.name, expected, actual, comparison.layout in ("view", "strides"))
        elif (expected is None) != (actual is None) and comparison.standard != "metadata":
            there, missing = ("the reference", "the device") if actual is None else ("the device", "the reference")
            yield Finding(
                "NUM205",
                "divergent",
                f"{there} returns {comparison.name} and {missing} does not",
                {"output": comparison.name},
            )


def _fact_findings(name: str, expected: TensorFact, actual: TensorFact, promised: bool) -> Iterator[Finding]:
    """Strides that are ``promised`` are judged by NUM215."""
    data = {"output": name}
    if expected.sizes != actual.sizes or expected.dtype != actual.dtype:
        yield Finding(
            "NUM205",
            "divergent",
            f"{name} is {actual.dtype}{place(actual.sizes)}, expected {expected.dtype}{place(expected.sizes)}",
            data,
        )
    elif meaningful_strides(expected) != meaningful_strides(actual) and not promised:
        yield Finding(
            "NUM206",
            "supported",
            f"{name} has strides {place(actual.strides)}, the CPU gives {place(expected.strides)}",
            data,
        )


def meaningful_strides(fact: TensorFact) -> tuple[int, ...]:
    """The strides that place an element: those of sizes above 1, none at all in an empty tensor."""
    if 0 in fact.sizes:
        return ()
    return tuple(stride for size, stride in zip(fact.sizes, fact.strides, strict=False) if size > 1)


def not_compared(case: Case, measurement: Measurement, header: RunHeader, thresholds: Thresholds) -> Iterator[Finding]:
    """NUM211, a note: an output whose values are free (random numbers, uninitialised memory) or have no reference."""
    for comparison in judged(measurement):
        if comparison.standard == "metadata" and comparison.distribution is None:
            yield Finding(
                "NUM211",
                "supported",
                f"{comparison.name}: only shape, dtype and stride were compared"
                + (f": {comparison.why}" if comparison.why else ""),
                {"output": comparison.name},
            )
