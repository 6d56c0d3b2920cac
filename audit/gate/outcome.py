"""The conclusion of a gate: passed, failed or not finished, with every difference and what the policy makes of it."""

from __future__ import annotations

import datetime
from collections import Counter
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from audit.errors import UsageError
from audit.gate.comparison import Difference, differences
from audit.gate.place import Anchor
from audit.gate.policy import DEFAULT_LEVELS, Level, Policy
from audit.gate.side import Side
from audit.gate.surroundings import (
    EnvironmentDifference,
    TraceDifference,
    check_comparable,
    environment_differences,
    trace_difference,
)
from audit.gate.waivers import Waiver
from audit.report.text import one_line, short_op
from audit.rules.speed import TIMED
from audit.rules.wording import plural

Conclusion: TypeAlias = Literal["passed", "failed", "not finished"]
#: Ops in the headline.
MAX_NAMED = 4
EXIT_CODES: dict[Conclusion, int] = {"passed": 0, "failed": 1, "not finished": 3}


@dataclass(frozen=True)
class Allowed:
    """What the gate was told to compare all the same."""

    other_evidence: bool = False
    other_gpu: bool = False
    incomplete: bool = False


@dataclass(frozen=True)
class Judged:
    """A difference with its level; ``waiver`` has accepted it, and ``level`` is then no longer ``fail``."""

    difference: Difference
    level: Level
    waiver: Waiver | None = None


@dataclass(frozen=True)
class GateOutcome:
    """What every form of the result shows. ``judged`` are failures first, then warnings, then notes.

    ``problems`` are failures that are of no case: waivers that expired or that nothing needed. ``remarks`` say what was
    not compared. ``anchor`` is where forms that need a place show what has none in the program, ``audit_version``
    is the gate's own.
    """

    conclusion: Conclusion
    headline: str
    baseline: Side
    candidate: Side
    policy: Policy
    environment: tuple[EnvironmentDifference, ...] = ()
    trace: TraceDifference | None = None
    judged: tuple[Judged, ...] = ()
    problems: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    anchor: Anchor = field(default_factory=Anchor)
    audit_version: str = ""

    @property
    def exit_code(self) -> int:
        return EXIT_CODES[self.conclusion]

    @property
    def n_same(self) -> int:
        """Cases of the candidate that no difference is about."""
        told = {item.difference.key for item in self.judged}
        return sum(case.key not in told for case in self.candidate.cases)


def gate(
    baseline: Side, candidate: Side, policy: Policy, today: datetime.date, allowed: Allowed = Allowed()
) -> GateOutcome:
    """Compares. Raises UsageError where the two cannot be compared, or the baseline would let everything pass."""
    check_comparable(baseline, candidate, allowed.other_evidence, allowed.other_gpu)
    if not baseline.cases or (baseline.incomplete and not allowed.incomplete):
        raise UsageError(
            f"the baseline is no whole run: {one_line(baseline.incomplete) or 'it has no case'}; "
            "make another one, or give --allow-incomplete where only its end is missing",
            "incomplete-baseline",
        )
    found = differences(baseline, candidate, policy)
    judged, problems = _judged(found, policy, today)
    unfinished = _unfinished(candidate, allowed)
    trace = trace_difference(baseline, candidate)
    fails = any(item.level == "fail" for item in judged) or bool(problems)
    conclusion: Conclusion = "not finished" if unfinished else "failed" if fails else "passed"
    return GateOutcome(
        conclusion=conclusion,
        headline=_headline(conclusion, judged, problems, candidate, unfinished, trace is None),
        baseline=baseline,
        candidate=candidate,
        policy=policy,
        environment=environment_differences(baseline, candidate),
        trace=trace,
        judged=judged,
        problems=problems,
        remarks=_remarks(baseline, candidate),
    )


def _unfinished(candidate: Side, allowed: Allowed) -> str:
    """Why the candidate says too little; one without cases, or of which nothing ran, always does."""
    n_left_out = sum(case.is_left_out for case in candidate.cases)
    if not candidate.cases:
        return "it has no case"
    if allowed.incomplete and n_left_out < len(candidate.cases):
        return ""
    return candidate.incomplete or (f"{plural(n_left_out, 'case')} not run" if n_left_out else "")


