"""The played step on the page, on the terminal and in summary.json."""

from __future__ import annotations

import json

import pytest

from audit.drift_records import Drift, DriftEnd, DriftStep
from audit.report import page, summary
from audit.report.drift import MAX_MODULES, drift_section
from audit.report.terminal import render_terminal
from audit.rules.judge import judge
from audit.run_records import Run, RunEnd, RunHeader
from audit.schema import DeviceInfo, Source
from audit.verdicts import Judgement

EPS = 2.0**-23


def judgement(n_modules: int, first_off: int) -> Judgement:
    """A chain of modules whose error doubles from ``first_off`` on."""
    steps = tuple(
        DriftStep(
            i, f"k-{i}", "aten::mm.default", "forward", f"M.<{i}>", before=(i - 1,) if i else (), eps=EPS,
            n_elements=999, error=EPS * 4.0 ** max(0, i - first_off + 1), noise=EPS, ratio=1.0,
        )
        for i in range(n_modules)
    )  # fmt: skip
    header = RunHeader(
        "simulated", Source("script", "m.py"), DeviceInfo("sim", "simulated device", "sim"), {}, {}, "", "0", 0, 0
    )
    drift = Drift(steps, DriftEnd(n_modules, n_modules))
    return judge(Run(header, (), {}, end=RunEnd(True), drift=drift))


def test_the_table_keeps_the_row_where_error_starts_and_counts_what_it_leaves_out() -> None:
    section = drift_section(judgement(100, 70))
    assert section is not None
    assert section.start == ("forward", "M.<70>")
    assert "M.<70>" in [row.module for row in section.modules]
    assert len(section.modules) == MAX_MODULES
    assert section.n_left == 60


def test_the_curve_has_a_place_for_each_call_and_the_start() -> None:
    section = drift_section(judgement(5, 3))
    assert section is not None
    assert section.curve is not None
    assert [float(point.split(",")[0]) for point in section.curve.error.split()] == [0.0, 180.0, 360.0, 540.0, 720.0]
    assert section.curve.start == 540.0


def test_a_healthy_step_is_one_sentence_and_no_finding() -> None:
    shown = render_terminal(judgement(5, 99), 200)
    assert "accumulated error is at most 1 x the noise, and no call is beyond its allowance" in shown
    assert json.loads(summary.render(judgement(5, 99)))["drift"]["findings"] == []


def test_a_step_that_drifts_trips_a_gate_and_stands_first_everywhere() -> None:
    judged = judgement(5, 3)
    assert judged.has_any({"divergent"})
    assert judged.headline.startswith("not measured on AMD: accumulated error starts at aten::mm.default, call 3")
    content = json.loads(summary.render(judged))
    assert [finding["code"] for finding in content["drift"]["findings"]] == ["NUM221"]
    assert [row["module"] for row in content["drift"]["modules"]] == [f"M.<{i}>" for i in range(5)]


def test_the_page_escapes_module_names_and_draws_the_curve() -> None:
    html = page.render(judgement(5, 3))
    assert "M.&lt;3&gt;" in html
    assert "M.<3>" not in html
    assert '<polyline class="error"' in html


@pytest.mark.parametrize("steps", [(), (DriftStep(0, "k-0", "aten::mm.default", "forward"),)])
def test_a_step_without_numbers_has_no_curve(steps: tuple[DriftStep, ...]) -> None:
    run = judgement(1, 9).run
    empty = Run(run.header, (), {}, end=RunEnd(True), drift=Drift(steps, DriftEnd(1, len(steps), reason="nothing")))
    section = drift_section(judge(empty))
    assert section is not None
    assert section.curve is None
    assert page.render(judge(empty))
