"""The forms of an outcome: what each says of the same failing, waived and unfinished gates."""

from __future__ import annotations

import datetime
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from junitparser import JUnitXml

from audit.gate import annotations, junit, markdown, record, sarif
from audit.gate.outcome import GateOutcome
from audit.gate.place import anchor_of
from audit.gate.policy import Policy
from audit.gate.registry import GATE_FORMATS, write
from audit.gate.side import Cause, expectations_text
from audit.gate.terminal import render_terminal
from audit.option_values import GATE_FORMATS as OFFERED
from tests.gate.sarif_form import LOG, faults

HEADLINE = "The gate fails, and the two runs are not of one trace: 1 regressed, 1 gone, of 3 cases: mm, relu."
HOSTILE = "a|b <img src=x> `c` @all ::error::x%\n::set-output name=y::z \x1b[31m \ud800 ﷽"


@pytest.fixture(scope="module")
def failing(build: Any) -> GateOutcome:
    """mm got divergent, bmm slower and waived, relu is gone; torch is another."""
    bmm = build.case("bmm-1", op="aten::bmm.default")
    relu = build.case("relu-2", op="aten::relu.default", sources=("/elsewhere/net.py:3",))
    baseline = build.side(build.case(), bmm, relu, build.case("ok-3"), environment={"torch": "2.12.0", "hip": "7.2.1"})
    candidate = build.side(
        build.case(status="divergent", reason="40 noise floors off"),
        build.case("bmm-1", op="aten::bmm.default", device_us=300.0),
        build.case("ok-3"),
    )
    return build.gate(baseline, candidate, Policy(waivers=(build.waiver(op="bmm"),)))


@pytest.fixture(scope="module")
def hostile(build: Any) -> GateOutcome:
    """Every text of the candidate is a trick."""
    case = build.case(
        status="divergent",
        reason=HOSTILE,
        signature=HOSTILE,
        op=f"aten::{HOSTILE}",
        sources=(f"{HOSTILE}.py:3", "a b%.py:1"),
    )
    side = build.side(case, environment={"torch": HOSTILE, HOSTILE: HOSTILE}, name=HOSTILE)
    return build.gate(build.side(), side)


def test_the_record_has_every_difference_with_its_level_and_waiver(failing: GateOutcome) -> None:
    content = record.record(failing)
    assert (content["conclusion"], content["exit_code"], content["n_same"]) == ("failed", 1, 1)
    told = [(one["kind"], one["key"], one["level"]) for one in content["differences"]]
    assert told == [("regressed", "mm-0", "fail"), ("gone", "relu-2", "fail"), ("slower", "bmm-1", "note")]
    assert content["differences"][2]["waiver"]["expires"] == "2026-11-30"
    assert [(one["group"], one["baseline"]) for one in content["environment"]] == [("torch", "2.12.0")]
    assert content["headline"] == HEADLINE


def test_junit_has_a_failure_for_what_fails_and_skips_what_is_waived(failing: GateOutcome) -> None:
    document = JUnitXml.fromstring(junit.render(failing).encode())
    results = {test.name.split()[-1]: [type(r).__name__ for r in test.result] for suite in document for test in suite}
    assert results == {
        "run": [], "not": [], "needed": [],
        "[mm-0]": ["Failure"], "[bmm-1]": ["Skipped"], "[relu-2]": ["Failure"], "[ok-3]": [],
    }  # fmt: skip


def test_sarif_is_of_the_form_of_the_standard(failing: GateOutcome, hostile: GateOutcome) -> None:
    for outcome in (failing, hostile):
        assert faults(json.loads(sarif.render(outcome)), LOG) == []
    run = sarif.log(failing)["runs"][0]
    first, second, third = run["results"]
    assert (first["ruleId"], first["level"]) == ("gate/regressed", "error")
    assert run["tool"]["driver"]["rules"][first["ruleIndex"]]["id"] == "gate/regressed"
    place = first["locations"][0]["physicalLocation"]
    assert (place["artifactLocation"]["uri"], place["region"]["startLine"]) == ("src/net.py", 7)
    [elsewhere] = second["locations"]
    assert elsewhere["physicalLocation"]["artifactLocation"]["uri"] == "baseline", "GitHub takes no result without one"
    assert third["suppressions"][0]["kind"] == "external"


