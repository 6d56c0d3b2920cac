"""FBK306: whether the kernels that are told are all that ran: who looked, and what the time between events says."""

from __future__ import annotations

from collections.abc import Iterator

from audit.rules.arguments import kernels_us, launches_a_call, n_calls_seen
from audit.rules.speed import launch_or_guess_us
from audit.rules.thresholds import Thresholds
from audit.rules.wording import duration, plural
from audit.run_records import Run, RunHeader
from audit.schema import IMPORTED, Case, Measurement, Timing
from audit.verdicts import Finding

#: Kernels and copies that explain less than this share of the time between the events are not all that ran.
EXPLAINED_FRACTION = 0.5
#: Kernels beside each other on several streams, and clocks that differ from run to run, stay below this.
OVERLAP_FACTOR = 2.0
#: More cases than this without a complete path make a remark on the whole run.
UNSEEN_FRACTION = 0.1
#: So many launches long must the time be: below it the cost of the events is most of it.
MIN_LAUNCHES = 4


def not_seen(case: Case, measurement: Measurement, header: RunHeader, thresholds: Thresholds) -> Iterator[Finding]:
    """FBK306, a note: that no fallback was found says less where nobody looked."""
    if measurement.device.kind != "ok" or measurement.path.complete:
        return
    n_unseen = case.n_calls - measurement.path.n_calls
    if header.source.kind == IMPORTED and n_unseen > 0:
        why = f"{n_unseen} of {case.n_calls} calls have no record of the device"
    else:
        why = "the observer had not passed its self-test" if measurement.path.observed else "no observer ran"
    yield Finding("FBK306", "supported", f"the path was not fully seen: {why}", {"observed": measurement.path.observed})


def unexplained(case: Case, measurement: Measurement, header: RunHeader, thresholds: Thresholds) -> Iterator[Finding]:
    """FBK306, a note: kernels explain less than half of the time, or are far longer than it. Never a fallback.

    Judged where the device did not wait for the host and the profiler's markers were seen: then the time has no gaps.
    """
    path, time = measurement.path, measurement.device_time
    if header.source.kind == IMPORTED or measurement.device.kind != "ok" or not path.complete or time is None:
        return
    launch_us = launch_or_guess_us(header, thresholds)
    if not host_was_ahead(time) or path.moved_us is None or time.median_us < MIN_LAUNCHES * launch_us:
        return
    seen_us = kernels_us(measurement) + path.moved_us / n_calls_seen(measurement)
    launches_us = launch_us * launches_a_call(measurement)
    data = {"kernel_us": seen_us, "device_us": time.median_us}
    if seen_us + launches_us < EXPLAINED_FRACTION * time.median_us:
        message = f"explain {duration(seen_us)} of {duration(time.median_us)}: records may be missing"
        yield Finding("FBK306", "supported", f"the path was not fully seen: the kernels {message}", data)
    elif seen_us > OVERLAP_FACTOR * time.median_us + launches_us:
        message = f"{duration(seen_us)} of kernels ran in {duration(time.median_us)}"
        yield Finding("FBK306", "supported", f"{message}: beside each other, or slower under the profiler", data)


def unseen_cases(run: Run) -> Iterator[Finding]:
    """FBK306 of the run: of more than a tenth of the cases that ran on a GPU the path is not known."""
    if run.header.device.backend not in ("hip", "cuda") or run.header.source.kind == IMPORTED:
        return
    ran = [measurement for measurement in run.measurements.values() if measurement.device.kind == "ok"]
    unseen = sum(not measurement.path.complete for measurement in ran)
    if unseen > UNSEEN_FRACTION * len(ran):
        yield Finding(
            "FBK306",
            "supported",
            f"the profiler did not vouch for what it saw of {unseen} of the {plural(len(ran), 'case')} that ran: a "
            "fallback may be hidden there",
            {"n_cases": unseen, "n_ran": len(ran), "remedy": "rocm-audit doctor --selftest"},
        )


def host_was_ahead(time: Timing) -> bool:
    """Whether the host had issued the whole call before the device came to it, so that the device did not wait."""
    if time.host_us is None or time.lead_us is None or time.waits:
        return False
    return time.host_us < time.lead_us
