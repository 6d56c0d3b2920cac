"""The page as a file: its size, its denominators, and that nothing in it but ours is markup."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from audit.report.page import render
from audit.report.rows import case_rows, op_rows
from audit.rules.judge import judge
from audit.run_records import Run, RunEnd
from audit.schema import Case, Ceilings, Kernel, Measurement, Outcome, Path, Rate, TensorSpec, Timing
from audit.verdicts import Judgement


class Elements(HTMLParser):
    """Every start tag with its attributes, and the text of the page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    def ids(self) -> list[str]:
        return [value for _, attributes in self.found if (value := attributes.get("id"))]

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def talkative(judgement: Judgement) -> Judgement:
    """Every case with pages of stderr, hundreds of warnings and modules: as bad as a real library can be."""
    noise = (
        "MIOpen(HIP): Warning [IsEnoughWorkspace] Solver <GemmFwdRest>, workspace required: 590224, provided: 0\n" * 200
    )

    def loud(measurement: Measurement) -> Measurement:
        device = Outcome(measurement.device.kind, "RuntimeError", noise, stderr=noise, warnings=(noise[:300],) * 100)
        return replace(measurement, device=device, comparisons=measurement.comparisons * 40)

    measurements = {key: loud(m) for key, m in judgement.run.measurements.items()}
    verdicts = tuple(
        replace(v, modules=tuple(f"{m}.{i}" for i in range(50) for m in v.modules)) for v in judgement.verdicts
    )
    return replace(judgement, run=replace(judgement.run, measurements=measurements), verdicts=verdicts)


def test_500_cases_with_findings_stay_far_below_3_mb(make_judgement: Callable[..., Judgement]) -> None:
    size = len(render(make_judgement(500)).encode())
    print(f"500 cases: {size / 1e6:.2f} MB")
    assert size < 2_000_000


def test_the_page_of_a_real_run_has_every_verdict_and_stays_below_1_mb(llama_judgement: Judgement) -> None:
    page = render(llama_judgement)
    assert page.count('<details class="case') == len(llama_judgement.verdicts) == 274
    assert len(page.encode()) < 1_000_000


def test_500_cases_that_all_talk_without_end_stay_below_3_mb_and_say_what_is_left_out(
    make_judgement: Callable[..., Judgement],
) -> None:
    page = render(talkative(make_judgement(500)))
    print(f"500 talkative cases: {len(page.encode()) / 1e6:.2f} MB")
    assert len(page.encode()) < 3_000_000
    assert "characters left out, all in run.jsonl" in page


def test_5000_cases_are_built_whole(make_judgement: Callable[..., Judgement]) -> None:
    judgement = make_judgement(5000)
    start = time.perf_counter()
    page = render(judgement)
    print(f"5,000 cases: {time.perf_counter() - start:.2f} s, {len(page.encode()) / 1e6:.1f} MB")
    assert page.count('<details class="case') == 5000
    assert page.count("<summary>Inputs") == 1500  # 6 of each 20 have a finding


@pytest.mark.parametrize(
    ("backend", "title"),
    [
        ("hip", "Measured on AMD"),
        ("cuda", "Stand-in · not measured on AMD"),
        ("sim", "Simulated · not measured on AMD"),
        ("none", "Predicted · not measured on AMD"),
    ],
)
def test_the_evidence_level_is_the_first_thing_on_the_page(
    make_judgement: Callable[..., Judgement], backend: str, title: str
) -> None:
    page = Elements(render(make_judgement(20, backend=backend)))
    body = page.text.split("Skip to the operators ")[1]
    assert body.startswith(title)


def test_only_a_measured_run_gives_percentages(make_judgement: Callable[..., Judgement]) -> None:
    def shares(backend: str) -> int:
        text = Elements(render(make_judgement(60, backend=backend))).text
        return text.split("Coverage Operators")[1].split("Where the time goes")[0].count(" %")

    assert shares("hip") > 10
    assert [shares(backend) for backend in ("cuda", "sim", "none")] == [0, 0, 0]


