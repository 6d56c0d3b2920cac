"""The terminal summary: one screen, plain where nobody wants colours, and nothing a name could do to it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from audit.report import markdown
from audit.report.terminal import render_terminal
from audit.verdicts import Judgement, Tried


def test_the_verdict_comes_first_then_the_evidence_then_the_counts(make_judgement: Callable[..., Judgement]) -> None:
    lines = render_terminal(make_judgement(60), 120).splitlines()
    assert lines[:5] == [
        "Not measured on AMD: 18 of 60 cases need attention",
        "Simulated · not measured on AMD",
        "✗ 6 unsupported   ≠ 6 divergent   ↩ 3 falling back   ~ 3 slow   ? 6 inconclusive   "
        "✓ 36 supported   of 60 cases",
        "✗ addmm ×2                     the device crashed on aten::addmm.default: Memory access fault by GPU node-1 "
        "(signal",
        "                               6, seen again alone)",
    ]


@pytest.mark.parametrize("width", [60, 80, 160])
def test_it_fits_on_a_screen(make_judgement: Callable[..., Judgement], width: int) -> None:
    lines = render_terminal(make_judgement(500), width, report=Path("reports/llama/report.html")).splitlines()
    assert len(lines) <= 24
    assert max(len(line) for line in lines) <= width
    assert lines[-1] == "report: reports/llama/report.html"


def test_equal_findings_of_an_op_are_one_line(make_judgement: Callable[..., Judgement]) -> None:
    shown = render_terminal(make_judgement(60), 120)
    assert "✗ addmm ×2" in shown


def test_colours_are_there_only_when_asked_for(make_judgement: Callable[..., Judgement]) -> None:
    assert "\x1b" not in render_terminal(make_judgement(60), 80)
    assert "\x1b[" in render_terminal(make_judgement(60), 80, colour=True)


def test_no_name_can_steer_the_terminal(hostile_judgement: Judgement) -> None:
    shown = render_terminal(hostile_judgement, 200)
    assert not set(shown) & {"\x1b", "\x00", "\x9b", "\u202e", "\x07"}


def test_an_audit_of_nothing_still_says_so(make_judgement: Callable[..., Judgement]) -> None:
    judgement = replace(make_judgement(0), headline="not measured on AMD: no op was recorded")
    shown = render_terminal(judgement, 80)
    assert "no op was recorded" in shown
    assert "of 0 cases" in shown


def test_what_cures_a_finding_stands_in_its_second_line(make_judgement: Callable[..., Judgement]) -> None:
    judgement = make_judgement(60)
    cure = Tried("contiguous", "inputs made contiguous", "cures", "supported")
    cured = replace(judgement, verdicts=tuple(replace(verdict, tried=(cure,)) for verdict in judgement.verdicts))
    shown = render_terminal(cured, 120)
    assert "→ cured with inputs made contiguous" in shown
    assert len(shown.splitlines()) <= 24
    assert "; cured with inputs made contiguous |" in markdown.render(cured)


def test_what_was_not_audited_is_counted(make_judgement: Callable[..., Judgement]) -> None:
    assert "4 calls not audited, see the report" in render_terminal(make_judgement(5), 80)
