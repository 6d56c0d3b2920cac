"""INC9xx: what the audit cannot say, and why. About us, never about the device."""

from __future__ import annotations

import math
from collections.abc import Iterator

from audit.knowledge.tables import matches
from audit.rules.thresholds import Thresholds
from audit.rules.wording import ending, first_line
from audit.run_records import Run, RunHeader
from audit.schema import IMPORTED, Case, Measurement, Outcome
from audit.verdicts import Finding

#: Ops that return nothing and change nothing, so that there is nothing to compare.
VACUOUS = (
    "aten::_assert_*",
    "aten::record_stream.*",
    "aten::_functional_assert_*",
    "aten::sym_constrain_*",
    "aten::_linalg_check_errors.*",
    "aten::_validate_*",
)


def _finding(code: str, message: str) -> Finding:
    return Finding(code, "inconclusive", message)


def reference_failed(
    case: Case, measurement: Measurement, header: RunHeader, thresholds: Thresholds
) -> Iterator[Finding]:
    """INC901 invalid input, INC902 no reference, INC903 memory, INC906 our fault, INC907 the reference died, INC913
    imported."""
    outcome = measurement.reference
    text = first_line(outcome.message)
    if header.source.kind == IMPORTED and outcome.kind == "not_run":
        yield _finding("INC913", "numbers were not compared: nothing was replayed, another tool has measured this")
    elif outcome.kind == "raised" and not outcome.missing_kernel:
        yield _finding("INC901", f"invalid input: the CPU raised {outcome.error_type or 'an error'}: {text}")
    elif outcome.kind == "raised":
        yield _finding("INC902", f"the CPU has no kernel for this case, so the numbers have no reference: {text}")
    elif outcome.kind == "out_of_memory":
        yield _finding("INC903", f"host memory ran out in the reference: {text}")
    elif outcome.kind in ("crashed", "hung"):
        what = f"died {ending(outcome.signal, outcome.exit_code)}" if outcome.kind == "crashed" else "did not answer"
        yield _finding("INC907", f"the reference {what} on the CPU" + (f": {text}" if text else ""))
    elif outcome.kind == "not_run" and (measurement.device.kind != "not_run" or outcome.message):
        yield from _not_run(outcome, "the reference was not run")


def device_not_judged(
    case: Case, measurement: Measurement, header: RunHeader, thresholds: Thresholds
) -> Iterator[Finding]:
    """INC903 memory, INC904 device lost, INC905 budget, INC906 our fault, INC908 a failure not repeated."""
    outcome = measurement.device
    text = first_line(outcome.message)
    if outcome.kind == "out_of_memory":
        yield _finding("INC903", f"device memory ran out: {text}")
    elif outcome.kind == "ok" and outcome.confirmed is False:
        story = next((note for note in measurement.notes if "fresh process" in note), "it failed, and passed alone")
        yield _finding("INC908", f"the first failure did not come back, an earlier op may have caused it: {story}")
    elif outcome.kind == "not_run" and _device_was_free(measurement.reference):
        yield from _not_run(outcome, "the device was not run")


def _device_was_free(reference: Outcome) -> bool:
    """Whether the device could have been run, so that its not running has a reason of its own."""
    return reference.kind == "ok" or reference.missing_kernel or (reference.kind == "not_run" and not reference.message)


def _not_run(outcome: Outcome, what: str) -> Iterator[Finding]:
    reason = first_line(outcome.message) or "no reason was recorded"
    if outcome.error_type:
        yield _finding("INC906", f"{what}, by a fault of the audit: {reason}")
    elif "budget" in reason.lower():
        yield _finding("INC905", f"{what}: {reason}")
    else:
        yield _finding("INC904", f"{what}: {reason}")


def nothing_compared(
    case: Case, measurement: Measurement, header: RunHeader, thresholds: Thresholds
) -> Iterator[Finding]:
    """INC909: both sides ran and an output was not compared, or gave no number. Silence is not support."""
    if measurement.device.kind != "ok" or measurement.reference.kind != "ok" or matches(case.op, VACUOUS):
        return
    if not measurement.comparisons:
        yield _finding("INC909", "; ".join(("the op ran on both sides and nothing was compared", *measurement.notes)))
    for comparison in measurement.comparisons:
        if comparison.standard != "metadata" and comparison.n_elements and not comparison.reference:
            yield _finding("INC909", f"{comparison.name} was not compared: the reference has no values for it")
        elif comparison.standard == "numeric" and math.isnan(comparison.worst_ratio):
            yield _finding("INC909", f"{comparison.name} has an error ratio that is not a number")


def never_measured(case: Case, run: Run) -> Finding:
    """The reason for a case that has neither measurement nor start."""
    if run.end is None:
        return _finding("INC911", "the audit was stopped before this case; go on with --resume")
    reason = first_line(run.end.reason)
    if run.end.complete:
        return _finding("INC906", "the run ended as complete without this case, a fault of the audit")
    if "budget" in reason.lower():
        return _finding("INC905", f"left out: {reason}")
    return _finding("INC904", f"left out: {reason or 'the run ended early and gives no reason'}")
