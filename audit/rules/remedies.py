"""Which alternatives to try in place of a case, dearest case first, and what a program does to have one.

Runs nothing: the session has the replay try what ``plan`` names, and ``audit.rules.tried`` judges what that gave.
"""

from __future__ import annotations

import dataclasses

from audit.changed_case import changed_case
from audit.kernel_settings import setting
from audit.knowledge.alternatives import AlternativeKind, load_alternatives
from audit.rules.arguments import dtypes_of
from audit.rules.wording import first_line
from audit.run_records import UNCHANGED, Change, Run, Trial
from audit.schema import NOT_RECORDED, Backend, Case, Measurement
from audit.verdicts import Judgement, Verdict

#: The name of the alternative that takes back what the program itself has set.
PROGRAM_SETTINGS = "torch_defaults"
#: All that the reference computes for a case, in runs of its own dtype.
_REFERENCE_FACTOR = 5.0


def plan(judgement: Judgement, n_cases: int) -> list[tuple[Case, tuple[Trial, ...]]]:
    """What is still to be tried of the ``n_cases`` dearest cases, in that order; nothing once an alternative hung."""
    run = judgement.run
    if any(a.measurement.device.kind == "hung" for tried in run.alternatives.values() for a in tried):
        return []
    cases = {case.key: case for case in run.cases}
    wanted = [(cases[v.key], trials) for v in eligible(judgement)[:n_cases] if (trials := _left(v, cases[v.key], run))]
    return wanted


def eligible(judgement: Judgement) -> list[Verdict]:
    """Verdicts of cases that have an alternative and lived to tell, dearest first."""
    run = judgement.run
    cases = {case.key: case for case in run.cases}
    found = [
        verdict
        for verdict in judgement.verdicts
        if _may_be_tried(verdict, run.measurements.get(verdict.key))
        and len(_trials(verdict, cases[verdict.key], run)) > 1
    ]
    return sorted(found, key=lambda verdict: (-(verdict.total_us or 0.0), -verdict.n_calls, verdict.key))


def preparation_s(measurement: Measurement) -> float:
    """Seconds that the reference of a case may take again: it also runs in fp64, twice, which takes longer."""
    time = measurement.reference_time
    return 0.0 if time is None else _REFERENCE_FACTOR * time.median_us / 1e6


def _may_be_tried(verdict: Verdict, measurement: Measurement | None) -> bool:
    """Not a case that hung, crashed or broke what runs after it: it would do so again, for nothing or for worse."""
    if measurement is None or measurement.reference.kind != "ok" or measurement.n_damaged_inputs:
        return False
    device = measurement.device
    if device.kind not in ("ok", "raised", "out_of_memory") or device.device_error or measurement.canary == "failed":
        return False
    return verdict.status not in ("supported", "inconclusive") or device.kind == "out_of_memory"


def _left(verdict: Verdict, case: Case, run: Run) -> tuple[Trial, ...]:
    """What was not tried yet; nothing where the audit ended in the middle of one: perhaps it took the machine down."""
    if any(begun.key == case.key for begun in run.trying):
        return ()
    done = {alternative.trial.name for alternative in run.alternatives.get(case.key, ())}
    return tuple(trial for trial in _trials(verdict, case, run) if trial.name not in done)


def _trials(verdict: Verdict, case: Case, run: Run) -> tuple[Trial, ...]:
    measurement = run.measurements.get(case.key)
    chosen = () if measurement is None else measurement.path.chosen_ops
    return trials(case, verdict, run.header.device.backend, chosen)


def trials(case: Case, verdict: Verdict, backend: Backend, chosen: tuple[str, ...] = ()) -> tuple[Trial, ...]:
    """The case as it was, then every alternative that fits its findings and changes something.

    ``chosen`` are the ops that ran inside.
    """
    codes = tuple(f.code for f in verdict.findings if f.status != "supported")
    if any(argument == NOT_RECORDED for argument in (*case.args, *(value for _, value in case.kwargs))):
        return ()
    found = [Trial(case.key, UNCHANGED, "nothing changed", Change())]
    if case.settings:
        found.append(Trial(case.key, PROGRAM_SETTINGS, "torch's default settings", Change(settings=())))
    dtypes = dtypes_of(case)
    for kind in load_alternatives():
        if kind.fits(case.op, chosen, codes, backend, dtypes):
            change = _change(kind, case)
            if changed_case(case, change) != case and change not in [trial.change for trial in found]:
                found.append(Trial(case.key, kind.name, kind.what, change))
    return tuple(found)


def _change(kind: AlternativeKind, case: Case) -> Change:
    """The change to this case: settings on top of its own, without those that torch has by default."""
    if not kind.settings:
        return kind.change
    merged = {**dict(case.settings), **dict(kind.settings)}
    return dataclasses.replace(kind.change, settings=tuple((n, v) for n, v in merged.items() if not _is_default(n, v)))


def _is_default(name: str, value: bool | str) -> bool:
    known = setting(name)
    return known is not None and known.default == value


def instruction(change: Change, case: Case) -> str:
    """What a program does to have the change: ``torch.backends.cudnn.enabled = False``."""
    if change.layout == "contiguous":
        return "make the inputs contiguous: x.contiguous()"
    if change.layout == "channels_last":
        return "give the inputs channels_last: x.to(memory_format=torch.channels_last)"
    if change.dtype is not None:
        return f"compute it in {change.dtype}"
    new, old = dict(change.settings or ()), dict(case.settings)
    lines = []
    for name in dict.fromkeys([*old, *new]):
        known = setting(name)
        if known is not None and new.get(name, known.default) != old.get(name, known.default):
            lines.append(known.statement(new.get(name, known.default)))
    return first_line("; ".join(lines), 400)