def test_every_case_and_op_has_an_anchor_of_its_own(make_judgement: Callable[..., Judgement]) -> None:
    judgement = make_judgement(60)
    ids = Elements(render(judgement)).ids()
    assert len(ids) == len(set(ids))
    rows = case_rows(judgement)
    assert {f"case-{row.verdict.key}" for row in rows} <= set(ids)
    assert {op.anchor for op in op_rows(rows)} <= set(ids)


def test_the_page_names_nothing_outside_itself(make_judgement: Callable[..., Judgement]) -> None:
    for tag, attributes in Elements(render(make_judgement(60))).found:
        assert tag not in {"link", "img", "iframe", "object", "embed", "base"} or attributes.get("href") == "data:,"
        assert "src" not in attributes
        address = attributes.get("href") or ""
        assert address.startswith(("#", "repro/", "https://rocm.docs.amd.com/")) or tag == "link" or not address


def test_hostile_names_add_no_element_and_no_attribute(
    make_judgement: Callable[..., Judgement], hostile_judgement: Judgement
) -> None:
    plain, hostile = Elements(render(make_judgement(60))), Elements(render(hostile_judgement))
    assert {tag for tag, _ in hostile.found} == {tag for tag, _ in plain.found}
    assert {name for _, a in hostile.found for name in a} <= {name for _, a in plain.found for name in a}
    assert not [a for _, a in hostile.found if (a.get("href") or "").lower().startswith("javascript:")]
    assert "<script>alert(1)</script>" in hostile.text
    assert "{{ 7 * 7 }}{% raw %}" in hostile.text
    assert "\\u202egnp.exe" in hostile.text


def test_a_partial_audit_and_a_program_that_failed_say_so(make_judgement: Callable[..., Judgement]) -> None:
    judgement = make_judgement(5)
    source = replace(judgement.run.header.source, error="ValueError: bad batch")
    run = replace(
        judgement.run, header=replace(judgement.run.header, source=source), end=RunEnd(False, "the device was lost")
    )
    text = Elements(render(replace(judgement, run=run))).text
    assert "The program ended early. What it had executed until then is audited. ValueError: bad batch" in text
    assert "This audit is partial. The device was lost." in text


def test_a_run_without_a_case_is_still_a_page(make_judgement: Callable[..., Judgement]) -> None:
    text = Elements(render(replace(make_judgement(0), headline="not measured on AMD: no op was recorded"))).text
    assert "No op was recorded" in text
    assert "No case was judged." in text


def test_not_audited_thresholds_and_preflight_stand_on_the_page(make_judgement: Callable[..., Judgement]) -> None:
    text = Elements(render(make_judgement(20))).text
    assert "torch.compile region compiled code has no aten calls 4" in text
    assert "ERROR_RATIO 16 Higham 2002, section 3.1" in text
    assert "Preflight warning: override HSA_OVERRIDE_GFX_VERSION is set" in text


@pytest.mark.parametrize("measured", [True, False], ids=["rates measured", "rates of the datasheet"])
def test_a_limit_says_whose_rates_it_is_of(measured: bool, make_judgement: Callable[..., Judgement]) -> None:
    weight = TensorSpec((8192, 8192), (8192, 1), "bfloat16")
    case = Case("mm-1", "aten::mm.default", (weight, weight))
    kernel = Kernel("Cijk_Ailk_Bljk_BBS_BH_MT256x256x64_gfx942", 2000.0)
    measurement = Measurement(
        "mm-1", Outcome("ok"), Outcome("ok"), path=Path(True, True, (case.op,), (kernel,)),
        device_time=Timing(2000.0, 1.0, 9),
    )  # fmt: skip
    ceilings = Ceilings(Rate(4000.0, 1.0, 9), {"bfloat16": Rate(654.0, 1.0, 9)}, Rate(6.0, 0.5, 9))
    header = replace(make_judgement(1, backend="hip").run.header, n_cases=1, ceilings=ceilings if measured else None)
    text = Elements(render(judge(Run(header, (case,), {"mm-1": measurement})))).text
    assert ("1.68 ms by arithmetic" in text, "841 µs by arithmetic" in text) == (measured, not measured)
    assert ("at rates measured before the first case" in text) == measured
    assert ("at datasheet peaks" in text) == (not measured)
    assert ("654 TFLOPS" in text and "1,307 TFLOPS" in text) == measured
