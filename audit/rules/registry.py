"""Every rule, in the order in which findings are shown. A new rule is one line here.

Most read one case and its measurement; some need the whole run, or another device's times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

from audit.rules import (
    accuracy,
    chosen_path,
    drift,
    elsewhere,
    host_traffic,
    inconclusive,
    kernel_records,
    layout,
    memory,
    messages,
    random_numbers,
    repeatability,
    roundings,
    speed,
    stray_dtype,
    support,
    whole_output,
)
from audit.rules.thresholds import Thresholds
from audit.run_records import Run, RunHeader
from audit.schema import Case, DeviceTimes, Measurement
from audit.verdicts import CaseRule, Finding

Rule: TypeAlias = Callable[[Case, Measurement, RunHeader, Thresholds], Iterator[Finding]]
#: Looks at the whole run once, with what its cases took on another device, and judges a case by what it saw there.
RunRule: TypeAlias = Callable[[Run, DeviceTimes | None, Thresholds], CaseRule]

RULES: tuple[Rule, ...] = (
    support.raised,
    support.crashed,
    support.hung,
    support.poisons,
    memory.damaged_inputs,
    memory.outside_operands,
    memory.unwritten,
    accuracy.metadata,
    layout.promised,
    accuracy.masks,
    accuracy.exact,
    accuracy.beyond_allowance,
    roundings.coarser,
    roundings.coarse_parts,
    roundings.scaled,
    roundings.misrounded,
    whole_output.sketched,
    random_numbers.another_law,
    repeatability.not_repeated,
    host_traffic.round_trip,
    chosen_path.chosen_op,
    chosen_path.kernel_names,
    chosen_path.lesser_blas,
    messages.said,
    speed.slower_than_cpu,
    speed.far_from_the_limit,
    speed.first_call,
    accuracy.doubted,
    inconclusive.reference_failed,
    inconclusive.device_not_judged,
    inconclusive.nothing_compared,
    accuracy.not_compared,
    kernel_records.not_seen,
    kernel_records.unexplained,
)

RUN_RULES: tuple[RunRule, ...] = (
    stray_dtype.stray_dtypes,
    elsewhere.slower_than_elsewhere,
    drift.wrong_in_step,
)
