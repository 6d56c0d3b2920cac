"""What shows a finding again and reports it: ready for upstream from AMD alone, and scripts that run."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import pytest

from audit.report.bug_report import BugReport, bug_report
from audit.report.inputs import input_rows
from audit.report.minimal_script import MAX_OPERANDS, minimal_script
from audit.report.rows import case_rows
from audit.rules.codes import CODES
from audit.schema import IMPORTED, Case, Named, Source, TensorSpec, Values
from audit.verdicts import Finding, Judgement

torch = pytest.importorskip("torch", reason="the scripts run on torch")


def reports(judgement: Judgement) -> list[BugReport]:
    made = (bug_report(row, judgement.run.header) for row in case_rows(judgement))
    return [report for report in made if report is not None]


# --- the text for upstream -------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["sim", "cuda", "none"])
def test_what_was_not_seen_on_amd_has_no_text_for_upstream(
    make_judgement: Callable[..., Judgement], backend: str
) -> None:
    found = reports(make_judgement(20, backend=backend))
    assert len(found) == 6
    for report in found:
        assert (report.is_ready, report.title, report.text) == (False, "", "")
        assert "Reproduce on AMD first" in report.first
        assert "not on an AMD GPU." in report.script


def test_what_was_measured_on_amd_has_title_call_script_versions_and_evidence(
    make_judgement: Callable[..., Judgement],
) -> None:
    report = reports(make_judgement(20, backend="hip"))[0]
    assert report.is_ready
    assert report.first == ""
    assert report.title == "[ROCm] aten::addmm.default fails on AMD Instinct MI300X (gfx942) (bfloat16)"
    heads = [line for line in report.text.splitlines() if line.startswith("### ")]
    assert heads == [
        "### What happens", "### To reproduce", "### Expected", "### Actual", "### Versions", "### Evidence",
    ]  # fmt: skip
    assert "The device crashed." in report.text
    assert "Memory access fault by GPU node-1" in report.text
    assert "- torch: 2.13.0" in report.text
    assert "Measured on AMD: replayed alone by rocm-audit 0.1.0" in report.text
    assert "It was seen again, alone in a fresh process." in report.text


def test_a_recording_says_that_nothing_was_compared(make_judgement: Callable[..., Judgement]) -> None:
    judgement = make_judgement(20, backend="hip")
    header = replace(judgement.run.header, source=Source(IMPORTED, "trace.json"))
    text = reports(replace(judgement, run=replace(judgement.run, header=header)))[0].text
    assert "a profiler recorded it there" in text
    assert "its numbers were not compared" in text


def test_an_exact_op_is_told_by_its_elements_and_not_by_a_noise_floor(
    make_judgement: Callable[..., Judgement],
) -> None:
    judgement = make_judgement(20, backend="hip")
    row = next(row for row in case_rows(judgement) if row.status == "divergent")
    assert row.measurement is not None
    output = replace(row.measurement.comparisons[0], standard="exact", n_different=16, n_elements=1024)
    finding = Finding("NUM204", "divergent", "output must be bit for bit that of the CPU")
    row = replace(
        row,
        measurement=replace(row.measurement, comparisons=(output,)),
        verdict=replace(row.verdict, findings=(finding,)),
    )
    report = bug_report(row, judgement.run.header)
    assert report is not None
    assert "16 of 1,024 elements differ." in report.text
    assert "noise floor" not in report.text
    assert "### Expected\n\nThe CPU's result, bit for bit.\n" in report.text


def test_nothing_from_a_program_is_markup_or_a_mention(hostile_judgement: Judgement) -> None:
    header = replace(hostile_judgement.run.header, evidence="measured")
    made = [bug_report(row, header) for row in case_rows(hostile_judgement)]
    texts = [report.text for report in made if report is not None and report.is_ready]
    assert len(texts) > 10
    for text in texts:
        assert text.count("```") % 2 == 0
        outside = "".join(text.split("```")[::2])
        prose = re.sub(r"(`+) ?.+? ?\1", "", outside)
        assert "<" not in prose.replace("&lt;", "")
        assert "@" not in prose


def test_a_supported_or_inconclusive_case_has_no_report(make_judgement: Callable[..., Judgement]) -> None:
    judgement = make_judgement(20, backend="hip")
    for row in case_rows(judgement):
        wanted = row.status not in ("supported", "inconclusive")
        assert (bug_report(row, judgement.run.header) is not None) == wanted


# --- a case in a few lines -------------------------------------------------------------------------------------


def ran(case: Case) -> list[object]:
    """What the script's ``run`` gives on the CPU, twice, and that both are the same."""
    code = minimal_script(case, "NUM201", "told").replace('DEVICE = "cuda"', 'DEVICE = "cpu"')
    names: dict[str, object] = {}
    exec(compile(code, "minimal", "exec"), names)
    run = names["run"]
    assert callable(run)
    first, second = run("cpu"), run("cpu")
    for a, b in zip(first, second, strict=True):
        assert a.dtype == b.dtype
        assert torch.equal(torch.nan_to_num(a), torch.nan_to_num(b))
    return list(first)


