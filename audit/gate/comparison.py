"""Case by case, what became of the baseline in the candidate. Pure: the same two sides give the same differences.

Every difference is held against the spread that a run shows of itself: both inter-quartile ranges of a time, and the
case run again as it was, where an alternative was looked for. What lies within it is flaky and no regression.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from audit.gate.policy import Kind, Policy
from audit.gate.side import CaseState, Side
from audit.rules.wording import duration
from audit.schema import DEVICE_STATUSES, Status

#: ``Difference.op`` of what is of no single case.
THE_RUN = "the run"


@dataclass(frozen=True)
class Difference:
    """One thing that is not as it was in one case. ``message`` is a sentence without the op's name.

    ``before`` and ``after`` are None where a side lacks the case. ``sources`` are lines of the program. ``cost_us`` is
    what all its calls take longer.
    """

    kind: Kind
    key: str
    op: str
    message: str
    before: Status | None
    after: Status | None
    phase: str = "forward"
    signature: str = ""
    sources: tuple[str, ...] = ()
    n_calls: int = 1
    cost_us: float = 0.0


def differences(baseline: Side, candidate: Side, policy: Policy) -> tuple[Difference, ...]:
    """Ordered by case, so that the order of lines in a run file is of no account."""
    old, new = ({case.key: case for case in side.cases} for side in (baseline, candidate))
    found: list[Difference] = []
    for key in sorted({*old, *new}):
        before, after = old.get(key), new.get(key)
        if before is not None and after is not None:
            found += _of_case(before, after, policy)
        elif after is not None:
            found.append(_difference("new", None, after, f"is not in the baseline, and is {_told(after)}"))
        elif before is not None:
            found.append(_difference("gone", before, None, f"was {_shown(before.status)}, and is not in the candidate"))
    return (*_of_run(baseline, candidate), *found)


def _of_run(baseline: Side, candidate: Side) -> Iterator[Difference]:
    """Causes of no single case, by code: ``run-NUM220``."""
    old, new = ({cause.code: cause for cause in reversed(side.causes)} for side in (baseline, candidate))
    for code in sorted({*old, *new}):
        before, after = old.get(code), new.get(code)
        if after is not None and before is None:
            kind: Kind = "inconclusive" if after.status == "inconclusive" else "regressed"
            yield Difference(kind, f"run-{code}", THE_RUN, f"is new: {after.message}", None, after.status)
        elif before is not None and after is None:
            yield Difference("fixed", f"run-{code}", THE_RUN, f"is no more: {before.message}", before.status, None)


def _of_case(before: CaseState, after: CaseState, policy: Policy) -> Iterator[Difference]:
    """What differs in a case that both have. Time and path of what raised are those of nothing.

    A case may be inconclusive for want of a reference, as all of a recording are, and its time and path be known.
    """
    status = _of_status(before, after)
    if status is not None:
        yield status
    elif set(after.codes) - set(before.codes):
        codes = ", ".join(sorted(set(after.codes) - set(before.codes)))
        yield _difference("other finding", before, after, f"is {_told(after)}, now with {codes}")
    if "unsupported" not in (before.status, after.status):
        yield from _of_time(before, after, policy)
        if status is None or status.kind not in ("regressed", "flaky"):  # which say what the error is
            yield from _of_error(before, after, policy)
        yield from _of_path(before, after)


def _of_status(before: CaseState, after: CaseState) -> Difference | None:
    if before.status == after.status:
        return None
    if after.status == "inconclusive":
        if after.is_left_out:
            return _difference("left out", before, after, f"was {_shown(before.status)}; not run: {after.reason}")
        return _difference("inconclusive", before, after, f"was {_shown(before.status)}, and is {_told(after)}")
    if before.status == "inconclusive":
        kind: Kind = "fixed" if after.status == "supported" else "regressed"
        return _difference(kind, before, after, f"was inconclusive, and is {_told(after)}")
    if _rank(after.status) < _rank(before.status):
        return _difference("fixed", before, after, f"was {_shown(before.status)}, and is {_told(after)}")
    if _is_within_spread(before, after):
        return _difference(
            "flaky", before, after, f"was {_shown(before.status)}, and is {_told(after)}; it did not repeat in one run"
        )
    return _difference("regressed", before, after, f"was {_shown(before.status)}, and is {_told(after)}")


def _is_within_spread(before: CaseState, after: CaseState) -> bool:
    """Whether a run of one side has seen in the case, run again as it was, what the other side's status is."""
    worst_before = max(_rank(status) for status in _device_statuses(before))
    best_after = min(_rank(status) for status in _device_statuses(after))
    return best_after <= worst_before


def _device_statuses(case: CaseState) -> Iterable[Status]:
    return [status for status in (case.status, *case.seen) if status != "inconclusive"]


def _rank(status: Status) -> int:
    return DEVICE_STATUSES.index(status)


