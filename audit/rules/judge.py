"""A run to its judgement: every case gets a verdict, nothing is skipped, and the same run gives the same judgement."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

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
from audit.rules.shown_rates import shown_ceilings
from audit.rules.side_by_side import side_by_side
from audit.rules.speed import TIMED
from audit.rules.support import started_only
from audit.rules.thresholds import DEFAULT, Thresholds
from audit.rules.tried import note, tried
from audit.rules.wording import plural
from audit.rules.work import Work, work_of
from audit.run_records import Run
from audit.schema import DEVICE_STATUSES, IMPORTED, Case, Ceilings, DeviceTimes, Measurement, Status, Timing
from audit.verdicts import Finding, Judgement, Tried, Verdict


def judge(run: Run, *, thresholds: Thresholds = DEFAULT, other: Run | None = None) -> Judgement:
    """Judges every case of a run file, whole or cut short; ``other`` is another device's run, to be set beside it."""
    works = _works(run) if _is_gpu(run) else {}
    ceilings = shown_ceilings(run, works)
    there = times_for(run, other) if other is not None else run.header.elsewhere
    of_run = _of_run(run, there, thresholds)
    verdicts = tuple(
        _verdict(case, run, there, works.get(case.key), ceilings, thresholds, of_run.get(case.key, []))
        for case in run.cases
    )
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


def _of_run(run: Run, there: DeviceTimes | None, thresholds: Thresholds) -> dict[str, list[Finding]]:
    """What the rules of the whole run find, by key."""
    found: dict[str, list[Finding]] = {}
    for rule in RUN_RULES:
        for key, finding in rule(run, there, thresholds).items():
            found.setdefault(key, []).append(finding)
    return found


def _works(run: Run) -> dict[str, Work | None]:
    """By key. A recording does not say whether the mantissa of float32 was cut: then it may have been."""
    works = {case.key: work_of(case, run.measurements.get(case.key)) for case in run.cases}
    if run.header.source.kind != IMPORTED:
        return works
    return {
        key: replace(work, dtype="tf32") if work is not None and work.dtype == "float32" else work
        for key, work in works.items()
    }


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
    there: DeviceTimes | None,
    work: Work | None,
    ceilings: Ceilings | None,
    thresholds: Thresholds,
    of_run: Iterable[Finding],
) -> Verdict:
    predicted = run.header.evidence == "predicted"
    measurement = None if predicted else run.measurements.get(case.key)
    arch = run.header.device.arch
    found = (*_findings(case, measurement, run, thresholds), *of_run)
    findings = tuple(annotate(finding, case, measurement, arch, run.header.environment) for finding in found)
    status = status_of(findings)
    alternatives = _tried(case, run, there, status, thresholds)
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


def _tried(
    case: Case, run: Run, there: DeviceTimes | None, status: Status, thresholds: Thresholds
) -> tuple[Tried, ...]:
    """What was tried in place of the case, each by the rules that judge a case and a run."""
    judged = []
    for alternative in run.alternatives.get(case.key, ()):
        changed = replace(changed_case(case, alternative.trial.change), key=case.key)
        instead = replace(
            run,
            cases=tuple(changed if other.key == case.key else other for other in run.cases),
            measurements={**run.measurements, case.key: alternative.measurement},
        )
        findings = (
            *_findings(changed, alternative.measurement, run, thresholds),
            *_of_run(instead, there, thresholds).get(case.key, []),
        )
        judged.append((alternative, findings, status_of(findings)))
    return tried(case, run, status, judged) if judged else ()


def _is_gpu(run: Run) -> bool:
    return run.header.device.backend in TIMED


def _total_us(case: Case, time: Timing | None) -> float | None:
    """The sum of all calls where each was timed, else calls times the median."""
    if time is None:
        return None
    return time.total_us if time.total_us is not None else time.median_us * case.n_calls


def _findings(case: Case, measurement: Measurement | None, run: Run, thresholds: Thresholds) -> Iterable[Finding]:
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
