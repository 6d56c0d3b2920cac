"""A GPU's autocast in a redirected program, beside the CPU's own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from audit.schema import DeviceInfo, Source
from audit.tracer.recorder import Recorder
from audit.tracer.redirect import cuda_redirected_to_cpu

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="nothing is redirected where there is a GPU")


@contextmanager
def redirected() -> Iterator[None]:
    with cuda_redirected_to_cpu(DeviceInfo("none", "AMD Instinct MI300X", "gfx942", {})):
        yield


def on_the_cpu() -> list[torch.Tensor]:
    """A CPU's region: results and dtypes that the CPU's own lists give."""
    torch.manual_seed(0)
    weight = torch.randn(4, 4, requires_grad=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = F.linear(torch.randn(3, 4), weight).exp()
        z = torch.cat([y, torch.randn(3, 4)])
    z.float().sum().backward()
    return [y.detach(), z.detach(), weight.grad]


def linear(device: str) -> torch.Tensor:
    return F.linear(torch.randn(3, 4, device=device), torch.randn(2, 4, device=device))


def test_a_region_for_the_cpu_is_the_cpus_own_before_and_after_one_for_a_gpu() -> None:
    expected = on_the_cpu()
    assert [tensor.dtype for tensor in expected] == [torch.bfloat16, torch.float32, torch.float32]
    with redirected():
        before = on_the_cpu()
        with torch.autocast("cuda"):
            assert linear("cuda").dtype == torch.float16
            assert torch.ones(2, device="cuda", dtype=torch.float16).exp().dtype == torch.float32
        after = on_the_cpu()
    left = on_the_cpu()
    for seen in (before, after, left):
        assert all(torch.equal(a, b) and a.dtype == b.dtype for a, b in zip(seen, expected, strict=True))


def test_what_a_program_asks_about_its_region_is_answered_as_on_a_gpu() -> None:
    with redirected(), torch.autocast("cuda", dtype=torch.bfloat16):
        assert torch.is_autocast_enabled()
        assert torch.is_autocast_enabled("cuda")
        assert torch.get_autocast_dtype("cuda") == torch.bfloat16
        with torch.autocast("cuda", enabled=False):
            assert not torch.is_autocast_enabled()
            assert linear("cuda").dtype == torch.float32
        with torch.autocast("cpu", enabled=False):  # as checkpointing opens one beside the GPU's
            assert linear("cuda").dtype == torch.bfloat16
        assert linear("cuda").dtype == torch.bfloat16
        assert linear("cpu").dtype == torch.float32  # the host's tensors are not the GPU's to cast
    assert not torch.is_autocast_enabled("cpu")


def test_training_in_half_precision_with_a_scaler_gives_the_ops_of_a_gpu() -> None:
    def train() -> None:
        model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 5)).cuda()
        optimizer, scaler = torch.optim.SGD(model.parameters(), lr=0.1), torch.amp.GradScaler("cuda")
        for _ in range(2):
            with torch.autocast("cuda", dtype=torch.float16):
                loss = F.cross_entropy(
                    model(torch.randn(2, 3, 8, 8, device="cuda")), torch.tensor([1, 2], device="cuda")
                )
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()

    recorder = Recorder(None)
    with redirected():
        recorder.start()
        try:
            train()
        finally:
            recorder.stop()
    cases = recorder.build(Source("script", "test"), {})[0].cases
    dtypes = {case.op: {arg.dtype for arg in case.args if hasattr(arg, "dtype")} for case in cases}
    assert dtypes["aten::convolution.default"] == {"float16"}
    assert dtypes["aten::addmm.default"] == {"float16"}
    assert dtypes["aten::_log_softmax.default"] == {"float16"}  # cross_entropy asks for its own dtype
    assert dtypes["aten::nll_loss_forward.default"] == {"float32", "int64"}
    assert "aten::_amp_foreach_non_finite_check_and_unscale_.default" in dtypes
    assert "aten::_amp_update_scale_.default" in dtypes


def test_what_a_gpu_refuses_is_refused() -> None:
    with redirected(), torch.autocast("cuda"), pytest.raises(RuntimeError, match="unsafe"):
        F.binary_cross_entropy(torch.rand(3, device="cuda"), torch.rand(3, device="cuda"))