def _judged(
    found: tuple[Difference, ...], policy: Policy, today: datetime.date
) -> tuple[tuple[Judged, ...], tuple[str, ...]]:
    used: set[Waiver] = set()
    judged = []
    for difference in found:
        level = policy.level(difference.kind)
        if level == "ignore":
            continue
        covering = [
            waiver
            for waiver in policy.waivers
            if level == "fail" and waiver.covers(difference.key, difference.op, difference.kind)
        ]
        used.update(covering)
        valid = next((waiver for waiver in covering if not waiver.is_expired(today)), None)
        judged.append(Judged(difference, "note" if valid is not None else level, valid))
    return tuple(sorted(judged, key=_weight)), tuple(_waiver_problems(policy, used, today))


def _weight(item: Judged) -> tuple[int, int, float, str]:
    """Failures first, by kind, then what costs most."""
    order, one = ("fail", "warn", "note"), item.difference
    return order.index(item.level), tuple(DEFAULT_LEVELS).index(one.kind), -one.cost_us, one.key


def _waiver_problems(policy: Policy, used: set[Waiver], today: datetime.date) -> list[str]:
    problems = []
    for waiver in policy.waivers:
        if waiver.is_expired(today):
            problems.append(
                f"the waiver of {waiver.name} expired on {waiver.expires}; ask {waiver.owner}, see {waiver.link}"
            )
        elif waiver not in used:
            problems.append(f"the waiver of {waiver.name} is not needed any more; remove it ({waiver.owner})")
    return problems


def _headline(
    conclusion: Conclusion,
    judged: tuple[Judged, ...],
    problems: tuple[str, ...],
    candidate: Side,
    unfinished: str,
    is_one_trace: bool,
) -> str:
    """Two traces are told before anything else: what is gone or new may be of the other program and no regression."""
    counts = Counter(item.difference.kind for item in judged if item.level == "fail")
    parts = [f"{n} {kind}" for kind, n in counts.items()]
    if problems:
        parts.append(plural(len(problems), "waiver") + " to look at")
    failures = ", ".join(parts)
    cases = plural(len(candidate.cases), "case")
    if conclusion == "not finished":
        told = f"; so far: {failures}" if failures else ""
        return f"The gate cannot say: the candidate is no whole run, {unfinished}{told}."
    if conclusion == "failed":
        of_two = "" if is_one_trace else ", and the two runs are not of one trace"
        return f"The gate fails{of_two}: {failures}, of {cases}{_failing_ops(judged)}."
    waived = sum(item.waiver is not None for item in judged)
    warned = sum(item.level == "warn" for item in judged)
    notes = [text for n, text in ((waived, f"{waived} waived"), (warned, plural(warned, "warning"))) if n]
    of_two = "" if is_one_trace else ", though the two runs are not of one trace"
    return f"The gate passes{of_two}: nothing fails in {cases}{', ' if notes else ''}{', '.join(notes)}."


def _failing_ops(judged: tuple[Judged, ...]) -> str:
    """``: addmm, gelu and 2 more``; empty where only waivers fail."""
    ops = list(dict.fromkeys(short_op(item.difference.op) for item in judged if item.level == "fail"))
    left = f" and {len(ops) - MAX_NAMED} more" if len(ops) > MAX_NAMED else ""
    return f": {', '.join(ops[:MAX_NAMED])}{left}" if ops else ""


def _remarks(baseline: Side, candidate: Side) -> tuple[str, ...]:
    remarks = []
    if candidate.evidence != "measured":
        remarks.append(f"Not measured on AMD: the candidate is {candidate.evidence}.")
    if candidate.device.backend not in TIMED or baseline.device.backend not in TIMED:
        remarks.append("Times were not compared: they mean something only where a GPU ran.")
    for name, side in (("baseline", baseline), ("candidate", candidate)):
        if side.incomplete:
            remarks.append(f"The {name} is no whole run: {side.incomplete}.")
    return tuple(remarks)
