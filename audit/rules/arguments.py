"""What rules ask of a case: the dtypes of its tensors, the ops that it is known under, the calls seen."""

from __future__ import annotations

from audit.codec import tensors_of
from audit.schema import Case, Measurement


def dtypes_of(case: Case) -> tuple[str, ...]:
    """The dtypes of its tensor arguments and gradients, each once, in order of appearance."""
    return tuple(dict.fromkeys(spec.dtype for spec in tensors_of(case.args, case.kwargs, case.grads)))


def n_calls_seen(measurement: Measurement) -> int:
    """The calls that kernels and copies are of together, at least one."""
    return max(measurement.path.n_calls, 1)


def ops_of(case: Case, measurement: Measurement | None) -> tuple[str, ...]:
    """The op itself and, where the path was seen, the ops that ran inside."""
    return (case.op, *(measurement.path.chosen_ops if measurement is not None else ()))
