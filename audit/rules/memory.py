"""NUM207, NUM209, NUM210: elements never written, memory written outside the operands, inputs damaged on the way."""

from __future__ import annotations

from collections.abc import Iterator

from audit.knowledge.tables import matches
from audit.rules.places import described, places_data
from audit.rules.thresholds import Thresholds
from audit.rules.wording import place, plural
from audit.run_records import RunHeader
from audit.schema import Case, Measurement
from audit.verdicts import Finding

#: Ops whose outputs hold what was there before, by their documentation.
UNINITIALISED = (
    "aten::empty*",
    "aten::new_empty*",
    "aten::_empty_affine_quantized*",
    "aten::resize_*",
    "aten::*_resize_*",
)


def unwritten(case: Case, measurement: Measurement, header: RunHeader, thresholds: Thresholds) -> Iterator[Finding]:
    """NUM207: an element that followed the fill of fresh memory in two runs was never written."""
    if measurement.device.kind != "ok" or matches(case.op, UNINITIALISED):
        return
    for comparison in measurement.comparisons:
        if comparison.n_unwritten:
            yield Finding(
                "NUM207",
                "divergent",
                f"{comparison.name}: {comparison.n_unwritten} of {comparison.n_elements} elements were never written, "
                f"the first at {place(comparison.first_unwritten)}{described(comparison.unwritten, case, comparison)}; "
                "they hold what was in memory before",
                {
                    "output": comparison.name,
                    "n_unwritten": comparison.n_unwritten,
                    "n_elements": comparison.n_elements,
                    **places_data(comparison.unwritten, case, comparison),
                },
            )


def outside_operands(
    case: Case, measurement: Measurement, header: RunHeader, thresholds: Thresholds
) -> Iterator[Finding]:
    """NUM209: a guard band beside an operand was written."""
    if measurement.guards_broken:
        yield Finding(
            "NUM209",
            "divergent",
            f"wrote outside its operands: the memory beside {', '.join(measurement.guards_broken)} was changed",
            {"n_operands": len(measurement.guards_broken)},
        )


def damaged_inputs(
    case: Case, measurement: Measurement, header: RunHeader, thresholds: Thresholds
) -> Iterator[Finding]:
    """NUM210: blamed on the copy, not on the op, whose numbers are then not judged."""
    if measurement.n_damaged_inputs:
        yield Finding(
            "NUM210",
            "divergent",
            f"the copy to the device changed {plural(measurement.n_damaged_inputs, 'operand')} before the op ran; "
            "this is the copy's fault, the op's own numbers were not judged",
            {"n_damaged_inputs": measurement.n_damaged_inputs},
        )
