"""A run to its judgement: every case gets a verdict, nothing is skipped, and the same run gives the same judgement."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import chain

from audit.changed_case import changed_case
from audit.codec import signature_text
from audit.knowledge.kernels import classify_kernel
from audit.knowledge.op_classes import class_of
from audit.rules.chosen_path import heaviest_kernel
from audit.rules.coverage import coverage
from audit.rules.drift import causes as causes_of_drift
from audit.rules.drift import judge_drift
from audit.rules.elsewhere import times_for
from audit.rules.floor import floor_of_work
from audit.rules.headline import headline
from audit.rules.host_traffic import custom_ops
from audit.rules.inconclusive import never_measured
from audit.rules.kernel_records import unseen_cases
from audit.rules.known import annotate
from audit.rules.not_audited import missed_composites
from audit.rules.predict import predict
from audit.rules.preflight import root_causes
from audit.rules.registry import RULES, RUN_RULES
from audit.rules.shown_rates import shown_ceilings, works_of
from audit.rules.side_by_side import side_by_side
from audit.rules.speed import TIMED
from audit.rules.support import started_only
from audit.rules.thresholds import DEFAULT, Thresholds
from audit.rules.tried import note, tried
from audit.rules.wording import plural
from audit.rules.work import Work
from audit.run_records import Run
from audit.schema import DEVICE_STATUSES, Case, Ceilings, Measurement, Status, Timing
from audit.verdicts import CaseRule, Finding, Judgement, Tried, Verdict


def judge(run: Run, *, thresholds: Thresholds = DEFAULT, other: Run | None = None) -> Judgement:
    """Judges every case of a run file, whole or cut short; ``other`` is another device's run, to be set beside it."""
    works = works_of(run) if _is_gpu(run) else {}
    ceilings = shown_ceilings(run, works)
    there = times_for(run, other) if other is not None else run.header.elsewhere
    of_run = tuple(rule(run, there, thresholds) for rule in RUN_RULES)
    verdicts = tuple(_verdict(case, run, works.get(case.key), ceilings, thresholds, of_run) for case in run.cases)
    totals = coverage(verdicts)
    drift = judge_drift(run.drift, thresholds)
    causes = (
        *missed_composites(run.header.source.name, run.header.not_audited),
        *_shared_error(run, verdicts, thresholds),
        *custom_ops(run.header.not_audited, thresholds),
        *root_causes(run.header.preflight),
        *unseen_cases(run),
        *causes_of_drift(drift),
    )
    return Judgement(
        run,
        verdicts,
        totals,
        headline(run, verdicts, totals, causes),
        causes,
        thresholds.rows(),
        side_by_side(run, other) if other is not None else None,
        drift,
    )


def status_of(findings: Iterable[Finding]) -> Status:
    """The worst finding about the device; else inconclusive where a finding is; else supported."""
    statuses = {finding.status for finding in findings}
    for status in reversed(DEVICE_STATUSES):
        if status in statuses and status != "supported":
            return status
    return "inconclusive" if "inconclusive" in statuses else "supported"


def _verdict(
    case: Case,
    run: Run,
    work: Work | None,
    ceilings: Ceilings | None,
    thresholds: Thresholds,
    of_run: Iterable[CaseRule],
) -> Verdict:
    predicted = run.header.evidence == "predicted"
    measurement = None if predicted else run.measurements.get(case.key)
    findings = _annotated(case, measurement, run, thresholds, of_run)
    status = status_of(findings)
    alternatives = _tried(case, run, status, thresholds, of_run)
    findings = (*findings, *([told] if (told := note(case, run, alternatives)) is not None else []))
    kernel = heaviest_kernel(measurement) if measurement is not None else None
    device_time = measurement.device_time if measurement is not None else None
    reference_time = measurement.reference_time if measurement is not None else None
    floor = None
    if work is not None and device_time is not None:
        floor = floor_of_work(work, case, run.header.device, ceilings, measurement)
    return Verdict(
        key=case.key,
        op=case.op,
        status=status,
        n_calls=case.n_calls,
        phase=case.phase,
        modules=case.modules,
        sources=case.sources,
        signature=signature_text(case.args, case.kwargs, case.grads, case.settings),
        findings=findings,
        device_us=device_time.median_us if device_time is not None else None,
        reference_us=reference_time.median_us if reference_time is not None else None,
        library=classify_kernel(kernel.name).library if kernel is not None else None,
        total_us=_total_us(case, device_time),
        floor_us=floor.us if floor is not None else None,
        bound=floor.bound if floor is not None else None,
        flops=work.flops if work is not None else None,
        moved_bytes=work.moved_bytes if work is not None else None,
        op_class=class_of(case.op),
        tried=alternatives,
    )


def _annotated(
    case: Case, measurement: Measurement | None, run: Run, thresholds: Thresholds, of_run: Iterable[CaseRule]
) -> tuple[Finding, ...]:
    """What the rules say of it, and what is known of that."""
    arch, environment = run.header.device.arch, run.header.environment
    found = _findings(case, measurement, run, thresholds, of_run)
    return tuple(annotate(finding, case, measurement, arch, environment, thresholds) for finding in found)


def _tried(
    case: Case, run: Run, status: Status, thresholds: Thresholds, of_run: Iterable[CaseRule]
) -> tuple[Tried, ...]:
    """What was tried in place of the case, each by the rules that judge a case and a run."""
    judged = []
    for alternative in run.alternatives.get(case.key, ()):
        changed = replace(changed_case(case, alternative.trial.change), key=case.key)
        findings = _annotated(changed, alternative.measurement, run, thresholds, of_run)
        judged.append((alternative, findings, status_of(findings)))
    return tried(case, run, status, judged) if judged else ()


def _is_gpu(run: Run) -> bool:
    return run.header.device.backend in TIMED


def _total_us(case: Case, time: Timing | None) -> float | None:
    """The sum of all calls where each was timed, else calls times the median."""
    if time is None:
        return None
    return time.total_us if time.total_us is not None else time.median_us * case.n_calls


def _findings(
    case: Case, measurement: Measurement | None, run: Run, thresholds: Thresholds, of_run: Iterable[CaseRule]
) -> Iterable[Finding]:
    of_case = _of_case(case, measurement, run, thresholds)
    return chain(of_case, (finding for rule in of_run for finding in rule(case, measurement)))


def _of_case(case: Case, measurement: Measurement | None, run: Run, thresholds: Thresholds) -> Iterable[Finding]:
    if run.header.evidence == "predicted":
        return predict(case, run.header.device.arch)
    if measurement is not None:
        return (finding for rule in RULES for finding in rule(case, measurement, run.header, thresholds))
    if case.key in run.started:
        return (started_only(case),)
    return (never_measured(case, run),)


def _shared_error(run: Run, verdicts: tuple[Verdict, ...], thresholds: Thresholds) -> Iterable[Finding]:
    """SUP115: most cases that ran raised with an error about the environment, so it is one cause and not many."""
    ran = [v for v in verdicts if v.key in run.measurements and run.measurements[v.key].device.kind != "not_run"]
    by_message: dict[str, int] = {}
    for verdict in ran:
        for finding in verdict.findings:
            if finding.code == "SUP101" and finding.data.get("signal_class") == "env":
                by_message[finding.message] = by_message.get(finding.message, 0) + 1
    for message, count in by_message.items():
        if count > 1 and count > thresholds.same_error_fraction * len(ran):
            yield Finding(
                "SUP115",
                "unsupported",
                f"one error stops {count} of the {plural(len(ran), 'case')} that ran: {message}",
                {"n_cases": count, "n_ran": len(ran)},
            )
