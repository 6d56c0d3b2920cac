"""The story, the page, the terminal, Markdown and summary.json tell the same numbers of the same run."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest

from audit.report.answers import Answer
from audit.report.legend import STATUS_TEXTS, status_words
from audit.report.markdown import escaped
from audit.report.markdown import render as markdown
from audit.report.page import render as page
from audit.report.story import story
from audit.report.summary import summary
from audit.report.terminal import render_terminal
from audit.rules.judge import judge
from audit.run_records import RunEnd
from audit.schema import EVIDENCE_BY_BACKEND, IMPORTED, Backend, DeviceInfo
from audit.verdicts import Judgement


def as_on(judgement: Judgement, backend: Backend, name: str, arch: str) -> Judgement:
    """The same records, as if this device had given them, judged again."""
    header = replace(
        judgement.run.header, evidence=EVIDENCE_BY_BACKEND[backend], device=DeviceInfo(backend, name, arch)
    )
    return judge(replace(judgement.run, header=header))


def cut_short(judgement: Judgement) -> Judgement:
    """Half of the measurements, as after a time budget."""
    kept = dict(list(judgement.run.measurements.items())[: len(judgement.run.measurements) // 2])
    return judge(replace(judgement.run, measurements=kept, end=RunEnd(False, "the time budget was spent (8 s)")))


def recorded(judgement: Judgement) -> Judgement:
    """As another tool's recording, of which no number was compared."""
    header = replace(judgement.run.header, source=replace(judgement.run.header.source, kind=IMPORTED))
    return as_on(replace(judgement, run=replace(judgement.run, header=header)), "hip", "AMD Instinct MI300X", "gfx942")


RUNS: dict[str, Callable[[Judgement], Judgement]] = {
    "simulated": lambda judgement: judgement,
    "measured": lambda judgement: as_on(judgement, "hip", "AMD Instinct MI300X", "gfx942"),
    "stand-in": lambda judgement: as_on(judgement, "cuda", "NVIDIA H200", "sm_90"),
    "predicted": lambda judgement: as_on(judgement, "none", "none", "gfx942"),
    "imported": recorded,
    "cut short": cut_short,
}


@pytest.fixture(scope="module", params=list(RUNS))
def judged(request: pytest.FixtureRequest, llama_judgement: Judgement) -> Judgement:
    return RUNS[request.param](llama_judgement)


def told_by(judgement: Judgement) -> dict[str, Answer]:
    return {answer.question: answer for answer in story(judgement).answers}


def all_of(answer: Answer) -> str:
    return " ".join((answer.short, *answer.sentences))


def test_calls_and_cases_add_up_to_what_was_recorded(judged: Judgement) -> None:
    found = summary(judged)
    n_cases, n_calls = len(found["verdicts"]), sum(verdict["calls"] for verdict in found["verdicts"])
    n_recorded = n_calls + sum(item["calls"] for item in found["not_audited"])
    assert (n_cases, n_calls) == (found["coverage"]["cases"]["total"], found["coverage"]["calls"]["total"])
    assert n_recorded == judged.run.header.n_recorded
    shown = f"{n_cases} cases, {n_calls:,} of {n_recorded:,} recorded calls</span>"
    assert shown in page(judged)
    first = all_of(told_by(judged)["May I migrate?"])
    n_ran = sum(measurement.device.kind != "not_run" for measurement in judged.run.measurements.values())
    if found["evidence"] == "measured" and judged.run.header.source.kind != IMPORTED:
        assert f"of {n_calls:,} calls" in first
    else:
        assert f"of {n_recorded:,} recorded calls)" in first
        assert re.search(rf"\b{n_ran:,}( of {n_cases:,})? cases \(", first)