def _of_time(before: CaseState, after: CaseState, policy: Policy) -> Iterator[Difference]:
    """Slower or faster by more than both spreads, the ratio and the floor."""
    if before.device_us is None or after.device_us is None:
        return
    spread_us = (before.iqr_us or 0.0) + (after.iqr_us or 0.0)
    if _is_slower(before.device_us, after.device_us, spread_us, policy):
        slowest_before, fastest_after = max((before.device_us, *before.seen_us)), min((after.device_us, *after.seen_us))
        is_steady = _is_slower(slowest_before, fastest_after, spread_us, policy)
        told = "" if is_steady else "; run again, it was not"
        if before.is_timed_once or after.is_timed_once:
            is_steady, told = False, "; timed once, so that its spread is not known"
        yield _difference("slower" if is_steady else "flaky", before, after, f"takes {_times(before, after)}{told}")
    elif _is_slower(before.device_us, after.device_us, 0.0, policy):
        yield _difference("flaky", before, after, f"takes {_times(before, after)}; within both spreads")
    elif _is_slower(after.device_us, before.device_us, spread_us, policy):
        yield _difference("faster", before, after, f"takes {_times(before, after)}")


def _is_slower(old_us: float, new_us: float, spread_us: float, policy: Policy) -> bool:
    more_us = new_us - old_us
    return more_us > spread_us and more_us > policy.slower_floor_us and new_us > policy.slower_ratio * old_us


def _times(before: CaseState, after: CaseState) -> str:
    """``1.2 ms, was 0.4 ms (3×, spread 12 µs); +2.4 ms over 3 calls``."""
    assert before.device_us is not None
    assert after.device_us is not None
    ratio = f"{after.device_us / before.device_us:.3g}×, " if before.device_us > 0 else ""
    spread = duration((before.iqr_us or 0.0) + (after.iqr_us or 0.0))
    cost_ms = _cost_us(before, after) / 1000
    calls = f"{after.n_calls} calls" if after.n_calls > 1 else "its call"
    return (
        f"{duration(after.device_us)}, was {duration(before.device_us)} ({ratio}spread {spread}); "
        f"{cost_ms:+.3g} ms over {calls}"
    )


def _of_error(before: CaseState, after: CaseState, policy: Policy) -> Iterator[Difference]:
    old, new = before.worst_ratio, after.worst_ratio
    if old is None or new is None or not _is_larger(old, new, policy):
        return
    is_steady = _is_larger(max((old, *before.seen_ratios)), min((new, *after.seen_ratios)), policy)
    told = "" if is_steady else "; run again, it was not larger"
    message = f"has an error of {new:.3g} times its noise floor, was {old:.3g} times{told}"
    yield _difference("less exact" if is_steady else "flaky", before, after, message)


def _is_larger(old: float, new: float, policy: Policy) -> bool:
    return new > policy.error_floor and new > policy.error_ratio * old


def _of_path(before: CaseState, after: CaseState) -> Iterator[Difference]:
    """Ops and libraries of one call are one difference: other ops have other kernels."""
    parts = []
    if _both_told(before.chosen_ops, after.chosen_ops):
        parts.append(f"the ops {_names(after.chosen_ops)}, before {_names(before.chosen_ops)}")
    if _both_told(before.libraries, after.libraries):
        parts.append(f"kernels of {_names(after.libraries)}, before of {_names(before.libraries)}")
    if parts:
        yield _difference("other path", before, after, f"ran {'; '.join(parts)}")


def _both_told(old: tuple[str, ...] | None, new: tuple[str, ...] | None) -> bool:
    """Whether both runs saw all that ran, and it was not the same."""
    return old is not None and new is not None and old != new


def _names(names: tuple[str, ...] | None) -> str:
    shown = ["an unknown library" if name == "unknown" else name for name in names or ()]
    return ", ".join(shown) or "none"


def _told(case: CaseState) -> str:
    """The status with its reason."""
    return f"{_shown(case.status)} ({case.reason})" if case.reason else _shown(case.status)


def _shown(status: Status) -> str:
    return status.replace("_", " ")


def _difference(kind: Kind, before: CaseState | None, after: CaseState | None, message: str) -> Difference:
    case = after or before
    assert case is not None, "one side has it"
    return Difference(
        kind=kind,
        key=case.key,
        op=case.op,
        message=message,
        before=before.status if before is not None else None,
        after=after.status if after is not None else None,
        phase=case.phase,
        signature=case.signature,
        sources=case.sources,
        n_calls=case.n_calls,
        cost_us=_cost_us(before, after),
    )


def _cost_us(before: CaseState | None, after: CaseState | None) -> float:
    if before is None or after is None or before.device_us is None or after.device_us is None:
        return 0.0
    return (after.device_us - before.device_us) * after.n_calls
