"""The command line by itself: parsing, and what happens without torch."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import audit
from audit.cli import _parse as parse
from audit.errors import UsageError


def test_a_bare_script_is_the_run_command_and_its_own_arguments_follow_two_dashes() -> None:
    options = parse(["model.py", "--steps", "3", "--", "--batch", "8"])
    assert (options.target, options.steps, options.program_arguments) == ("model.py", 3, ("--batch", "8"))


def test_sizes_durations_and_lists_are_read_with_their_units() -> None:
    options = parse(["run", "m.py", "--values", "512M", "--time-budget", "15m", "--fail-on", "divergent, slow"])
    assert options.values == 512 << 20
    assert options.time_budget == 900.0
    assert options.fail_on == {"divergent", "slow"}


@pytest.mark.parametrize("bad", ["--values=lots", "--time-budget=-3", "--format=pdf", "--steps=many"])
def test_a_bad_option_is_one_sentence(bad: str) -> None:
    with pytest.raises(UsageError, match=r"see `rocm-audit run --help` \[bad-arguments\]"):
        parse(["run", "m.py", bad])


def test_without_torch_the_sentence_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ModuleNotFoundError(\"No module named 'torch'\", name='torch')\n")
    (tmp_path / "model.py").write_text("print('hello')\n")
    root = Path(audit.__file__).resolve().parents[1]
    done = subprocess.run(
        [sys.executable, "-m", "audit", "run", "model.py", "--device", "sim"],
        cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False,
        env={**os.environ, "PYTHONPATH": f"{tmp_path}:{root}"},
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.startswith("rocm-audit: tracing and replaying need torch")
    assert done.stderr.rstrip().endswith("[no-torch]")
