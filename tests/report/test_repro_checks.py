"""What a repro script takes for recurring, asked of its functions in the test's own process, on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from audit.report.repro import repro_script
from audit.run_records import RunHeader
from audit.verdicts import Finding, Judgement
from tests.report.repro_cases import MM, case_of, functions_of, spec, verdict_of

torch = pytest.importorskip("torch", reason="the scripts run on torch")


@pytest.fixture
def header(make_judgement: Callable[..., Judgement]) -> RunHeader:
    return make_judgement(1).run.header


def test_two_samples_of_one_law_tell_nothing_and_of_two_laws_recur(header: RunHeader) -> None:
    another_law = functions_of("NUM214", header, output="output")["another_law"]
    first, second = (torch.randn(2000, generator=torch.Generator().manual_seed(seed)) for seed in (1, 2))
    assert another_law("output", first, second) is None
    assert another_law("output", first + 1, second) is True


def test_an_error_all_over_recurs_by_its_mean_square(header: RunHeader) -> None:
    scope = functions_of("NUM213", header, output="output", allowed=5.0)
    right = scope["call"]("cpu")["output"]
    assert scope["coarser"]({"allowed": 5.0}, "output", right, right) is False
    assert scope["coarser"]({"allowed": 5.0}, "output", right * (1 + 1e-5), right) is True


def test_an_error_recurs_by_the_noise_of_its_own_place(header: RunHeader) -> None:
    scope = functions_of("NUM201", header, output="output")
    right = scope["call"]("cpu")["output"]
    wrong = right.clone()
    wrong[0, 1] *= 1 + 2e-6
    assert scope["beyond_allowance"]({}, "output", wrong, right) is False
    assert scope["beyond_allowance"]({"worst_place": "[0, 1]", "noise": 0.0}, "output", wrong, right) is True
    assert scope["beyond_allowance"]({"worst_place": "[0, 99999]", "noise": 0.0}, "output", wrong, right) is False


@pytest.mark.parametrize(
    ("code", "data", "recurs"),
    [
        ("SPD403", {"ideal_us": -1e3, "expected_fraction": 0.5}, True),
        ("SPD403", {"ideal_us": 1e9, "expected_fraction": 0.5}, False),
        ("SPD403", {}, None),
        ("SPD404", {"dtype": "float64"}, None),
        ("SPD405", {"there_us": -1e3, "scale": 2.0}, True),
        ("SPD405", {"there_us": 1e9, "scale": 2.0}, False),
    ],
)
def test_slowness_recurs_by_the_limit_of_its_own_rule(
    code: str, data: dict[str, str | float], recurs: bool | None, header: RunHeader
) -> None:
    assert functions_of(code, header, **data)["check_speed"](code, data, "cpu", {}, {}) is recurs


@pytest.mark.parametrize(
    ("op", "product", "free"),
    [
        ("aten::_linalg_svd.default", "U S Vh", ("U", "Vh")),
        ("aten::_linalg_eigh.default", "V L Vh", ("eigenvectors",)),
        ("aten::linalg_qr.default", "Q R", ("Q", "R")),
        ("aten::linalg_lu_factor_ex.default", "P L U", ()),
    ],
)
def test_factors_recur_by_what_they_give_together(
    op: str, product: str, free: tuple[str, ...], header: RunHeader
) -> None:
    scope = functions_of("NUM201", header, case_of(op, spec(6, 6)), output=product)
    right = scope["call"]("cpu")
    turned = {name: -tensor if name in free else tensor for name, tensor in right.items()}
    check, data = scope["check_numbers"], {"output": product}
    assert check("NUM201", data, "cpu", right, turned) is False
    name = free[0] if free else "LU"
    assert check("NUM201", data, "cpu", right, {**right, name: right[name] * 1.01}) is True


def test_what_a_script_cannot_make_it_says(header: RunHeader, capsys: pytest.CaptureFixture[str]) -> None:
    scope = functions_of("NUM201", header, output="sums of the eigenvalues' powers")
    right = scope["call"]("cpu")
    assert scope["check_numbers"]("NUM201", {"output": "lengths of V's columns"}, "cpu", right, right) is None
    assert "this script does not know how it is made" in capsys.readouterr().out


def test_what_the_audit_could_not_say_is_nothing_to_recur(header: RunHeader) -> None:
    verdict = verdict_of(MM, "SPD403", ideal_us=0.001, expected_fraction=0.5)
    doubt = Finding("INC913", "inconclusive", "numbers were not compared")
    script = repro_script(MM, replace(verdict, findings=(*verdict.findings, doubt)), header)
    assert "INC913" not in script
