"""What a step costs, beside another device where its times are at hand, and how to have them where they are not."""

from __future__ import annotations

from audit.report import device_time, text
from audit.report.answers import Answer, Point, answered
from audit.report.lost_time import not_in_step
from audit.report.rows import safe_name
from audit.rules.lost_time import Step, step_of
from audit.schema import IMPORTED, DeviceTimes
from audit.verdicts import Judgement, SideBySide, SideRow

ASK = "What does a step cost?"
EVIDENCE = ("beside", "limits", "roofline", "time-by-module", "time", "libraries")
#: A step's time without an owner is told with the answer from this share of the others on.
NOTEWORTHY = 0.1
#: Of what costs more here, and of what costs less.
MAX_SIDE = 3
#: Times of the cases on another device, then these beside them.
TIME_THERE = "rocm-audit run cases.audit --device cuda -o nvidia"
REPLAY = "rocm-audit run cases.audit --device hip"
COMPARE = "rocm-audit run cases.audit --device hip -o amd --compare nvidia"
#: The same of a run that is there, whose folder this is.
BESIDE = "rocm-audit report . --compare nvidia"


def step_cost(judgement: Judgement) -> Answer:
    """The sums are of device time, over the cases that were timed, and their number is said."""
    is_gpu = judgement.run.header.device.backend in ("hip", "cuda")
    step = step_of(judgement.run, judgement.verdicts) if is_gpu else None
    if step is None:
        return _untimed(judgement)
    if judgement.beside is not None:
        return _beside(judgement, judgement.beside, step)
    there = judgement.run.header.elsewhere
    if there is not None and there.times:
        return _elsewhere(judgement, there, step)
    return _alone(judgement, step)


def _untimed(judgement: Judgement) -> Answer:
    evidence = judgement.run.header.evidence
    if judgement.run.header.source.kind == IMPORTED:
        return _no_owner(judgement)
    why = {
        "simulated": "The times of a simulated device are those of a CPU and say nothing of a GPU.",
        "predicted": "Nothing ran, so nothing was timed.",
    }.get(evidence, "No case has a time.")
    if known := _known_elsewhere(judgement):
        short, how = "Known of the other device alone.", "To have this side: replay the cases on the AMD GPU."
        return answered(ASK, "open", short, [known, why, how], EVIDENCE, commands=(REPLAY,))
    how = "To have both sides: time the cases on the NVIDIA card, then replay them on the AMD GPU beside these times."
    commands = (TIME_THERE, COMPARE)
    return answered(ASK, "open", "Not known: no GPU was timed.", [why, how], EVIDENCE, commands=commands)


def _no_owner(judgement: Judgement) -> Answer:
    """A recording in which no op has a time: its kernels may have theirs all the same."""
    header = judgement.run.header
    us = sum(row.us for row in device_time.unowned_rows(judgement))
    short = f"{text.time_text(us)} on {header.device.name}, of no op." if us else "Not known: no op has a time."
    said = "Kernels are in the recording, and which op launched each is not." if us else ""
    how = "To have the time of each op, profile with the activities CPU and CUDA and with record_shapes=True."
    return answered(ASK, "open", short, [said, how], ("libraries", "left-out"))


def _known_elsewhere(judgement: Judgement) -> str:
    """What the step takes where the trace was timed; empty where it was not."""
    there = judgement.run.header.elsewhere
    timed = [v for v in judgement.verdicts if there is not None and v.key in there.times]
    if there is None or not timed:
        return ""
    n_steps = max(judgement.run.header.source.n_steps or 1, 1)
    us = sum(there.times[v.key].median_us * v.n_calls for v in timed) / n_steps
    n_cases = text.plural(len(judgement.verdicts), "case")
    return (
        f"On {there.device.name} ({there.evidence}) a step takes {text.time_text(us)} of device time, over "
        f"{len(timed):,} timed of {n_cases}: these times came with the trace."
    )


def _alone(judgement: Judgement, step: Step) -> Answer:
    header = judgement.run.header
    short = f"{text.time_text(step.us)} on {header.device.name}."
    if step.no_case_us > NOTEWORTHY * step.us:
        short = f"{text.time_text(step.us)} on {header.device.name}, and {text.time_text(step.no_case_us)} of no op."
    imported = header.source.kind == IMPORTED
    if imported:
        how = "To have another device beside it, record the same program there and name its trace:"
        commands: tuple[str, ...] = ("rocm-audit report . --compare OTHER.json.gz",)
    elif header.device.backend == "cuda":
        how = "This is the NVIDIA side. On the AMD machine, name this folder:"
        commands = ("rocm-audit run cases.audit --device hip --compare THIS_FOLDER",)
    else:
        how = (
            "No times of an NVIDIA card are at hand. To have them, time the cases there, then set them beside this run:"
        )
        commands = (TIME_THERE, BESIDE)
    return answered(ASK, "open", short, [_of_step(judgement, step), how], EVIDENCE, commands=commands)


