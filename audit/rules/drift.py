"""The whole step on the device beside the CPU: which call is wrong in it, and where accumulated error starts.

NUM220, NUM221, NUM222, SUP106, INC915. The run of the CPU in the program's own dtypes says how much error rounding
leaves at each place; the device's is held against that. Where it goes beyond, the way back along the tensors leads to
the first call whose error had begun to.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from audit.drift_records import Drift, DriftStep
from audit.rules.thresholds import Thresholds
from audit.rules.wording import first_line, number, plural
from audit.run_records import Run
from audit.schema import Case, DeviceTimes, Measurement, Phase
from audit.verdicts import CaseRule, DriftJudgement, Finding, ModuleDrift

#: The error of a few numbers may be small by chance: below so many elements the noise of what they come from counts.
FEW_ELEMENTS = 256
#: Ops that compute nothing: what is behind them has made the memory.
VIEWS = frozenset(
    """
    alias as_strided detach diagonal expand narrow permute reshape select slice split split_with_sizes squeeze t
    transpose unbind unfold unsqueeze view _reshape_alias _unsafe_view chunk movedim swapaxes view_as
    """.split()
)
_CAUSES = {
    "layout": "its inputs' strides make the difference: with the same values laid out as on the CPU it is right",
    "values": "its inputs' values make the difference: in fresh memory, laid out as on the CPU, it is as wrong",
    "memory or order": "neither values nor strides of its inputs explain it, for on copies of them it is right: it is "
    "the memory that they lie in, or what ran just before",
}


def judge_drift(drift: Drift | None, thresholds: Thresholds) -> DriftJudgement | None:
    """What the played step says; None where none was played."""
    if drift is None:
        return None
    floors = _floors(drift.steps)
    wrong = [*_failed(drift), *_wrong_calls(drift.steps, thresholds)]
    start = _start(drift.steps, floors, thresholds)
    findings = (*wrong, *([start] if start else []), *_unfinished(drift))
    return DriftJudgement(_sentence(drift, findings, floors), findings, tuple(_modules(drift.steps, floors)))


def wrong_in_step(run: Run, there: DeviceTimes | None, thresholds: Thresholds) -> CaseRule:
    """NUM220 and NUM222 beside the other findings of their cases."""
    found: dict[str, Finding] = {}
    steps = run.drift.steps if run.drift is not None else ()
    for step in steps:
        if step.key not in found and (code := _code(step, thresholds)):
            found[step.key] = _wrong_call([step], code, steps, thresholds)

    def of_case(case: Case, measurement: Measurement | None) -> Iterator[Finding]:
        # What was tried instead of the case was not played, and is not blamed for it.
        if case.key in found and measurement is run.measurements.get(case.key):
            yield found[case.key]

    return of_case


def causes(judged: DriftJudgement | None) -> Iterator[Finding]:
    """What stands above all cases: what no case alone shows."""
    for finding in judged.findings if judged is not None else ():
        if finding.code in ("NUM220", "NUM221", "SUP106"):
            yield finding


# --- single calls --------------------------------------------------------------------------------------------------


def _code(step: DriftStep, thresholds: Thresholds) -> str:
    """NUM220 or NUM222 for a call that is wrong on what its predecessors gave, empty for any other."""
    if not step.wrong and not (step.ratio is not None and step.ratio > thresholds.allowed_ratio):
        return ""
    if step.alone_wrong is None:
        return "NUM222"
    right_alone = not step.alone_wrong and (step.alone_ratio or 0.0) <= thresholds.allowed_ratio / 2
    return "NUM220" if right_alone else "NUM222"


def _wrong_calls(steps: tuple[DriftStep, ...], thresholds: Thresholds) -> Iterator[Finding]:
    """One finding for all calls of an op that go wrong in the same way."""
    groups: dict[tuple[str, str], list[DriftStep]] = {}
    for step in steps:
        if code := _code(step, thresholds):
            groups.setdefault((code, step.op), []).append(step)
    for (code, _), group in groups.items():
        yield _wrong_call(group, code, steps, thresholds)


def _wrong_call(group: list[DriftStep], code: str, steps: tuple[DriftStep, ...], thresholds: Thresholds) -> Finding:
    step = group[0]
    amount = f"{number(step.ratio or 0.0)} x the noise" if not step.wrong else f"{plural(step.wrong, 'element')} wrong"
    if code == "NUM220":
        predecessor = _predecessor(step, steps)
        after = f" after {predecessor.op} (call {predecessor.index})" if predecessor else ""
        what = f"{step.op} is right alone and wrong in the step{after}: {amount}"
    elif step.alone_wrong is None:
        what = f"{step.op} is wrong in the step, and alone it could not be tried: {amount}"
    else:
        what = f"{step.op} is wrong in the step, as it is alone: {amount}"
    parts = [f"{what} at call {step.index}{_place(step)}"]
    if code == "NUM220" and step.cause:
        parts.append(_CAUSES[step.cause])
    if step.worst:
        parts.append(step.worst)
    if len(group) > 1:
        parts.append(f"so are {plural(len(group) - 1, 'more call')}")
    return Finding(code, "divergent", "; ".join(parts), _data(step, group, thresholds))


def _data(
    step: DriftStep, group: list[DriftStep], thresholds: Thresholds
) -> dict[str, str | int | float | bool | None]:
    return {
        "call": step.index,
        "op": step.op,
        "module": step.module,
        "source": step.source,
        "in_step_ratio": step.ratio,
        "in_step_wrong": step.wrong,
        "alone_ratio": step.alone_ratio,
        "alone_wrong": step.alone_wrong,
        "allowed_ratio": thresholds.allowed_ratio,
        "cause": step.cause,
        "layout": "; ".join(step.layout),
        "n_calls": len(group),
    }


def _predecessor(step: DriftStep, steps: tuple[DriftStep, ...]) -> DriftStep | None:
    """The last call that made or wrote memory of one of its operands, behind views of it; None where all were there."""
    waiting, made = list(step.before), list[int]()
    while waiting:
        index = waiting.pop()
        if steps[index].op.partition("::")[2].partition(".")[0] in VIEWS:
            waiting.extend(steps[index].before)
        else:
            made.append(index)
    return steps[max(made)] if made else None


def _failed(drift: Drift) -> Iterator[Finding]:
    """SUP106: calls that the device raised on, or did not come back from."""
    failed = [step for step in drift.steps if step.failure is not None and step.failure.kind != "not_run"]
    by_op: dict[str, list[DriftStep]] = {}
    for step in failed:
        by_op.setdefault(step.op, []).append(step)
    for op, group in by_op.items():
        failure = group[0].failure
        assert failure is not None, "a step that failed"
        yield Finding(
            "SUP106",
            "unsupported",
            f"{op} failed in the step at call {group[0].index}{_place(group[0])}: {first_line(failure.message)}",
            {"call": group[0].index, "op": op, "n_calls": len(group), "kind": failure.kind},
        )
    if drift.started is not None and drift.end is not None:
        yield Finding(
            "SUP106",
            "unsupported",
            f"the device did not come back from {drift.started.op}, call {drift.started.index} of the step: "
            f"{drift.end.reason}",
            {"call": drift.started.index, "op": drift.started.op, "n_calls": 1, "kind": "crashed"},
        )


# --- what accumulates ----------------------------------------------------------------------------------------------


def _floors(steps: tuple[DriftStep, ...]) -> list[float]:
    """The noise at each call: the CPU's error, one rounding at least, and of few elements that of their origin."""
    floors: list[float] = []
    for step in steps:
        floor = max(step.noise or 0.0, step.eps)
        if step.n_elements < FEW_ELEMENTS:
            floor = max([floor, *(floors[index] for index in step.before if index < len(floors))])
        floors.append(floor)
    return floors


