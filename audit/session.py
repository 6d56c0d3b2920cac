"""The pipeline, wired in one place: target -> trace -> replay -> run file -> judgement -> reports.

torch is loaded by what replays and never by what judges: ``report`` on a machine without torch goes through here too.
"""

from __future__ import annotations

import dataclasses
import datetime
import math
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

import audit
from audit.ceilings_cache import cached_ceilings
from audit.errors import UsageError
from audit.imported_run import find_other, finished_run, is_finished, write_run
from audit.judged_folder import judge_folder
from audit.opset import extract_values, read_opset, write_opset
from audit.opset.ranks import copy_or_merge, rank_files, rank_path
from audit.ordering import costliest_first
from audit.output_file import check_output_file
from audit.privacy.name_map import new_map_path
from audit.privacy.private_trace import made_private
from audit.results_cache import ResultsCache, open_cache
from audit.rules.preflight import preflight
from audit.rules.speed import TIMED
from audit.run_folder import CASES_FILE, RUN_FILE, alone_in, clear_folder, find_folder, make_folder
from audit.run_records import PreflightCheck, Run, RunEnd, RunHeader, Started
from audit.schema import EVIDENCE_BY_BACKEND, Case, Ceilings, DeviceInfo, Measurement, Status, Trace
from audit.second_pass import try_alternatives
from audit.step_pass import check_playable, play_step
from audit.store import RunWriter, read_run
from audit.targets import InputShape, Target
from audit.termination import termination_as_interrupt
from audit.verdicts import Judgement

if TYPE_CHECKING:
    from audit.progress import Progress
    from audit.replay.engine import Engine, ReplaySettings

#: A case that an interrupted audit had started so long before is not run again by ``--resume``: whoever interrupted it
#: may have waited for a hang, and on AMD a second one may need a power-off.
HANGS_AFTER_S = 10.0


@dataclass(frozen=True)
class RunOptions:
    """What ``rocm-audit run`` was asked. ``gpu`` is the arch to predict for and to pretend while tracing, ``compare``
    another device's run.

    ``private``: the trace names nothing of the program; a map beside the output does.
    """

    target: Target
    output: Path
    device: str = "none"
    gpu: str = "gfx942"
    n_steps: int = 2
    mode: str | None = None
    fake: bool = False
    private: bool = False
    shape: InputShape = dataclasses.field(default_factory=InputShape)
    values_bytes: int = 1 << 30
    time_budget_s: float | None = None
    alternatives_limit_s: float = 60.0
    resume: bool = False
    retry_started: bool = False
    fresh: bool = False
    force: bool = False
    confirm_hangs: bool = False
    first_call_limit_s: float = 180.0
    steady_limit_s: float = 60.0
    n_repeats: int = 2
    compare: Path | None = None
    drift: bool = False
    formats: tuple[str, ...] = ("html", "json")
    fail_on: frozenset[Status] = frozenset()


# --- run ---------------------------------------------------------------------------------------------------------


def run(options: RunOptions, progress: Progress) -> tuple[Judgement, int]:
    """The whole audit; the judgement and the exit code. What was measured is on disk whatever happens."""
    other = None if options.compare is None else find_other(options.compare)
    if is_finished(options.target):
        return _import(options, other, progress)
    from audit.device.registry import resolve

    device = resolve(options.device)  # before anything is traced: a missing device is known at once
    if options.drift:
        check_playable(options.target, device, options.fake, options.private)
    if other is not None and device.startswith(("sim", "cpu", "none")):
        raise UsageError(f"--compare sets times of a GPU beside times of a GPU, and {device} has none", "bad-arguments")
    (find_folder if options.resume else make_folder)(options.output)
    with alone_in(options.output), termination_as_interrupt():
        if not options.resume:
            clear_folder(options.output, options.force)
        trace = obtain_trace(options, progress)
        if device == "none":
            end = _predict_only(options, trace)
        else:
            end = _replay_all(options, device, trace, progress)
            if options.drift and end.complete:
                end = play_step(options, device, pretended_gpu(options.gpu), progress)
        judgement = judge_folder(options.output, options.formats, other)
    return judgement, exit_code(judgement, end, options.fail_on)


def _import(options: RunOptions, other: Run | None, progress: Progress) -> tuple[Judgement, int]:
    """A recording that was measured already: read before the folder is touched, then judged like any run."""
    refused = {
        "--device": options.device not in ("auto", "none"),
        "--resume": options.resume,
        "--private": options.private,
        "--drift": options.drift,
    }
    for option, is_set in refused.items():
        if is_set:
            raise UsageError(
                f"{options.target.name} was measured already and nothing is replayed: {option} has no meaning for it",
                "bad-arguments",
            )
    progress.phase(f"reading {options.target.name}")
    run = finished_run(options.target)
    make_folder(options.output)
    with alone_in(options.output), termination_as_interrupt():
        clear_folder(options.output, options.force)
        end = write_run(run, options.output)
        judgement = judge_folder(options.output, options.formats, other)
    return judgement, exit_code(judgement, end, options.fail_on)


def exit_code(judgement: Judgement, end: RunEnd, fail_on: frozenset[Status]) -> int:
    """3 where the audit could not finish (program, device or trace failed), 1 where ``fail_on`` tripped, else 0."""
    if not end.complete and not end.reason.startswith(BUDGET_SPENT):
        return 3
    header = judgement.run.header
    if header.source.error or any(item.missed for item in header.not_audited) or not judgement.verdicts:
        return 3
    return 1 if judgement.has_any(fail_on) else 0


