"""The workflows of docs/gate.md: their commands are taken from the page and run, on ``sim`` in place of the GPU."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from audit.codec import case_key
from audit.opset import write_opset
from audit.schema import Case, Source, TensorSpec, Trace, Values

SQUARE = TensorSpec((4, 4), (4, 1), "float32", extent=16)
NORMAL = Values(n_sampled=1, minimum=-3.0, maximum=3.0, mean=0.0, std=1.0)
#: Stands in for the installed command: the device is ``sim``, and where a run is kept it is taken instead of another.
SHIM = """#!/bin/bash
if [ "$1" = run ] && [ -n "$KEPT_RUN" ]; then
    while [ "$1" != -o ]; do shift; done
    cp -r "$KEPT_RUN" "$2"
else
    exec {python} -m audit "${{@/#hip/sim}}"
fi
"""

Shell = Callable[..., "subprocess.CompletedProcess[str]"]


def block(checkout: Path, first_words: str) -> str:
    """The code block of the page that begins so."""
    blocks = re.findall(r"```[a-z]+\n(.*?)```", (checkout / "docs/gate.md").read_text(), re.DOTALL)
    [found] = [text for text in blocks if text.startswith(first_words)]
    return str(found)


def github(checkout: Path) -> list[str]:
    return re.findall(r"^ +run: (.+)$", block(checkout, "name: rocm-audit\n"), re.MULTILINE)


def gitlab(checkout: Path) -> list[str]:
    return re.findall(r"^    - (.+)$", block(checkout, "rocm-audit:\n"), re.MULTILINE)


def slurm(checkout: Path) -> list[str]:
    return [block(checkout, "#!/bin/bash\n")]


@pytest.fixture(scope="module")
def shell(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Shell:
    """Runs lines of a workflow in a folder; ``kept`` is a run that its first command need not repeat."""
    bin_folder = tmp_path_factory.mktemp("bin")
    shim = bin_folder / "rocm-audit"
    shim.write_text(SHIM.format(python=sys.executable))
    shim.chmod(0o755)

    def run(lines: list[str], cwd: Path, kept: Path | None = None) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "PYTHONPATH": str(checkout), "PATH": f"{bin_folder}:{os.environ['PATH']}"}
        environment |= {"GITHUB_STEP_SUMMARY": str(cwd / "summary.md"), "SLURM_JOB_ID": "17"}
        environment |= {"KEPT_RUN": str(kept or ""), "OMP_NUM_THREADS": "1"}
        script = "\n".join(["set -e", *lines])
        return subprocess.run(
            ["bash", "-c", script], cwd=cwd, env=environment, capture_output=True, text=True, check=False, timeout=280
        )

    return run


def repository(folder: Path, expected: Path | None = None) -> Path:
    """A repository with ``ci/model.audit``, and ``ci/expected.json`` where there is a baseline already."""
    ci = folder / "ci"
    ci.mkdir(parents=True)
    cases = tuple(
        Case(case_key(op, (SQUARE,), (), "forward", None), op, (SQUARE,), values={0: NORMAL})
        for op in ("aten::relu.default", "aten::neg.default")
    )
    write_opset(ci / "model.audit", Trace(Source("script", "model.py"), {"torch": "any"}, cases, n_recorded=2), None)
    if expected is not None:
        shutil.copy(expected, ci / "expected.json")
    return folder


@pytest.fixture(scope="module")
def first(checkout: Path, shell: Shell, simulated_device: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository after the first replay of the GitHub workflow, promoted as docs/gate.md says."""
    folder = repository(tmp_path_factory.mktemp("first"))
    replay = github(checkout)[0]
    done = shell([replay, "rocm-audit gate ci/expected.json out --promote"], folder)
    assert done.returncode == 0, done.stderr
    return folder


def test_the_github_workflow_passes_and_leaves_its_summary(checkout: Path, shell: Shell, first: Path) -> None:
    steps = github(checkout)
    assert len(steps) == 3
    done = shell(steps[1:], first)
    assert done.returncode == 0, done.stderr
    assert "# ✅ The gate passes" in (first / "summary.md").read_text()
    assert (first / "out" / "gate.sarif").exists()


def test_the_gitlab_and_slurm_jobs_pass(checkout: Path, shell: Shell, first: Path, tmp_path: Path) -> None:
    for name, lines, left in (
        ("gitlab", gitlab(checkout), "out/gate.xml"),
        ("slurm", slurm(checkout), "out-17/gate.md"),
    ):
        folder = repository(tmp_path / name, first / "ci" / "expected.json")
        done = shell(lines, folder, kept=first / "out")
        assert done.returncode == 0, done.stderr
        assert (folder / left).exists()


def test_a_workflow_fails_where_the_baseline_was_better(
    checkout: Path, shell: Shell, first: Path, tmp_path: Path
) -> None:
    folder = repository(tmp_path / "fails", first / "ci" / "expected.json")
    expected = folder / "ci" / "expected.json"
    expected.write_text(expected.read_text().replace('"key":"relu', '"key":"gone'))
    done = shell(gitlab(checkout), folder, kept=first / "out")
    assert done.returncode == 1
    assert "1 gone, of" in done.stdout


@pytest.mark.evidence
@pytest.mark.parametrize("lines", [github, gitlab, slurm])
def test_the_whole_workflow_runs(
    checkout: Path, shell: Shell, first: Path, tmp_path: Path, lines: Callable[[Path], list[str]]
) -> None:
    folder = repository(tmp_path / "whole", first / "ci" / "expected.json")
    done = shell(lines(checkout), folder)
    assert done.returncode == 0, done.stderr