def ratio_of(step: DriftStep, floor: float) -> float | None:
    """The accumulated error over the noise there; None where there is nothing to compare."""
    return None if step.error is None or not floor else step.error / floor


def _start(steps: tuple[DriftStep, ...], floors: list[float], thresholds: Thresholds) -> Finding | None:
    """NUM221: the first call beyond, and the earliest of those behind it whose error had left the noise."""
    ratios = [ratio_of(step, floor) or 0.0 for step, floor in zip(steps, floors, strict=True)]
    beyond = [step for step in steps if ratios[step.index] > thresholds.drift_ratio]
    if not beyond:
        return None
    seen = beyond[0]
    off = [index for index in _behind(seen, steps) if ratios[index] > thresholds.drift_start_ratio]
    start = steps[min(off, default=seen.index)]
    last = max(beyond, key=lambda step: ratios[step.index])
    message = (
        f"accumulated error starts at {start.op}, call {start.index}{_place(start)}: {number(ratios[start.index])} x "
        f"the noise there, {number(ratios[last.index])} x at most, at call {last.index}{_place(last)}"
    )
    return Finding(
        "NUM221",
        "divergent",
        message,
        {
            "call": start.index,
            "op": start.op,
            "module": start.module,
            "source": start.source,
            "phase": start.phase,
            "error": start.error,
            "noise": floors[start.index],
            "ratio": ratios[start.index],
            "largest_ratio": ratios[last.index],
            "allowed_ratio": thresholds.drift_ratio,
            "n_beyond": len(beyond),
            "n_calls": len(steps),
        },
    )