def spec(sizes: tuple[int, ...], strides: tuple[int, ...], dtype: str = "float32", **fields: object) -> TensorSpec:
    return replace(TensorSpec(sizes, strides, dtype), **fields)  # type: ignore[arg-type]


def test_operands_have_their_sizes_strides_and_statistics() -> None:
    values = {0: Values(mean=5.0, std=0.5), 1: Values(minimum=2, maximum=3)}
    case = Case(
        "k", "aten::add.Tensor", (spec((64, 3), (1, 64)), spec((64, 3), (3, 1), "int64", storage=1)), values=values
    )
    [result] = ran(case)
    assert isinstance(result, torch.Tensor)
    assert tuple(result.shape) == (64, 3)
    assert 7.2 < float(result.mean()) < 7.8


def test_a_range_below_zero_reads_as_one_writes_it() -> None:
    values = {0: Values(minimum=-4.5, maximum=1.5), 1: Values(minimum=0.0, maximum=2.0)}
    pair = (spec((2,), (1,)), spec((2,), (1,), storage=1))
    script = minimal_script(Case("k", "aten::add.Tensor", pair, values=values), "NUM201", "")
    assert "torch.rand((2,)) * 6.0 - 4.5)" in script
    assert "torch.rand((2,)) * 2.0)" in script
    ones = Case("k", "aten::add.Tensor", pair, values={0: Values(minimum=1.0, maximum=1.0)})
    assert "torch.full((2,), 1.0).to(device)" in minimal_script(ones, "NUM201", "")


def test_operands_that_share_memory_share_it() -> None:
    whole = spec((8,), (1,), storage=4)
    half = spec((4,), (1,), offset=4, storage=4)
    script = minimal_script(Case("k", "aten::add_.Tensor", (whole, whole)), "NUM201", "")
    assert script.count("torch.randn(") == 1
    assert len(ran(Case("k", "aten::copy_.default", (spec((4,), (1,), storage=4), half)))) == 1


def test_a_backward_is_run_with_the_gradient_that_arrived() -> None:
    x = spec((4, 4), (4, 1), requires_grad=True)
    case = Case("k", "aten::silu.default", (x,), grads=(spec((4, 4), (4, 1), storage=1),))
    assert len(ran(case)) == 2


def test_lists_names_and_keywords_are_as_the_program_gave_them() -> None:
    case = Case(
        "k", "aten::sum.dim_IntList", (spec((4, 4), (4, 1)), (0,)),
        kwargs=(("keepdim", True), ("dtype", Named("dtype", "float64"))),
    )  # fmt: skip
    [result] = ran(case)
    assert isinstance(result, torch.Tensor)
    assert (tuple(result.shape), result.dtype) == ((1, 4), torch.float64)


