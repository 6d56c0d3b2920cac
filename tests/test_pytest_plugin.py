"""The pytest plugin: skipped unless asked for, and a finding fails the test with its message."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from audit.pytest_plugin import complaint
from audit.rules.judge import judge
from audit.run_records import Run, RunEnd, RunHeader
from audit.schema import Case, DeviceInfo, Measurement, Outcome, Source, TensorSpec
from audit.verdicts import Judgement

TESTS = """
import sys
import pytest

def test_audited(rocm_audit):
    import torch
    judgement = rocm_audit(torch.relu, torch.randn(4, 4))
    assert "aten::relu.default" in [verdict.op for verdict in judgement.verdicts]

def test_found(rocm_audit):
    import torch
    rocm_audit(torch.mm, torch.randn(8, 8), torch.randn(8, 8))

def test_torch_is_not_loaded_by_the_plugin():
    assert "torch" not in sys.modules
"""
FAULTS = "FAULTS = {'aten::mm.default': lambda call: call.run(*call.args, **call.kwargs) * 1.01}\n"


ENTRY_POINT = 'rocm_audit = "audit.pytest_plugin"'


def pytest_in(folder: Path, checkout: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """pytest where the package is installed, which is what makes it load the plugin; here by its entry point alone."""
    assert f"[project.entry-points.pytest11]\n{ENTRY_POINT}\n" in (checkout / "pyproject.toml").read_text()
    installed = folder / "installed" / "rocm_audit-0.1.0.dist-info"
    installed.mkdir(parents=True)
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: rocm-audit\nVersion: 0.1.0\n")
    (installed / "entry_points.txt").write_text("[pytest11]\n" + ENTRY_POINT.replace('"', "") + "\n")
    (folder / "test_ops.py").write_text(TESTS)
    (folder / "faults.py").write_text(FAULTS)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-rA", "-q"]
    environment = {**os.environ, "PYTHONPATH": f"{checkout}:{installed.parent}", "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [*command, *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=280
    )


def judged(outcome: Outcome) -> Judgement:
    square = TensorSpec((2, 2), (2, 1), "float32", extent=4)
    header = RunHeader(
        "simulated", Source("context", "calls.audit"), DeviceInfo("sim", "sim", "sim"), {}, {}, "2026-11-30", "0", 1, 1
    )
    case = Case("relu-0", "aten::relu.default", (square,))
    return judge(Run(header, (case,), {"relu-0": Measurement("relu-0", Outcome("ok"), outcome)}, end=RunEnd(True)))


def test_a_finding_is_told_with_its_op_and_signature() -> None:
    failing = judged(Outcome("raised", "RuntimeError", "HIP error: out of luck"))
    message = complaint(failing, ("unsupported",))
    assert "unsupported: aten::relu.default f32[2, 2]" in message
    assert "out of luck" in message
    assert complaint(failing, ("divergent",)) == ""


def test_without_the_option_audits_are_skipped_and_torch_is_not_loaded(checkout: Path, tmp_path: Path) -> None:
    done = pytest_in(tmp_path, checkout)
    assert "1 passed, 2 skipped" in done.stdout, done.stdout
    assert "audits on a device run with --rocm-audit" in done.stdout


@pytest.mark.evidence
def test_with_the_option_a_healthy_call_passes_and_a_faulty_one_fails(
    checkout: Path, tmp_path: Path, simulated_device: None
) -> None:
    done = pytest_in(tmp_path, checkout, "--rocm-audit", "--rocm-audit-device", "sim:faults.py", "-k", "not loaded")
    assert "1 failed, 1 passed" in done.stdout, done.stdout
    assert "divergent: aten::mm.default f32[8, 8], f32[8, 8]" in done.stdout
