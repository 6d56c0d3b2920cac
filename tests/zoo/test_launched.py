"""Programs as a person starts them: by the command line, where a GPU is pretended, and on two ranks under torchrun."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from audit.opset.file import read_opset
from audit.opset.ranks import rank_files
from tests.zoo import distributed
from tests.zoo.table import RENDEZVOUS, STEPS

TORCHRUN = ("-m", "torch.distributed.run", "--nproc-per-node=2", *RENDEZVOUS)


def python(checkout: Path, *arguments: str) -> str:
    """What a fresh Python prints to stdout and stderr. Raises AssertionError where it fails."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, *arguments], cwd=checkout, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("program", ["pinned_memory_copies", "generators", "scalars_on_the_host", "gru_packed"])
def test_a_program_on_a_pretended_gpu_computes_what_it_computes_on_the_cpu(
    program: str, checkout: Path, tmp_path: Path
) -> None:
    untraced = python(checkout, "-m", "tests.zoo", program).split()[0]
    output = tmp_path / "m.audit"
    traced = python(
        checkout, "-m", "audit", "trace", "-m", "tests.zoo", "--steps", STEPS, "-o", str(output), "--", program
    )
    assert untraced in traced
    assert read_opset(output).n_recorded > 0


@pytest.mark.slow
@pytest.mark.parametrize("program", [program.__name__ for program in distributed.PROGRAMS])
def test_both_ranks_compute_what_they_compute_untraced_and_name_their_collectives(
    program: str, checkout: Path, tmp_path: Path
) -> None:
    work = ("-m", "tests.zoo.distributed")
    for name in ("untraced", "traced"):
        tmp_path.joinpath(name).mkdir()
    python(checkout, *TORCHRUN, *work, program, str(tmp_path / "untraced"))
    audit = ("-m", "audit", "trace", *work, "--steps", STEPS, "-o", str(tmp_path / "m.audit"))
    python(checkout, *TORCHRUN, *audit, "--", program, str(tmp_path / "traced"))
    for rank in ("rank0.txt", "rank1.txt"):
        digest = tmp_path.joinpath("untraced", rank).read_text()
        assert tmp_path.joinpath("traced", rank).read_text() == digest != ""
    files = rank_files(tmp_path / "m.audit")
    assert len(files) == 2
    for trace in map(read_opset, files):
        assert any(item.reason.startswith("collective: ") and item.n_calls for item in trace.not_audited)
        assert any(item.nbytes > 0 and item.n_ranks == 2 for item in trace.not_audited)
        accounted = sum(case.n_calls for case in trace.cases) + sum(item.n_calls for item in trace.not_audited)
        assert trace.n_recorded == accounted
