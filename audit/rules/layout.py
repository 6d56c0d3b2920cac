"""NUM215: an output that lies elsewhere in memory than its op promises, or with other strides."""

from __future__ import annotations

from collections.abc import Iterator

from audit.comparison import Comparison, Layout, TensorFact
from audit.rules.accuracy import meaningful_strides
from audit.rules.thresholds import Thresholds
from audit.rules.wording import place
from audit.run_records import RunHeader
from audit.schema import Case, Measurement
from audit.verdicts import Finding


def promised(case: Case, measurement: Measurement, header: RunHeader, thresholds: Thresholds) -> Iterator[Finding]:
    """NUM215: a view is a view of the same operand at the same place; another output has memory of its own; strides
    are those that a memory format, an argument or the rule of elementwise ops gives."""
    if measurement.device.kind != "ok" or measurement.n_damaged_inputs:
        return
    for comparison in measurement.comparisons:
        expected, actual = comparison.expected, comparison.actual
        if not comparison.layout or expected is None or actual is None or expected.sizes != actual.sizes:
            continue
        problems = [_memory(comparison.layout, expected, actual), _strides(comparison, expected, actual)]
        if any(problems):
            yield Finding(
                "NUM215",
                "divergent",
                f"{comparison.name} {'; it '.join(problem for problem in problems if problem)}",
                {"output": comparison.name, "alias": actual.alias, "expected_alias": expected.alias},
            )


def _memory(layout: Layout, expected: TensorFact, actual: TensorFact) -> str:
    if expected.alias == actual.alias and expected.alias_bytes == actual.alias_bytes:
        return ""
    if layout != "view" and expected.alias:
        return ""  # a shortcut of the CPU's, which hands an operand on: nothing is promised
    if not actual.alias:
        return f"is no view of {expected.alias}: it has memory of its own, and what is written to one misses the other"
    if expected.alias != actual.alias:
        wanted = f"that of {expected.alias}" if expected.alias else "memory of its own"
        return f"lies in the memory of {actual.alias}, expected {wanted}: what is written to one changes the other"
    return f"begins {actual.alias_bytes} bytes behind {actual.alias}, expected {expected.alias_bytes}"


def _strides(comparison: Comparison, expected: TensorFact, actual: TensorFact) -> str:
    if comparison.layout == "own" or meaningful_strides(expected) == meaningful_strides(actual):
        return ""
    return f"has strides {place(actual.strides)}, expected {place(expected.strides)}"