def test_what_is_of_no_line_of_the_program_stands_at_its_line_of_the_expectations(
    build: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    side = build.side(*(build.case(f"mm-{i}", sources=()) for i in range(3)))
    Path("ci").mkdir()
    Path("ci/expected.json").write_text(expectations_text(side))
    outcome = build.gate(side, build.side(side.cases[0], causes=(Cause("NUM220", "divergent"),)))
    outcome = replace(outcome, anchor=anchor_of(tmp_path / "ci/expected.json"))
    shown = {one["message"]["text"].split()[-1]: one for one in sarif.log(outcome)["runs"][0]["results"]}
    places = {key: one["locations"][0]["physicalLocation"] for key, one in shown.items()}
    lines = Path("ci/expected.json").read_text().splitlines()
    for key in ("mm-1", "mm-2"):
        assert places[f"[{key}]"]["artifactLocation"]["uri"] == "ci/expected.json"
        assert key in lines[places[f"[{key}]"]["region"]["startLine"] - 1]
    assert places["[run-NUM220]"]["region"] == {"startLine": 1}
    assert len({one["partialFingerprints"]["primaryLocationLineHash"] for one in shown.values()}) == 3
    assert anchor_of(tmp_path.parent).file == tmp_path.parent.name, "not a path that leads out of the repository"


def test_sarif_has_no_more_results_than_github_takes(build: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sarif, "MAX_RESULTS", 2)
    cases = [build.case(f"mm-{i}") for i in range(5)]
    run = sarif.log(build.gate(build.side(*cases), build.side(cases[0])))["runs"][0]
    assert len(run["results"]) == 2
    told = [one["message"]["text"] for one in run["invocations"][0]["toolExecutionNotifications"]]
    assert "2 more differences in gate.json" in told


def test_the_check_of_sarif_finds_faults() -> None:
    assert faults({"version": "2.0", "runs": [{"tool": {"driver": {}}, "result": []}]}, LOG) == [
        "log.version is '2.0'",
        "log.runs[0] has the unknown result",
        "log.runs[0].tool.driver lacks name",
    ]


def test_annotations_name_file_and_line_and_cannot_be_broken_out_of(failing: GateOutcome, hostile: GateOutcome) -> None:
    lines = annotations.render(failing).splitlines()
    assert lines[0] == (
        "::error file=src/net.py,line=7,title=rocm-audit gate%3A regressed::"
        "mm was supported, and is divergent (40 noise floors off) [mm-0]"
    )
    assert lines[1].startswith("::error title=rocm-audit gate%3A gone::relu was supported")
    assert len(lines) == 2
    for line in annotations.render(hostile).splitlines():
        assert line.startswith(("::error ", "::warning "))
        assert "file=a b%25.py,line=1," in line


def test_many_annotations_are_ten_and_a_count(build: Any) -> None:
    cases = [build.case(f"mm-{i:02}") for i in range(30)]
    lines = annotations.render(build.gate(build.side(*cases), build.side(cases[0]))).splitlines()
    assert len(lines) == 11
    assert lines[-1] == "::notice title=rocm-audit gate::19 more, in the job summary"


def test_markdown_names_what_differs_around_the_runs_before_the_cases(failing: GateOutcome) -> None:
    page = markdown.render(failing)
    assert page.startswith(
        "# ❌ The gate fails, and the two runs are not of one trace: 1 regressed, 1 gone, of 3 cases: mm, relu."
    )
    assert page.index("not of the same trace") < page.index("| torch | torch | 2.12.0 | 2.13.0 |") < page.index("mm-0")
    assert "waived until 2026-11-30 by Ada: known" in page


def test_markdown_of_thousands_of_differences_fits_a_comment(build: Any) -> None:
    cases = [build.case(f"mm-{i}", status="divergent", reason="😀" * 3000) for i in range(3_000)]
    page = markdown.render(build.gate(build.side(*(build.case(f"mm-{i}") for i in range(3_000))), build.side(*cases)))
    assert len(page.encode()) < 65_536
    assert "2,940 more differences in gate.json" in page


def test_markdown_fits_a_comment_whatever_has_to_be_escaped(build: Any) -> None:
    bad = "<@*|" * 500
    before = [build.case(f"mm-{i}") for i in range(300)]
    after = [replace(case, op=f"aten::{bad}", status="divergent", reason=bad) for case in before]
    waivers = tuple(build.waiver(op=f"{bad}{i}", expires=datetime.date(2020, 1, 1)) for i in range(300))
    around = {f"{i}{bad}": bad for i in range(100)}
    outcome = build.gate(build.side(*before, environment=around), build.side(*after), Policy(waivers=waivers))
    page = markdown.render(outcome)
    assert 50_000 < len(page.encode()) < 65_536
    assert re.search(r"\d+ more differences in gate\.json", page)
    assert re.search(r"- ❌ and \d+ more\n", page)


def test_nothing_from_the_program_is_markup(hostile: GateOutcome) -> None:
    page, shown = markdown.render(hostile), render_terminal(hostile, 120)
    outside_code = re.sub(r"(`+)[^`].*?[^`]?\1(?!`)", "", page)
    assert "<img" not in outside_code
    assert "@all" not in outside_code
    assert "\x1b" not in page + shown
    JUnitXml.fromstring(junit.render(hostile).encode())


def test_the_terminal_shows_the_headline_first_and_colours_only_where_asked(failing: GateOutcome) -> None:
    lines = render_terminal(failing, 100).splitlines()
    assert lines[0] == HEADLINE
    shown = " ".join(" ".join(lines).split())
    assert shown.index("not of the same trace") < shown.index("torch: 2.12.0 → 2.13.0") < shown.index("[mm-0]")
    assert "\x1b[" in render_terminal(failing, 100, colour=True)


def test_an_unfinished_gate_is_an_error_in_every_form(build: Any) -> None:
    outcome = build.gate(build.side(), build.side(incomplete="the device was lost"))
    assert "the device was lost" in outcome.headline
    assert "<error" in junit.render(outcome)
    assert sarif.log(outcome)["runs"][0]["invocations"][0]["executionSuccessful"] is False
    assert annotations.render(outcome).startswith("::error title=rocm-audit gate::The gate cannot say")


def test_every_form_offered_is_written(failing: GateOutcome, tmp_path: Path) -> None:
    assert set(OFFERED) == set(GATE_FORMATS)
    assert [path.name for path in write(failing, OFFERED, tmp_path)] == [
        "gate.md",
        "gate.xml",
        "gate.json",
        "gate.sarif",
    ]