def _behind(step: DriftStep, steps: tuple[DriftStep, ...]) -> set[int]:
    """All calls that had a part in what ``step`` took."""
    behind: set[int] = set()
    waiting = list(step.before)
    while waiting:
        index = waiting.pop()
        if index not in behind:
            behind.add(index)
            waiting.extend(steps[index].before)
    return behind


def _modules(steps: Iterable[DriftStep], floors: list[float]) -> Iterator[ModuleDrift]:
    """A row for each module and phase, in the order in which they end, with the error of its last floating output."""
    groups: dict[tuple[Phase, str], list[DriftStep]] = {}
    for step in steps:
        groups.setdefault((step.phase, step.module), []).append(step)
    ordered = sorted(groups.items(), key=lambda item: item[1][-1].index)
    for (phase, module), group in ordered:
        measured = [step for step in group if ratio_of(step, floors[step.index]) is not None]
        last = measured[-1] if measured else None
        ratios = [ratio_of(step, floors[step.index]) or 0.0 for step in measured]
        own = [step.ratio for step in group if step.ratio is not None]
        yield ModuleDrift(
            module,
            phase,
            len(group),
            group[0].index,
            last.error if last else None,
            floors[last.index] if last else None,
            max(ratios, default=None),
            max(own, default=None),
            sum(step.wrong for step in group),
            sum(bool(step.fed) for step in group),
        )


# --- how it went ---------------------------------------------------------------------------------------------------


def _unfinished(drift: Drift) -> Iterator[Finding]:
    """INC915: calls that were not played, a note beside what was."""
    end = drift.end
    reason = "the audit was ended" if end is None else end.reason
    if reason and not (drift.started is not None and end is not None):
        n_calls = end.n_calls if end is not None else 0
        played = f"{len(drift.steps)} of {plural(n_calls, 'call')}" if n_calls else plural(len(drift.steps), "call")
        yield Finding("INC915", "supported", f"the step was not played to its end ({played}): {reason}", {})


def _sentence(drift: Drift, findings: tuple[Finding, ...], floors: list[float]) -> str:
    steps = drift.steps
    ratios = [r for step, floor in zip(steps, floors, strict=True) if (r := ratio_of(step, floor)) is not None]
    tried = sum(step.alone_wrong is not None for step in steps)
    fed = sum(bool(step.fed) for step in steps)
    text = f"the step was played on the device beside the CPU, {plural(len(steps), 'call')}"
    text += f" ({tried} of them alone too, {fed} fed with the program's own numbers)" if steps else ""
    if drift.end is not None and drift.end.n_unseen:
        text += f"; {plural(drift.end.n_unseen, 'more call')} could not be put on the tape"
    if not any(finding.status != "supported" for finding in findings) and ratios:
        text += f": accumulated error is at most {number(max(ratios))} x the noise, and no call is beyond its allowance"
    return text + "."


def _place(step: DriftStep) -> str:
    module = f" in {step.module}" if step.module else ""
    return f"{module} ({step.phase})"
