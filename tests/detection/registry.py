"""Every fault of this package: those of the field reports, those that nobody reported, and the reports without one."""

from __future__ import annotations

from tests.detection import (
    invented_calls,
    invented_elementwise,
    invented_factors,
    invented_indexing,
    invented_memory,
    invented_networks,
    invented_parts,
    invented_random,
    invented_reductions,
    invented_values,
    reported_failures,
    reported_sizes,
    reported_strides,
    reported_values,
)
from tests.detection.fault import Fault
from tests.detection.reported_unseen import UNSEEN

REPORTED: tuple[Fault, ...] = (
    *reported_strides.FAULTS,
    *reported_sizes.FAULTS,
    *reported_values.FAULTS,
    *reported_failures.FAULTS,
)
INVENTED: tuple[Fault, ...] = (
    *invented_elementwise.FAULTS,
    *invented_reductions.FAULTS,
    *invented_indexing.FAULTS,
    *invented_random.FAULTS,
    *invented_factors.FAULTS,
    *invented_values.FAULTS,
    *invented_memory.FAULTS,
    *invented_parts.FAULTS,
    *invented_networks.FAULTS,
    *invented_calls.FAULTS,
)

BY_NAME = {fault.name: fault for fault in (*REPORTED, *INVENTED)}

__all__ = ["BY_NAME", "INVENTED", "REPORTED", "UNSEEN"]
