"""``--drift`` from the command line: the step of a program is played after the replay."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Cli = Callable[..., "subprocess.CompletedProcess[str]"]

MODEL = """
import torch
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh())
inputs = torch.randn(4, 8).cuda()
model.cuda()
def loss(output): return output.square().mean()
"""
FAULTS = """
def coarse(call):
    result = call.run(*call.args, **call.kwargs)
    return result * 1.001
FAULTS = {"aten::tanh.default": coarse}
"""


@pytest.mark.evidence  # five processes that load torch
def test_a_program_for_a_gpu_is_played_and_what_is_wrong_in_it_trips_fail_on(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(MODEL)
    (tmp_path / "faults.py").write_text(FAULTS)
    arguments = ("run", "model.py", "--device", "sim:faults.py", "--drift", "-o", "out", "--alternatives", "0")
    done = cli(*arguments, "--fail-on", "divergent", cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    found = {finding["code"]: finding["data"] for finding in summary["drift"]["findings"]}
    assert set(found) == {"NUM221", "NUM222"}
    assert found["NUM221"]["module"] == "Sequential.1"
    assert {row["phase"] for row in summary["drift"]["modules"]} == {"forward", "backward"}
    [tanh] = [verdict for verdict in summary["verdicts"] if verdict["op"] == "aten::tanh.default"]
    assert {"NUM201", "NUM222"} <= {finding["code"] for finding in tanh["findings"]}
    assert "accumulated error starts at aten::tanh.default" in done.stdout
