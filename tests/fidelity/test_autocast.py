"""Autocast of a redirected program against torch's own GPU autocast, which fake ``cuda`` tensors show without a GPU."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from audit.tracer.autocast import unknown_ops
from tests.fidelity import stand_in
from tests.fidelity.test_composites import compared, library

__all__ = ["library"]

#: Their kernels are in no CPU build.
NOT_COMPARED = {"multi_margin_loss", "multi_margin_loss in half", "gru_cell"}


@pytest.mark.skipif(stand_in.compiler() is None, reason="the stand-in for CUDA needs a C++ compiler")
@pytest.mark.skipif(torch.backends.cuda.is_built(), reason="the stand-in for CUDA needs a CPU build of torch")
def test_every_op_and_region_is_cast_as_on_a_gpu(library: Path, checkout: Path) -> None:
    seen = compared(library, checkout, "autocast")
    assert seen["differences"] == {}
    assert set(seen["not_compared"]) <= NOT_COMPARED
    assert seen["n_compared"] >= 80


def test_every_op_that_this_torch_casts_on_a_gpu_is_known() -> None:
    assert unknown_ops() == []