BUDGET_SPENT = "the time budget was spent"


def obtain_trace(options: RunOptions, progress: Progress) -> Trace:
    """The cases of the target, as ``cases.audit`` in the run folder."""
    cases_file = options.output / CASES_FILE
    if options.resume:
        return _trace_of_run(options, cases_file)
    names = _names_of(options, options.output.resolve())
    if options.target.kind == "opset":
        return _copy(options.target.path, cases_file, names)
    progress.phase(f"{'reading' if options.target.importer else 'tracing'} {options.target.name}")
    trace_target(options.target, cases_file, options, names)
    return read_opset(cases_file)


def _names_of(options: RunOptions, output: Path) -> Path | None:
    """Where the map of a private trace's names goes: beside what may be given away. Raises UsageError."""
    return new_map_path(output, options.force) if options.private else None


def _copy(path: Path, target: Path, names: Path | None) -> Trace:
    """An opset, or the ranks that stand for it, at another place; with ``names`` its private form."""
    if names is None:
        return copy_or_merge(path, target)
    from audit.tracer.private_copy import copy_private

    with tempfile.TemporaryDirectory(prefix="rocm-audit-") as scratch:
        whole = Path(scratch, "whole.audit")
        copy_or_merge(path, whole)
        return copy_private(whole, target, names)


def _trace_of_run(options: RunOptions, cases_file: Path) -> Trace:
    """The trace that the run in the folder began with. Raises UsageError where the target is another one."""
    trace = read_opset(cases_file)
    target, source = options.target, trace.source
    keys = {case.key for case in trace.cases}
    if source.private:
        is_other = False  # its names cannot be compared; the run beside it is, below
    elif target.kind != "opset":
        is_other = (target.kind == "module", target.name) != (source.kind == "module", source.name)
    else:
        files = [target.path] if target.path.exists() else rank_files(target.path)
        is_other = {case.key for file in files for case in read_opset(file).cases} != keys
    run = read_run(options.output)
    if is_other or run.header.n_cases != len(keys) or not keys.issuperset(case.key for case in run.cases):
        raise UsageError(
            f"the run in {options.output} is one of {run.header.source.name}, or {cases_file.name} there is not its "
            f"trace; start one of {target.name} in another folder",
            "other-program",
        )
    return trace


def trace_target(target: Target, output: Path, options: RunOptions, names: Path | None) -> None:
    """Runs the program in a process of its own, which writes ``output``, and ``names`` where the trace is private.

    Raises what that process reports. What another tool recorded is read instead.
    """
    if target.importer is not None:
        trace = target.importer.read(target.path)
        assert isinstance(trace, Trace), "a finished run is no trace: see `run`"
        write_opset(output, trace if names is None else made_private(trace, names), None)
        return
    from audit.tracer.launch import trace_in_child

    gpu = pretended_gpu(options.gpu)
    trace_in_child(
        target, output, options.n_steps, options.mode, options.values_bytes, gpu, options.fake, options.shape, names
    )


def pretended_gpu(arch: str) -> DeviceInfo:
    """The device to predict for, with the knowledge base's facts. Raises UsageError for an arch it does not know."""
    from audit.knowledge.gpus import gpus_of, load_gpus

    products = gpus_of(arch)
    if not products:
        known = ", ".join(sorted({gpu.arch for gpu in load_gpus() if gpu.vendor == "AMD"}))
        raise UsageError(f"--gpu {arch}: not in the knowledge base; known are {known}", "unknown-gpu")
    gpu = max(products, key=lambda product: product.compute_units or 0)  # the full part, not a cut-down sibling
    facts = {
        "wavefront": gpu.wavefront,
        "compute_units": gpu.compute_units,
        "total_memory_bytes": None if gpu.memory_gib is None else int(gpu.memory_gib * (1 << 30)),
    }
    return DeviceInfo(
        "none", f"AMD {gpu.product}", arch, {name: str(value) for name, value in facts.items() if value is not None}
    )


# --- replay ------------------------------------------------------------------------------------------------------


def _predict_only(options: RunOptions, trace: Trace) -> RunEnd:
    info = pretended_gpu(options.gpu)
    header = _header(options, trace, info, trace.environment, preflight(info, trace.environment))
    end = RunEnd(complete=True, reason="nothing was run: predicted from the knowledge base")
    with RunWriter.create(options.output / RUN_FILE, header, trace.cases) as writer:
        writer.end(end)
    return end


def _replay_all(options: RunOptions, device: str, trace: Trace, progress: Progress) -> RunEnd:
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


# --- trace only --------------------------------------------------------------------------------------------------


def trace_only(options: RunOptions) -> tuple[Trace, Path]:
    """Records the target; the trace and the file it is in (one a rank under a launcher)."""
    path = rank_path(options.output)
    check_output_file(path, options.force)  # known before the program runs for minutes
    if is_finished(options.target):
        raise UsageError(
            f"{options.target.name} was measured already; `rocm-audit run` judges it as it is",
            "bad-arguments",
        )
    if options.target.kind == "opset" and not options.private:
        raise UsageError(
            f"{options.target.name} is a trace already; replay it with `rocm-audit run`, or make a private copy of it "
            "with --private",
            "bad-arguments",
        )
    names = _names_of(options, path)
    if options.target.kind == "opset":
        return _copy(options.target.path, path, names), path
    trace_target(options.target, path, options, names)
    return read_opset(path), path
