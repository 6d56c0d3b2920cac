"""One signature while the program runs, and the cases that it becomes when the trace is built."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from audit.codec import case_key
from audit.device.steering import InForce
from audit.schema import Case, Phase, TensorSpec, Values
from audit.tracer.backward import CompositeCall
from audit.tracer.host_arguments import with_host_arguments
from audit.tracer.signature import Folded, call_to_args, to_arg
from audit.tracer.values import KeptCall, Span


@dataclass
class Record:
    """One signature while the program runs.

    ``n_missed``: calls below a composite that should have been recorded. ``inside``: calls that an op of the program's
    own made, by its name. ``looked_at``: whether the values of the latest call were.
    """

    func: Any
    op: str
    folded: Folded
    phase: Phase
    on_accelerator: bool
    settings: InForce = ()
    n_tensors: int = 0
    n_calls: int = 0
    n_recomputed: int = 0
    n_missed: int = 0
    looked_at: bool = False
    modules: Counter[str] = field(default_factory=Counter)
    sources: Counter[str] = field(default_factory=Counter)
    inside: Counter[str] = field(default_factory=Counter)
    kept: KeptCall = field(default_factory=KeptCall)
    kept_grads: dict[tuple[int, Folded], KeptCall] = field(default_factory=dict)  # each form of a gradient apart
    with_backward: list[CompositeCall] = field(default_factory=list)


def record_key(func: Any, phase: Phase, on_accelerator: bool, folded: Folded, settings: InForce) -> Hashable:
    """Calls with equal keys are counted in one record."""
    return func, phase, on_accelerator, folded, settings


def cases_of(record: Record) -> Iterator[tuple[Case, dict[int, Span]]]:
    """The cases of one record: forward alone, and one for each distinct set of gradients that arrived."""
    variants: Counter[tuple[Folded, ...] | None] = Counter(
        tuple(call.grads.get(i) for i in range(call.n_outputs)) for call in record.with_backward if call.grads
    )
    n_forward_only = record.n_calls - sum(variants.values())
    if n_forward_only:
        variants[None] += n_forward_only
    n_recomputed = record.n_recomputed
    for grads, n_calls in variants.items():
        # Which variant a recomputed call belongs to is not kept; it is counted once, with those that had a gradient.
        yield _case(record, grads, n_calls, min(n_calls, n_recomputed))
        n_recomputed -= min(n_calls, n_recomputed)


def _case(
    record: Record, folded_grads: tuple[Folded, ...] | None, n_calls: int, n_recomputed: int
) -> tuple[Case, dict[int, Span]]:
    args, kwargs = call_to_args(record.folded)
    args = with_host_arguments(record.op, args)
    values, spans = dict(record.kept.values), dict(record.kept.spans)
    grads: tuple[TensorSpec | None, ...] | None = None
    if folded_grads is not None:
        specs: list[TensorSpec | None] = []
        position = record.n_tensors
        for output, folded in enumerate(folded_grads):
            spec = to_arg(folded)
            if not isinstance(spec, TensorSpec):
                specs.append(None)
                continue
            specs.append(dataclasses.replace(spec, storage=position))
            kept = record.kept_grads.get((output, folded), KeptCall())
            if 0 in kept.values:
                values[position] = kept.values[0]
            if 0 in kept.spans:
                spans[position] = kept.spans[0]
            position += 1
        grads = tuple(specs)
    case = Case(
        key=case_key(record.op, args, kwargs, record.phase, grads, record.settings),
        op=record.op,
        args=args,
        kwargs=kwargs,
        phase=record.phase,
        grads=grads,
        settings=record.settings,
        n_calls=n_calls,
        modules=_places(record.modules),
        sources=_places(record.sources),
        values=_described(values, spans),
        n_recomputed=n_recomputed,
    )
    return case, spans


def _places(counted: Counter[str]) -> tuple[str, ...]:
    return tuple(place for place, _ in counted.most_common() if place)


def _described(values: Mapping[int, Values], spans: Mapping[int, Span]) -> dict[int, Values]:
    return {
        position: dataclasses.replace(value, stored=position in spans) for position, value in sorted(values.items())
    }


def folded_into(old: Case | None, new: Case) -> Case:
    """Equal cases from the accelerator and from the CPU, or from two overload spellings, become one."""
    if old is None:
        return new
    return dataclasses.replace(
        new,
        n_calls=old.n_calls + new.n_calls,
        n_recomputed=old.n_recomputed + new.n_recomputed,
        modules=tuple(dict.fromkeys(old.modules + new.modules)),
        sources=tuple(dict.fromkeys(old.sources + new.sources)),
    )