@pytest.mark.parametrize("code", sorted(CODES))
def test_each_rule_has_lines_that_run_or_none(code: str, capsys: pytest.CaptureFixture[str]) -> None:
    case = Case("k", "aten::mm.default", (spec((4, 4), (4, 1)), spec((4, 4), (4, 1), storage=1)))
    script = minimal_script(case, code, "told").replace('DEVICE = "cuda"', 'DEVICE = "cpu"')
    assert bool(script) != (code in ("NUM209", "NUM210"))
    exec(compile(script.replace("torch.cuda.synchronize()", "pass"), code, "exec"), {})
    printed = capsys.readouterr().out
    assert code[:3] not in ("NUM", "FBK", "SPD") or not script or printed
    assert code not in ("NUM202", "NUM203", "NUM204", "NUM208") or printed.split()[-1] == "0"


def test_what_is_no_few_lines_has_no_script() -> None:
    svd = Case("k", "aten::_linalg_svd.default", (spec((4, 4), (4, 1)),))
    assert minimal_script(svd, "NUM201", "") == ""
    assert minimal_script(svd, "SUP101", "") != ""
    many = tuple(spec((1,), (1,), storage=i) for i in range(MAX_OPERANDS + 1))
    assert minimal_script(Case("k", "aten::_foreach_neg.default", (many,)), "SUP101", "") == ""
    assert minimal_script(Case("k", "aten::neg.default", (spec((1,), (1,), conj=True),)), "SUP101", "") == ""
    mixed = (spec((1,), (1,)), spec((1,), (1,), "int32"))
    assert minimal_script(Case("k", "aten::add.Tensor", mixed), "SUP101", "") == ""


def test_scripts_of_a_real_run_compile_and_those_of_finding_cases_run(llama_judgement: Judgement) -> None:
    n_run = 0
    for row in case_rows(llama_judgement):
        assert row.case is not None
        script = minimal_script(row.case, "NUM201", "told")
        compile(script or "pass", "minimal", "exec")
        if script and row.has_repro:
            ran(row.case)
            n_run += 1
    assert n_run == 10


def test_no_name_becomes_code_in_a_script(hostile_judgement: Judgement) -> None:
    for row in case_rows(hostile_judgement):
        if row.case is not None:
            told = f"{row.verdict.op}\n{row.verdict.signature}"
            script = minimal_script(row.case, "SUP101", told)
            assert script.isascii()
            compile(script or "pass", "minimal", "exec")
            assert "import os" not in [line.strip() for line in script.splitlines()]


# --- the arguments of a case -----------------------------------------------------------------------------------


def test_arguments_are_named_by_the_schema_with_memory_and_values() -> None:
    case = Case(
        "k", "aten::addmm.default",
        (
            spec((4,), (1,)),
            spec((8, 16), (1, 8), "bfloat16", storage=1, offset=32),
            spec((16, 4), (4, 1), "bfloat16", storage=1, requires_grad=True),
        ),
        kwargs=(("beta", 2),),
        grads=(spec((8, 4), (4, 1), storage=3),),
        values={1: Values(stored=True, minimum=-1.5, maximum=2.0, mean=0.01, std=0.5, n_nan=2, zero_fraction=0.25)},
    )  # fmt: skip
    rows = input_rows(case)
    assert [(row.name, row.role, row.dtype, row.shape) for row in rows] == [
        ("self", "input", "float32", "[4]"),
        ("mat1", "input", "bfloat16", "[8, 16]"),
        ("mat2", "input, needs a gradient", "bfloat16", "[16, 4]"),
        ("beta", "argument", "int", "2"),
        ("gradient of output 0", "gradient", "float32", "[8, 4]"),
    ]
    assert rows[1].memory == "strides (1, 8); offset 32; shares memory with mat2"
    assert rows[1].values == "recorded, -1.5 to 2, mean 0.01, deviation 0.5, 2 NaN, 25.0 % zero"
    assert rows[0].values == "not recorded"
