"""Two devices side by side, by kind of call: what the difference costs a step.

The rows are shown, and judge nothing; what SPD405 judges by is ``times_by_kind``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from audit.codec import contiguous_strides, signature_text
from audit.knowledge.kernels import classify_kernel
from audit.knowledge.signatures import overloads_of
from audit.rules.chosen_path import heaviest_kernel
from audit.rules.kind_of_call import kind_of_call
from audit.run_records import Run
from audit.schema import Arg, Case, Phase, TensorSpec, Timing
from audit.verdicts import SideBySide, SideRow

#: Op, phase and signature, in what all ops of that kind of call have in common. Strides are left out: devices lay out
#: what they compute as they like.
_Kind: TypeAlias = tuple[str, Phase, str]


@dataclass
class _Calls:
    """All calls of a kind in one run; ``us`` is their device time, ``heaviest_us`` that of the case that names it.

    ``op`` and ``signature`` are this run's own.
    """

    op: str
    signature: str
    keys: list[str] = field(default_factory=list)
    n_calls: int = 0
    us: float = 0.0
    iqr_us: float = 0.0
    n_timed: int = 0
    library: str | None = None
    heaviest_us: float = -1.0


def side_by_side(here: Run, there: Run) -> SideBySide:
    """Rows by falling cost: what this device loses most to the other comes first, what it gains most comes last."""
    ours, theirs = _kinds(here), _kinds(there)
    n_ours, n_theirs = here.header.source.n_steps or 1, there.header.source.n_steps or 1
    rows = (_row(kind, ours.get(kind), theirs.get(kind), n_ours, n_theirs) for kind in {**ours, **theirs})
    ranked = sorted(rows, key=lambda row: (-row.cost_us, row.op, row.signature))
    return SideBySide(
        other=there.header,
        rows=tuple(row for row in ranked if row.n_here and row.n_there),
        only_here=tuple(row for row in ranked if not row.n_there),
        only_there=tuple(row for row in reversed(ranked) if not row.n_here),
        here_step_us=sum(calls.us for calls in ours.values()) / n_ours,
        there_step_us=sum(calls.us for calls in theirs.values()) / n_theirs,
    )


def times_by_kind(here: Run, there: Run) -> dict[str, Timing]:
    """What the cases of ``here`` took in ``there``, by key: the mean of the calls of their kind, with the widest spread
    among its cases."""
    theirs, found = _kinds(there), {}
    for kind, ours in _kinds(here).items():
        if (calls := theirs.get(kind)) is not None:
            timing = Timing(calls.us / calls.n_calls, calls.iqr_us, calls.n_timed)
            found.update(dict.fromkeys(ours.keys, timing))
    return found


def _row(kind: _Kind, ours: _Calls | None, theirs: _Calls | None, n_ours: int, n_theirs: int) -> SideRow:
    op, phase, signature = kind
    ours, theirs = ours or _Calls(op, signature), theirs or _Calls(op, signature)
    named = ours if ours.n_calls else theirs
    return SideRow(
        op=named.op,
        phase=phase,
        signature=named.signature,
        keys=tuple(ours.keys),
        n_here=ours.n_calls,
        n_there=theirs.n_calls,
        here_us=ours.us / ours.n_calls if ours.n_calls else None,
        there_us=theirs.us / theirs.n_calls if theirs.n_calls else None,
        cost_us=ours.us / n_ours - theirs.us / n_theirs,
        here_library=ours.library,
        there_library=theirs.library,
    )


def _kinds(run: Run) -> dict[_Kind, _Calls]:
    """The timed cases of a run, those of one kind together."""
    found: dict[_Kind, _Calls] = {}
    for case, us, time, library in _timed(run):
        args = tuple(_without_strides(arg) for arg in case.args)
        kwargs = tuple((name, _without_strides(arg)) for name, arg in sorted(case.kwargs, key=lambda item: item[0]))
        its_own = signature_text(args, kwargs, case.grads, case.settings)
        name, taken = kind_of_call(case.op.partition(".")[0], _with_defaults(case.op, args))
        kind = (name, case.phase, signature_text(taken, kwargs, case.grads, case.settings))
        calls = found.setdefault(kind, _Calls(case.op, its_own))
        calls.keys.append(case.key)
        calls.n_calls += case.n_calls
        calls.us += us
        calls.iqr_us = max(calls.iqr_us, time.iqr_us)
        calls.n_timed += time.n
        if us > calls.heaviest_us:
            calls.library, calls.heaviest_us = library, us
    return found


def _timed(run: Run) -> Iterator[tuple[Case, float, Timing, str | None]]:
    for case in run.cases:
        measurement = run.measurements.get(case.key)
        time = measurement.device_time if measurement is not None else None
        if measurement is None or time is None:
            continue
        kernel = heaviest_kernel(measurement)
        us = time.total_us if time.total_us is not None else time.median_us * case.n_calls
        yield case, us, time, classify_kernel(kernel.name).library if kernel is not None else None


def _with_defaults(op: str, args: tuple[Arg, ...]) -> tuple[Arg, ...]:
    """A tracer leaves out what is as it would be without; a profiler writes it down."""
    parameters = [one for one in overloads_of(op.partition(".")[0]).get(op, ()) if not one.by_keyword]
    left_out = parameters[len(args) :]
    return (*args, *(one.default for one in left_out)) if all(one.has_default for one in left_out) else args


def _without_strides(arg: Arg) -> Arg:
    if isinstance(arg, TensorSpec):
        return replace(arg, strides=contiguous_strides(arg.sizes), offset=0)
    return tuple(_without_strides(item) for item in arg) if isinstance(arg, tuple) else arg
