"""What the reports say of a step against the limits of its device."""

from __future__ import annotations

from dataclasses import replace

import pytest

from audit.report import markdown, page, summary, terminal
from audit.report.lost_time import lost_share_text, lost_text, step_limits
from audit.rules.judge import judge
from audit.rules.lost_time import LostTime, Step
from audit.run_records import Run
from audit.schema import Ceilings, Kernel, NotAudited, Rate, Source, TensorSpec, Timing
from tests.rules.conftest import Build

CEILINGS = Ceilings(Rate(4000.0, 1.0, 9), {"float32": Rate(100.0, 1.0, 9)}, Rate(4.0, 0.1, 9))
SPEC = TensorSpec((4096, 4096), (4096, 1), "float32")


def judgement(host_us: float | None = 3000.0, backend="hip", **header):
    """One product of 1.5 ms and an exp of 50 us, in two steps."""
    build = Build()
    made = build.fact(4096, 4096)

    def measured(key, us):
        timing = Timing(us, 1.0, 20, host_us=host_us, lead_us=200.0)
        return build.measurement(build.comparison(expected=made, actual=made), key=key, device_time=timing)

    cases = (
        build.case("aten::mm.default", SPEC, SPEC, key="mm-0", n_calls=2, modules=("net.<b>evil</b>.0",)),
        build.case("aten::exp.default", SPEC, key="exp-0", n_calls=2),
    )
    given = {"ceilings": CEILINGS, "source": Source("script", "m.py", n_steps=2)} | header
    measurements = {"mm-0": measured("mm-0", 1500.0), "exp-0": measured("exp-0", 50.0)}
    return judge(Run(build.header(backend, **given), cases, measurements))


def test_the_step_is_said_in_sentences() -> None:
    limits = step_limits(judgement())
    assert limits is not None
    assert limits.sentences == (
        "A step (of 2, on average) takes 1.55 ms of device time. With every call at its limit it would gain 159 µs "
        "(10.2 %).",
        "Its 137 GFLOP of model arithmetic use 88.7 % of the device's rates measured there over that time (model FLOPs "
        "utilisation).",
        "Issuing its calls takes the host 6.00 ms, without the program's own Python: the device waits, and faster "
        "kernels gain nothing.",
    )
    assert [ranking.title for ranking in limits.rankings] == ["Op", "Module", "Library"]
    assert [row.verdict.key for row in limits.cases] == ["mm-0", "exp-0"]


def test_the_sentences_say_what_is_not_in_the_step() -> None:
    orphans = NotAudited("kernels", "orphaned", n_seen=2, kernels=(Kernel("k", 600.0, 2),))
    given = judgement(not_audited=(orphans,))
    limits = step_limits(judge(replace(given.run, measurements={"mm-0": given.run.measurements["mm-0"]})))
    assert limits is not None
    assert limits.sentences[:2] == (
        "A step (of 2, on average) takes 1.50 ms of device time, not counting 1 of 2 cases that were not timed. With "
        "every call at its limit it would gain 126 µs (8.4 %).",
        "Not in it: 300 µs of what no case stands for.",
    )


def test_what_has_no_limit_loses_nobody_knows_how_much() -> None:
    step = Step(1, 100.0, 40.0, 20.0, 0.0, None, None)
    known, unknown = LostTime("a", 1, 80.0, 40.0, 0.0), LostTime("b", 1, 20.0, 0.0, 20.0)
    assert (lost_text(known), lost_share_text(known, step)) == ("40.0 µs", "40.0 %")
    assert (lost_text(unknown), lost_share_text(unknown, step)) == ("–", "–")


def test_a_host_that_is_faster_than_the_device_bounds_nothing() -> None:
    limits = step_limits(judgement(host_us=10.0))
    assert limits is not None
    assert limits.sentences[-1].endswith(
        "takes the host 20.0 µs, without the program's own Python: less than the device."
    )
    unknown = step_limits(judgement(host_us=None))
    assert unknown is not None
    assert "host" not in unknown.sentences[-1]


@pytest.mark.parametrize("backend", ["sim", "cpu"])
def test_a_device_whose_times_mean_nothing_has_no_limits(backend: str) -> None:
    assert step_limits(judgement(backend=backend)) is None
    assert "could gain" not in page.render(judgement(backend=backend))


def test_every_format_has_the_step_and_none_is_steered_by_a_name_in_it() -> None:
    given = judgement()
    html = page.render(given)
    assert "What the step could gain" in html
    assert "<b>evil</b>" not in html
    assert "## What the step could gain" in markdown.render(given)
    assert "would gain 159 µs" in " ".join(terminal.render_terminal(given).split())
    content = summary.summary(given)
    assert content["step"]["us"] == 1550
    assert content["step"]["utilisation"] == pytest.approx(0.8867, abs=1e-4)
    assert [group["name"] for group in content["lost_by"]["op"]] == ["aten::mm", "aten::exp"]


def test_datasheet_peaks_are_called_so() -> None:
    given = judgement()
    header = replace(given.run.header, ceilings=None)
    limits = step_limits(judge(replace(given.run, header=header)))
    assert limits is not None
    assert "datasheet peaks" in limits.sentences[1]
