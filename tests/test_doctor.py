"""The doctor finds what was planted, and its file says what is here and nothing about the person."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch.utils.backend_registration

from audit.doctor import doctor, document, works
from audit.errors import UsageError
from audit.run_records import PreflightCheck
from audit.schema import DeviceInfo, Kernel, Measurement, Outcome
from audit.schema import Path as OpPath
from audit.selftest import PLANTED, Found, GemmSeen, Planted, _gemm_problem, planted_cases

OK = PreflightCheck("torch", "ok", "torch 2.13.0")
FAILED = PreflightCheck("arch", "failed", "no code for gfx1103")
RIGHT = tuple(Found(planted, planted.expected) for planted in PLANTED)
MI300X = DeviceInfo("hip", "AMD Instinct MI300X", "gfx942")


def test_without_selftest_the_machine_is_looked_at_and_no_file_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    code, shown = doctor(), capsys.readouterr().out
    assert "torch: torch 2." in shown
    assert code == (3 if "failed " in shown else 0)  # a GPU build of torch without a GPU fails a check
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_exists_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "doctor.json").write_text("mine")
    with pytest.raises(UsageError, match=r"\[exists\]$"):
        doctor(selftest=True, output=tmp_path / "doctor.json")
    assert (tmp_path / "doctor.json").read_text() == "mine"


@pytest.mark.slow
def test_every_planted_fault_is_found_on_this_machine(
    simulated_device: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "doctor.json"
    assert doctor(selftest=True, output=file) == 0, capsys.readouterr().out
    content = json.loads(file.read_text())
    assert {item["op"]: item["status"] for item in content["planted"]} == {
        "aten::mul.Tensor": "supported",
        "aten::mm.default": "divergent",
        "aten::relu.default": "divergent",
        "aten::silu.default": "divergent",
        "aten::exp.default": "divergent",
        "aten::addmm.default": "unsupported",
        "aten::bmm.default": "unsupported",
        "aten::cumsum.default": "falling_back",
        "aten::tanh.default": "unsupported",
    }
    assert content["works"] is True
    assert str(tmp_path) not in file.read_text()
    assert str(Path.home()) not in file.read_text()


def test_where_no_device_can_be_simulated_the_selftest_says_so_and_still_leaves_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delattr(torch.utils.backend_registration, "_setup_privateuseone_for_python_backend", raising=False)
    assert doctor(selftest=True, device="none", output=tmp_path / "doctor.json") == 3
    assert "use torch 2.10 or newer" in capsys.readouterr().out
    content = json.loads((tmp_path / "doctor.json").read_text())
    assert (content["planted"], content["works"]) == ([], False)
    assert content["preflight"][-1]["message"].endswith("[sim-unavailable]")


def test_one_fault_that_is_not_found_means_that_the_audit_does_not_work_here() -> None:
    missed = (*RIGHT[:-1], Found(PLANTED[-1], "supported"))
    assert works((OK,), RIGHT, None)
    assert not works((OK,), missed, None)
    assert not works((OK, FAILED), RIGHT, None)
    assert not works((OK,), RIGHT, GemmSeen(MI300X, None, None, "the device was lost"))


def test_the_file_holds_the_checks_the_faults_and_the_product() -> None:
    content = document({"torch": "2.13.0"}, (OK,), RIGHT[:1], GemmSeen(MI300X, None, None, "lost"))
    assert content["planted"] == [
        {
            "op": "aten::mul.Tensor",
            "fault": "none: a healthy op",
            "expected": "supported",
            "status": "supported",
            "codes": [],
        }
    ]
    assert content["gemm"]["device"]["arch"] == "gfx942"
    assert content["works"] is False
    assert json.loads(json.dumps(content)) == content


def test_the_planted_cases_are_the_planted_ops_in_order() -> None:
    assert [case.op for case in planted_cases()] == [planted.op for planted in PLANTED]
    assert len({case.key for case in planted_cases()}) == len(PLANTED)


def product(kernels: tuple[Kernel, ...], complete: bool = True, outcome: str = "ok") -> Measurement:
    path = OpPath(observed=True, complete=complete, kernels=kernels)
    device = Outcome(outcome, message="HIP error")  # type: ignore[arg-type]  # a literal from each caller
    return Measurement("key", Outcome("ok"), device, path=path)


TENSILE = Kernel("Cijk_Ailk_Bljk_SB_MT128x128x16_MI32x32x2_SN_1LDSB0", 90.0)


@pytest.mark.parametrize(
    ("measurement", "problem"),
    [
        (product((TENSILE,)), ""),
        (product(()), "no kernel of the product was recognised as a GEMM; seen: none"),
        (product((Kernel("fill", 1.0),)), "no kernel of the product was recognised as a GEMM; seen: fill"),
        (product((), complete=False), "the profiler's own test did not pass"),
        (product((), outcome="raised"), "the product raised: HIP error"),
        (None, "the device was lost"),
    ],
)
def test_a_product_whose_kernel_is_not_seen_is_a_problem(measurement: Measurement | None, problem: str) -> None:
    said = _gemm_problem(measurement, "supported")
    assert said.startswith(problem)
    assert bool(said) == bool(problem)


def test_a_status_other_than_the_expected_one_is_not_right() -> None:
    planted = Planted("aten::mm.default", "off", "divergent")
    assert Found(planted, "divergent").right
    assert not Found(planted, "unsupported").right
    assert not Found(planted, None).right
