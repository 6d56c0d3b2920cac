"""What two traces have in common, case by case."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from audit.codec import signature_text
from audit.schema import Case, Trace


@dataclass(frozen=True)
class CaseDifference:
    """A case that the two traces call a different number of times; 0 is a case that one of them lacks."""

    key: str
    op: str
    phase: str
    signature: str
    n_calls_a: int
    n_calls_b: int


@dataclass(frozen=True)
class OpDifference:
    """The cases of one op: in one trace alone, in both with other counts, in both with the same."""

    op: str
    n_only_a: int
    n_only_b: int
    n_other_counts: int
    n_equal: int


@dataclass(frozen=True)
class Difference:
    """Two traces side by side. Equal are those that recorded the same calls as often, and left out the same.

    Where they ran (``environment``, by name) and what values they saw do not count: two runs of one program on two
    machines are equal traces.
    """

    cases: tuple[CaseDifference, ...]
    ops: tuple[OpDifference, ...]
    not_audited: tuple[tuple[str, str, int, int], ...]
    environment: Mapping[str, tuple[str, str]]
    n_equal: int

    @property
    def is_equal(self) -> bool:
        return not self.cases and not self.not_audited


def difference(a: Trace, b: Trace) -> Difference:
    """Cases by op and key; ops with the most differing cases first."""
    in_a, in_b = ({case.key: case for case in trace.cases} for trace in (a, b))
    differing: list[CaseDifference] = []
    kinds: dict[str, Counter[str]] = {}
    for key in {**in_a, **in_b}:
        one = _compared(in_a.get(key), in_b.get(key))
        kinds.setdefault(one.op, Counter())[_kind(one)] += 1
        if one.n_calls_a != one.n_calls_b:
            differing.append(one)
    ops = [
        OpDifference(op, n["only a"], n["only b"], n["other counts"], n["equal"])
        for op, n in kinds.items()
        if n.total() > n["equal"]
    ]
    return Difference(
        cases=tuple(sorted(differing, key=lambda one: (one.op, one.key))),
        ops=tuple(sorted(ops, key=lambda op: (-(op.n_only_a + op.n_only_b + op.n_other_counts), op.op))),
        not_audited=_not_audited(a, b),
        environment={
            name: (a.environment.get(name, ""), b.environment.get(name, ""))
            for name in sorted({*a.environment, *b.environment})
            if a.environment.get(name) != b.environment.get(name)
        },
        n_equal=sum(n["equal"] for n in kinds.values()),
    )


def _compared(a: Case | None, b: Case | None) -> CaseDifference:
    case = a or b
    assert case is not None, "one of them has the key"
    return CaseDifference(
        case.key,
        case.op,
        case.phase,
        signature_text(case.args, case.kwargs, case.grads, case.settings),
        a.n_calls if a is not None else 0,
        b.n_calls if b is not None else 0,
    )


def _kind(one: CaseDifference) -> str:
    if one.n_calls_a == one.n_calls_b:
        return "equal"
    return "only a" if not one.n_calls_b else "only b" if not one.n_calls_a else "other counts"


def _not_audited(a: Trace, b: Trace) -> tuple[tuple[str, str, int, int], ...]:
    """(what, reason, times in a, times in b) where the two differ; calls, or things seen that are none."""
    in_a, in_b = (
        {(item.what, item.reason): item.n_calls + item.n_seen for item in trace.not_audited} for trace in (a, b)
    )
    both = sorted({*in_a, *in_b})
    counted = [(*item, in_a.get(item, -1), in_b.get(item, -1)) for item in both]
    return tuple((what, reason, max(m, 0), max(n, 0)) for what, reason, m, n in counted if m != n)
