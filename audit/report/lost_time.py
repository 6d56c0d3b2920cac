"""What a step loses to the limits of its device, in sentences and in rankings by op, module, library and case."""

from __future__ import annotations

from dataclasses import dataclass

from audit.report import text
from audit.report.rows import CaseRow, case_rows
from audit.rules.lost_time import LostTime, Step, lost_by_library, lost_by_module, lost_by_op, step_of
from audit.verdicts import Judgement

#: Rows of each ranking; the files hold all.
MAX_GROUPS = 8
MAX_CASES = 15
#: What is left of a difference of sums is no time.
LEAST_US = 0.01


@dataclass(frozen=True)
class Ranking:
    """Groups of cases by what they lose; ``title`` says what one is. ``n_left`` smaller ones are not shown."""

    title: str
    groups: tuple[LostTime, ...]
    n_left: int


@dataclass(frozen=True)
class StepLimits:
    """A step, what is to be said of it, and who loses what. ``cases`` are dearest first."""

    step: Step
    sentences: tuple[str, ...]
    rankings: tuple[Ranking, ...]
    cases: tuple[CaseRow, ...]


def step_limits(judgement: Judgement) -> StepLimits | None:
    """None where no GPU was timed, or no op of the run has a floor."""
    run, verdicts = judgement.run, judgement.verdicts
    step = step_of(run, verdicts)
    if step is None or not any(verdict.floor_us for verdict in verdicts):
        return None
    by = (("Op", lost_by_op), ("Module", lost_by_module), ("Library", lost_by_library))
    rankings = tuple(_ranking(title, ranked(run, verdicts)) for title, ranked in by)
    rows = sorted((row for row in case_rows(judgement) if row.lost_us), key=lambda row: -(row.lost_us or 0.0))
    return StepLimits(step, tuple(_sentences(step, judgement)), rankings, tuple(rows[:MAX_CASES]))


def _ranking(title: str, groups: list[LostTime]) -> Ranking:
    return Ranking(title, tuple(groups[:MAX_GROUPS]), max(len(groups) - MAX_GROUPS, 0))


def lost_text(group: LostTime) -> str:
    """What the group loses; of what has no limit nobody knows."""
    return "–" if group.us > 0 and group.without_floor_us >= group.us else text.time_text(group.lost_us)


def lost_share_text(group: LostTime, step: Step) -> str:
    """The same in percent of the step."""
    return "–" if lost_text(group) == "–" else text.share_text(group.lost_us, step.us)


def not_in_step(judgement: Judgement, step: Step) -> str:
    """``1.09 ms of copies between host and device, 48.5 µs of views, which run nothing there``: with what a step takes
    these add up to the device time of all calls, and to what no call stands for. Empty where there is none."""
    views_us = sum(v.total_us or 0.0 for v in judgement.verdicts) / step.n_steps - step.us - step.bus_us
    beside = (
        (step.bus_us, "copies between host and device"),
        (views_us if views_us > LEAST_US else 0.0, "views, which run nothing there"),
        (step.no_case_us, "what no case stands for"),
    )
    return ", ".join(f"{text.time_text(us)} of {what}" for us, what in beside if us > 0)


def _sentences(step: Step, judgement: Judgement) -> list[str]:
    """What a step takes, what it would gain, how much of the device's arithmetic it uses, who waits for whom."""
    several = f" (of {step.n_steps}, on average)" if step.n_steps > 1 else ""
    n_cases = text.plural(len(judgement.verdicts), "case")
    untimed = f", not counting {step.n_untimed} of {n_cases} that were not timed" if step.n_untimed else ""
    said = [
        f"A step{several} takes {text.time_text(step.us)} of device time{untimed}. With every call at its limit "
        f"it would gain {text.time_text(step.lost_us)} ({text.share_text(step.lost_us, step.us)})."
    ]
    if left_out := not_in_step(judgement, step):
        said.append(f"Not in it: {left_out}.")
    if step.without_floor_us:
        share = text.share_text(step.without_floor_us, step.us)
        said.append(f"{text.time_text(step.without_floor_us)} ({share}) are of ops for which no limit is known.")
    if step.utilisation is not None:
        rates = "rates measured there" if judgement.run.header.ceilings else "datasheet peaks"
        said.append(
            f"Its {text.flops_text(step.flops)} of model arithmetic use {text.share_text(step.utilisation, 1.0)} of "
            f"the device's {rates} over that time (model FLOPs utilisation)."
        )
    if step.host_us is not None:
        issuing = f"Issuing its calls takes the host {text.time_text(step.host_us)}, without the program's own Python"
        bound = "the device waits, and faster kernels gain nothing" if step.is_bound_by_host else "less than the device"
        said.append(f"{issuing}: {bound}.")
    return said
