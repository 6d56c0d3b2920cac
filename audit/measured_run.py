"""How a trace becomes a run file: its cases are replayed on a device, or, without one, only listed."""

from __future__ import annotations

import dataclasses
import datetime
import math
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

import audit
from audit.ceilings_cache import cached_ceilings
from audit.errors import UsageError
from audit.opset import extract_values
from audit.ordering import costliest_first
from audit.results_cache import ResultsCache, open_cache
from audit.rules.preflight import preflight
from audit.rules.speed import TIMED
from audit.run_folder import CASES_FILE, RUN_FILE
from audit.run_records import PreflightCheck, RunEnd, RunHeader, Started
from audit.schema import EVIDENCE_BY_BACKEND, Case, Ceilings, DeviceInfo, Measurement, Trace
from audit.second_pass import try_alternatives
from audit.store import RunWriter, read_run

if TYPE_CHECKING:
    from audit.progress import Progress
    from audit.replay.engine import Engine, ReplaySettings
    from audit.run_options import RunOptions

BUDGET_SPENT = "the time budget was spent"
#: A case that an interrupted audit had started so long before is not run again by ``--resume``: whoever interrupted it
#: may have waited for a hang, and on AMD a second one may need a power-off.
HANGS_AFTER_S = 10.0


def predict_only(options: RunOptions, info: DeviceInfo, trace: Trace) -> RunEnd:
    header = _header(options, trace, info, trace.environment, preflight(info, trace.environment))
    end = RunEnd(complete=True, reason="nothing was run: predicted from the knowledge base")
    with RunWriter.create(options.output / RUN_FILE, header, trace.cases) as writer:
        writer.end(end)
    return end


def replay_all(options: RunOptions, device: str, trace: Trace, progress: Progress) -> RunEnd:
    from audit.replay.engine import ReplaySettings
    from audit.replay.pool import Pool

    with tempfile.TemporaryDirectory(prefix="rocm-audit-") as scratch:
        settings = ReplaySettings(
            device=device,
            values=extract_values(options.output / CASES_FILE, Path(scratch)),
            first_call_limit_s=options.first_call_limit_s,
            steady_limit_s=options.steady_limit_s,
            n_repeats=options.n_repeats,
            confirm_hangs=options.confirm_hangs,
            alternatives_limit_s=options.alternatives_limit_s,
        )
        deadline = math.inf if options.time_budget_s is None else monotonic() + options.time_budget_s
        with Pool(settings) as pool, _open_run(options, trace, pool, settings) as (header, writer, waiting):
            kept = None if options.fresh or options.resume else open_cache(header.device, header.environment, settings)
            waiting = _without_kept(kept, waiting, writer)
            # What the file holds by now: measured by the run that goes on, or kept from an earlier one.
            before = read_run(options.output / RUN_FILE).measurements if len(waiting) < len(trace.cases) else {}
            budget_s = math.inf if options.time_budget_s is None else options.time_budget_s
            progress.replaying(header, trace.cases, waiting, before, monotonic() + budget_s)
            end = _write_events(pool, waiting, writer, progress, options.time_budget_s, kept)
            if end.complete:
                end = try_alternatives(pool, options.output / RUN_FILE, settings, writer, progress, deadline)
            writer.end(end)
            return end


def _without_kept(kept: ResultsCache | None, waiting: list[Case], writer: RunWriter) -> list[Case]:
    """Writes what was measured on this stack before, and returns the cases that still wait."""
    if kept is None:
        return waiting
    found = {case.key: measurement for case in waiting if (measurement := kept.find(case)) is not None}
    writer.all_measured(found.values())
    return [case for case in waiting if case.key not in found]


