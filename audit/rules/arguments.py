"""What rules ask of a case: the dtypes of its tensors, the ops that it is known under, what its calls launched."""

from __future__ import annotations

from audit.codec import tensors_of
from audit.schema import Case, Measurement, Named

#: What copies between host and device is bound by the bus: neither memory nor the CPU's own copy is a yardstick.
_TRANSFERS = ("_to_copy", "copy_", "_pin_memory")


def dtypes_of(case: Case) -> tuple[str, ...]:
    """The dtypes of its tensor arguments and gradients, each once, in order of appearance."""
    return tuple(dict.fromkeys(spec.dtype for spec in tensors_of(case.args, case.kwargs, case.grads)))


def n_calls_seen(measurement: Measurement) -> int:
    """The calls that kernels and copies are of together, at least one."""
    return max(measurement.path.n_calls, 1)


def launches_a_call(measurement: Measurement) -> float:
    """Kernels that one call launched, on average, as far as they were seen."""
    return sum(kernel.count for kernel in measurement.path.kernels) / n_calls_seen(measurement)


def kernels_us(measurement: Measurement) -> float:
    """Device time of the kernels of one call, on average."""
    return sum(kernel.us for kernel in measurement.path.kernels) / n_calls_seen(measurement)


def ops_of(case: Case, measurement: Measurement | None) -> tuple[str, ...]:
    """The op itself and, where the path was seen, the ops that ran inside."""
    return (case.op, *(measurement.path.chosen_ops if measurement is not None else ()))


def is_transfer(case: Case) -> bool:
    """Whether the case moves data between host and device."""
    if case.op.split("::")[-1].split(".")[0] not in _TRANSFERS:
        return False
    to_host = Named("device", "cpu") in (*case.args, *(value for _, value in case.kwargs))
    return to_host or any(spec.host for spec in tensors_of(case.args, case.kwargs))
