"""The table of device-choosing composites against what a GPU would run: complete, and no row too many.

The GPU's side is fake ``cuda`` tensors in a CPU build, beside a CUDA runtime without kernels that is compiled here.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from audit.tracer.composites import COMPOSITES
from tests.fidelity import stand_in
from tests.fidelity.calls import rows

pytestmark = [
    pytest.mark.skipif(stand_in.compiler() is None, reason="the stand-in for CUDA needs a C++ compiler"),
    pytest.mark.skipif(torch.backends.cuda.is_built(), reason="the stand-in for CUDA needs a CPU build of torch"),
]

#: Differences that no row of the table can take away, and why.
EXPLAINED = {
    "multi_head_attention_forward": "the strides of attention's output are its kernel's: what follows copies or views",
    "renorm": "its backward formula computes in double on the CPU alone; an autograd formula cannot be taken whole",
    "nn.functional.linear_cross_entropy": "chosen in Python by device (torch 2.13): redirected, the CPU's is taken",
    "nn.functional.pad": "circular padding slices by as_strided where sizes are not symbolic, as on any real device",
    "nn.functional.max_unpool2d": "decomposed for fake tensors alone",
}
#: Rows whose need fake tensors do not show: private outputs alone differ, or ATen decomposes for subclasses (rms_norm).
UNSEEN = {"layer_norm", "group_norm", "embedding_bag", "embedding_bag.padding_idx", "rms_norm"}


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return stand_in.build(tmp_path_factory.mktemp("stand-in"))


def compared(library: Path, checkout: Path, *arguments: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.fidelity.dispatched", str(library), *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=checkout, env=environment)
    assert done.returncode == 0, done.stderr
    seen: dict[str, Any] = json.loads(done.stdout)
    return seen


def test_beside_the_table_no_call_leads_to_other_ops_on_a_gpu_and_every_row_is_needed(
    library: Path, checkout: Path
) -> None:
    seen = compared(library, checkout, "calls")
    assert set(seen["differences"]) <= set(EXPLAINED)
    assert set(seen["not_compared"]) <= set(COMPOSITES)  # their kernels are in no CPU build
    assert seen["n_compared"] >= 48
    assert set(seen["needed"]) == set(COMPOSITES) - UNSEEN


def test_every_row_has_a_call() -> None:
    assert {name for name, *_ in rows()} == set(COMPOSITES)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_no_op_that_torch_tests_leads_to_other_ops_on_a_gpu(library: Path, checkout: Path) -> None:
    seen = compared(library, checkout, "opinfo")
    assert seen["n_compared"] > 8000
    assert {name: seen["differences"][name] for name in set(seen["differences"]) - set(EXPLAINED)} == {}
