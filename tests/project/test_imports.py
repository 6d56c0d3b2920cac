"""Who may import whom: help is instant, judging needs no torch, and the contracts of pyproject.toml hold."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from audit.run_records import RunEnd, RunHeader
from audit.schema import Case, DeviceInfo, Measurement, Outcome, Source, TensorSpec
from audit.store import RunWriter

HEAVY = ("torch", "pandas", "jinja2", "transformers")


def run_python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_help_loads_neither_torch_nor_pandas() -> None:
    code = f"""
import sys
from audit.cli import main
try:
    main(["--help"])
except SystemExit:
    pass
print("loaded:", sorted(set(sys.modules) & set({HEAVY!r})))
"""
    printed = run_python(code)
    assert "usage" in printed.lower()
    assert printed.splitlines()[-1] == "loaded: []"


def test_reading_judging_and_reporting_work_where_torch_cannot_be_imported() -> None:
    code = """
import importlib, pkgutil, sys
sys.modules["torch"] = None  # importing it raises ImportError
import audit
for room in ("report", "rules", "knowledge"):
    package = importlib.import_module(f"audit.{room}")
    for module in pkgutil.walk_packages(package.__path__, f"audit.{room}."):
        importlib.import_module(module.name)
import audit.codec, audit.opset, audit.store
print("imported")
"""
    assert run_python(code) == "imported\n"


def test_a_stored_run_is_reported_where_torch_cannot_be_imported(tmp_path: Path) -> None:
    device = DeviceInfo("sim", "simulated device", "sim")
    source = Source("script", "model.py")
    header = RunHeader(
        "simulated", source, device, {}, {}, "2026-11-30T12:00:00+00:00", "0.1.0", n_cases=1, n_recorded=1
    )
    square = TensorSpec((2, 2), (2, 1), "float32", extent=4)
    case = Case("key", "aten::relu.default", (square,))
    with RunWriter.create(tmp_path / "run.jsonl", header, [case]) as writer:
        writer.measured(Measurement("key", Outcome("ok"), Outcome("raised", "RuntimeError", "HIP error: out of luck")))
        writer.end(RunEnd(True))
    code = f"""
import sys
sys.modules["torch"] = None  # importing it raises ImportError
from audit.cli import main
sys.exit(main(["report", {str(tmp_path)!r}, "--format", "html,json,csv,markdown,junit"]))
"""
    assert "1 unsupported" in run_python(code)
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert [verdict["status"] for verdict in summary["verdicts"]] == ["unsupported"]
    assert "out of luck" in (tmp_path / "report.html").read_text()


def test_the_import_contracts_hold(checkout: Path) -> None:
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command; lint_imports_command()"]
    environment = {**os.environ, "PYTHONPATH": str(checkout)}
    done = subprocess.run(
        [*command, "--no-cache"], cwd=checkout, capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 broken" in done.stdout


def test_every_module_outside_a_package_is_named_in_a_contract(checkout: Path) -> None:
    contracts = (checkout / "pyproject.toml").read_text()
    modules = {path.stem for path in (checkout / "audit").glob("*.py")} - {"__init__", "__main__"}
    assert {name for name in modules if contracts.count(f'"audit.{name}"') < 2} == set()