def _of_step(judgement: Judgement, step: Step) -> str:
    n_timed = len(judgement.verdicts) - step.n_untimed
    several = f" (of {step.n_steps}, on average)" if step.n_steps > 1 else ""
    lost = f"; at the device's limits it would take {text.time_text(step.us - step.lost_us)}" if step.lost_us else ""
    left_out = not_in_step(judgement, step)
    return (
        f"A step{several} takes {text.time_text(step.us)} of device time, over {n_timed:,} timed of "
        f"{text.plural(len(judgement.verdicts), 'case')}{lost}." + (f" Not in it: {left_out}." if left_out else "")
    )


def _beside(judgement: Judgement, beside: SideBySide, step: Step) -> Answer:
    here, other = judgement.run.header, beside.other
    n_here, n_there = max(here.source.n_steps or 1, 1), max(other.source.n_steps or 1, 1)
    there_us = sum((row.there_us or 0.0) * row.n_there for row in beside.rows) / n_there
    here_us = sum((row.here_us or 0.0) * row.n_here for row in beside.rows) / n_here
    if not beside.rows or not there_us or not here_us:
        said = f"It has no call in common with the run on {other.device.name} ({other.evidence})."
        return answered(ASK, "open", f"{text.time_text(step.us)}, compared with nothing.", [said], EVIDENCE)
    said = (
        f"{text.plural(len(beside.rows), 'kind')} of call ran on both: in a step {text.time_text(here_us)} on "
        f"{here.device.name} and {text.time_text(there_us)} on {other.device.name} ({other.evidence})."
    )
    apart = [
        f"{text.plural(len(rows), 'kind')} {text.time_text(us)} only on {device}"
        for rows, us, device in (
            (beside.only_here, beside.here_step_us - here_us, here.device.name),
            (beside.only_there, beside.there_step_us - there_us, other.device.name),
        )
        if rows
    ]
    rest = f"Besides, {' and '.join(apart)}: these are not in the comparison." if apart else ""
    dearer, cheaper = device_time.sides(beside)
    points = [_side(row) for row in (*dearer[:MAX_SIDE], *cheaper[:MAX_SIDE])]
    short = _compared(here_us, there_us, other.device.name)
    return answered(ASK, "open", short, [said, rest, _of_step(judgement, step)], EVIDENCE, points, most=2 * MAX_SIDE)


def _compared(here_us: float, there_us: float, other: str) -> str:
    """``0.93 times what it costs on NVIDIA H100.``"""
    return f"{here_us / there_us:.2f} times what it costs on {other}."


def _side(row: SideRow) -> Point:
    anchor = f"case-{safe_name(row.keys[0])}" if row.keys else ""
    times = f"{text.time_text(row.here_us)} here, {text.time_text(row.there_us)} there, a call"
    name = f"{text.short_op(row.op)} {text.one_line(row.signature, 80)}"
    return Point(
        "dearer" if row.cost_us > 0 else "cheaper", name, times, f"{device_time.cost_text(row.cost_us)} a step", anchor
    )


def _elsewhere(judgement: Judgement, there: DeviceTimes, step: Step) -> Answer:
    """Times that came with the trace, by key."""
    pairs = [
        (verdict.total_us, there.times[verdict.key].median_us * verdict.n_calls)
        for verdict in judgement.verdicts
        if verdict.total_us is not None and verdict.key in there.times
    ]
    here_us, there_us = (sum(pair[side] for pair in pairs) / step.n_steps for side in (0, 1))
    if not here_us or not there_us:
        return _alone(judgement, step)
    said = (
        f"{len(pairs):,} of {text.plural(len(judgement.verdicts), 'case')} were timed on both: in a step "
        f"{text.time_text(here_us)} here and {text.time_text(there_us)} on {there.device.name} ({there.evidence}; its "
        "times came with the trace)."
    )
    short = _compared(here_us, there_us, there.device.name)
    return answered(ASK, "open", short, [said, _of_step(judgement, step)], EVIDENCE)