def test_every_form_counts_the_same_cases_by_status(judged: Judgement) -> None:
    counts = Counter(verdict["status"] for verdict in summary(judged)["verdicts"])
    n_cases = sum(counts.values())
    terminal, html, told = render_terminal(judged, 120), page(judged), told_by(judged)
    assert f"of {n_cases} cases" in terminal
    for status, words in STATUS_TEXTS.items():
        n = counts[status]
        label = status_words(status, judged.run.header.evidence).label
        assert f"<b>{n:,}</b><span>{label}</span>" in html
        assert not n or f"{words.mark} {n:,} {words.label}" in terminal
    blocks = all_of(told["What blocks?"])
    for status in ("unsupported", "divergent"):
        n = counts[status]
        assert (f"{n} {'case' if n == 1 else 'cases'} {status}" in blocks) == bool(n)
    if counts["inconclusive"] and judged.run.header.source.kind != IMPORTED:
        assert (
            f"{counts['inconclusive']} of {n_cases} cases {'is' if counts['inconclusive'] == 1 else 'are'} inconclusive"
            in blocks
        )
    n_blocked_ops = len({v["op"] for v in summary(judged)["verdicts"] if v["status"] in ("unsupported", "divergent")})
    assert not n_blocked_ops or re.search(rf"\b{n_blocked_ops} ops?\b", told["What blocks?"].short)


def test_numbers_that_were_compared_and_that_were_not_are_all_cases(judged: Judgement) -> None:
    verdicts = summary(judged)["verdicts"]
    answer = all_of(told_by(judged)["Are the numbers the same?"])
    apart = re.search(r"Not compared: ([\d,]+) cases?", answer)
    n_apart = int(apart[1].replace(",", "")) if apart else 0
    compared = re.search(
        r"Of (\d+) cases, (\d+) were compared with the CPU: (\d+) .*?, (\d+) within .*?, (\d+) ", answer
    )
    if compared is None:
        assert (judged.run.header.evidence == "predicted") != (judged.run.header.source.kind == IMPORTED)
        assert n_apart == len(verdicts)
        return
    of, n, same, within, beyond = (int(number) for number in compared.groups())
    assert (of, n + n_apart, same + within + beyond) == (len(verdicts), len(verdicts), n)
    wrong = [v for v in verdicts if any(f["code"][:3] == "NUM" and f["status"] == "divergent" for f in v["findings"])]
    assert beyond == len(wrong)
    assert answer.startswith(f"Not in {beyond} of {n} compared cases")


def microseconds(shown: str) -> float:
    """Of ``12.3 ms``, which has three digits."""
    number, unit = shown.replace(",", "").split(" ")
    return float(number) * {"µs": 1.0, "ms": 1e3, "s": 1e6}[unit]


def test_what_a_step_takes_and_what_is_not_in_it_are_the_device_time_of_all_calls(judged: Judgement) -> None:
    found, answer = summary(judged), all_of(told_by(judged)["What does a step cost?"])
    takes = re.search(r"A step \(of (\d+), on average\) takes ([\d.,]+ \w+) of device time", answer)
    if judged.run.header.device.backend not in ("hip", "cuda"):
        assert takes is None
        return
    assert takes is not None
    apart = re.findall(r"([\d.,]+ [µm]?s) of (?:copies|views)", answer)
    total_us = sum(verdict["total_us"] or 0.0 for verdict in found["verdicts"])
    assert total_us == pytest.approx(found["coverage"]["device_time"]["total"])
    assert microseconds(takes[2]) == pytest.approx(found["step"]["us"], rel=0.01)
    shown_us = microseconds(takes[2]) + sum(microseconds(shown) for shown in apart)
    assert shown_us * int(takes[1]) == pytest.approx(total_us, rel=0.01)


def test_what_to_change_counts_the_findings_of_the_summary(judged: Judgement) -> None:
    n_found = sum(v["status"] not in ("supported", "inconclusive") for v in summary(judged)["verdicts"])
    answer = all_of(told_by(judged)["What do I change?"])
    if left := re.search(r"No remedy is known for (\d+) of (\d+) cases with a finding", answer):
        assert int(left[1]) <= int(left[2]) == n_found


def test_markdown_has_the_sentences_of_the_page(judged: Judgement) -> None:
    text = markdown(judged)
    for answer in story(judged).answers:
        assert f"**{escaped(answer.question)} {escaped(answer.short, 300)}**" in text
        for sentence in answer.sentences:
            assert escaped(sentence, 900) in text
