"""The pipeline, wired in one place: target -> trace -> replay -> run file -> judgement -> reports.

torch is loaded by what replays and never by what judges: ``report`` on a machine without torch goes through here too.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from audit.errors import UsageError
from audit.imported_run import find_other, finished_run, is_finished, write_run
from audit.judged_folder import judge_folder
from audit.measured_run import BUDGET_SPENT, predict_only, replay_all
from audit.recorded_trace import obtain_trace, pretended_gpu
from audit.run_folder import alone_in, check_no_run, clear_folder, find_folder, made_folder
from audit.run_options import RunOptions
from audit.run_records import Run, RunEnd
from audit.schema import Status
from audit.step_pass import check_playable, play_step
from audit.termination import termination_as_interrupt
from audit.verdicts import Judgement

if TYPE_CHECKING:
    from audit.progress import Progress


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
    with _folder_of(options), alone_in(options.output), termination_as_interrupt():
        if not options.resume:
            check_no_run(options.output, options.force)
        trace = obtain_trace(options, progress)
        if not options.resume:
            clear_folder(options.output, keeps_trace=True)  # only now: a target that is refused costs no run
        if device == "none":
            end = predict_only(options, pretended_gpu(options.gpu), trace)
        else:
            end = replay_all(options, device, trace, progress)
            if options.drift and end.complete:
                end = play_step(options, device, pretended_gpu(options.gpu), progress)
        judgement = judge_folder(options.output, options.formats, other)
    return judgement, exit_code(judgement, end, options.fail_on)


def _folder_of(options: RunOptions) -> AbstractContextManager[None]:
    """The run's folder, new or as it was left. Raises UsageError."""
    if not options.resume:
        return made_folder(options.output)
    find_folder(options.output)
    return nullcontext()


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
    with made_folder(options.output), alone_in(options.output), termination_as_interrupt():
        check_no_run(options.output, options.force)
        clear_folder(options.output, keeps_trace=False)
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