def _write_events(
    engine: Engine,
    cases: Sequence[Case],
    writer: RunWriter,
    progress: Progress,
    budget_s: float | None,
    kept: ResultsCache | None,
) -> RunEnd:
    """Appends each event before the next is asked for: the order that makes a crash of the machine recoverable."""
    by_key = {case.key: case for case in cases}
    deadline = math.inf if budget_s is None else monotonic() + budget_s
    n_measured = 0
    begun: dict[str, float] = {}  # when each case that runs now was started

    def spent() -> bool:
        return monotonic() > deadline and n_measured > 0  # one case at least: a verdict however short the time

    try:
        for event in engine.replay(cases, spent):
            if isinstance(event, Started):
                writer.started(event.key)
                begun[event.key] = monotonic()
                progress.started(by_key[event.key].op)
            elif isinstance(event, Measurement):
                writer.measured(event)
                begun.pop(event.key, None)
                progress.measured(event)
                if kept is not None:
                    kept.keep(by_key[event.key], event)
                n_measured += 1
            else:
                return RunEnd(False, f"the device was lost: {event.reason}")
    except KeyboardInterrupt:
        since = monotonic() - HANGS_AFTER_S
        return RunEnd(False, "interrupted", tuple(key for key, at in begun.items() if at > since))
    if n_measured == len(cases):
        return RunEnd(True)
    return RunEnd(False, "the replay lost cases" if budget_s is None else f"{BUDGET_SPENT} ({budget_s:.0f} s)")


@contextmanager
def _open_run(
    options: RunOptions, trace: Trace, engine: Engine, settings: ReplaySettings
) -> Iterator[tuple[RunHeader, RunWriter, list[Case]]]:
    """The header, the run file and the cases that still wait, costliest first where time is limited."""
    path, info = options.output / RUN_FILE, engine.device_info()
    cases: Sequence[Case] = costliest_first(trace.cases) if options.time_budget_s else trace.cases
    if not options.resume:
        from audit.device.environment import collect_environment, look_at_machine
        from audit.device.machine import machine_checks

        environment = collect_environment()
        # The simulated device asks nothing of the machine.
        checks = () if info.backend == "sim" else (*machine_checks(look_at_machine()), *preflight(info, environment))
        ceilings = cached_ceilings(info, environment, engine.ceilings) if info.backend in TIMED else None
        header = _header(options, trace, info, environment, checks, settings, ceilings)
        with RunWriter.create(path, header, trace.cases) as writer:
            yield header, writer, list(cases)
        return
    old = read_run(path)
    if (old.header.device.backend, old.header.device.arch) != (info.backend, info.arch):
        raise UsageError(
            f"{path} was measured on {old.header.device.name} ({old.header.device.arch}), this is {info.name} "
            f"({info.arch}); start a new run",
            "other-device",
        )
    done = set(old.measurements) | (set() if options.retry_started else set(old.started))
    known = {case.key for case in old.cases}
    with RunWriter.resume(path) as writer:
        writer.cases(case for case in trace.cases if case.key not in known)
        yield old.header, writer, [case for case in cases if case.key not in done]


def _header(
    options: RunOptions,
    trace: Trace,
    info: DeviceInfo,
    environment: Mapping[str, str],
    checks: tuple[PreflightCheck, ...],
    settings: ReplaySettings | None = None,
    ceilings: Ceilings | None = None,
) -> RunHeader:
    shown = {"device": options.device} if settings is None else _shown_settings(settings)
    return RunHeader(
        evidence=EVIDENCE_BY_BACKEND[info.backend],
        source=trace.source,
        device=info,
        environment=environment,
        settings=shown,
        created=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        audit_version=audit.__version__,
        n_cases=len(trace.cases),
        n_recorded=trace.n_recorded,
        not_audited=trace.not_audited,
        preflight=checks,
        notes=trace.notes,
        ceilings=ceilings,
        elsewhere=trace.elsewhere,
    )


def _shown_settings(settings: ReplaySettings) -> dict[str, str]:
    """The settings for the report; file names without their folders."""
    shown = {}
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        shown[field.name] = value.name if isinstance(value, Path) else str(value)
    folder, separator, name = settings.device.rpartition(os.sep)
    if separator:
        shown["device"] = f"sim:{name}" if folder.startswith("sim:") else name
    return shown
