"""Programs that name ``cuda`` on a machine without a GPU find torch as it is otherwise."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from audit.schema import DeviceInfo
from audit.tracer.redirect import cuda_redirected_to_cpu

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="nothing is redirected where there is a GPU")


@pytest.fixture(autouse=True)
def redirected() -> Iterator[None]:
    with cuda_redirected_to_cpu(DeviceInfo("none", "AMD Instinct MI300X", "gfx942", {})):
        yield


def test_a_model_made_on_the_meta_device_takes_no_memory() -> None:
    with torch.device("meta"):
        model = torch.nn.Linear(1 << 20, 1 << 20)
        assert torch.zeros(3).is_meta
    assert model.weight.is_meta


def test_a_block_of_the_cuda_device_makes_tensors_on_the_cpu() -> None:
    with torch.device("cuda:0"):
        assert torch.ones(2).device.type == "cpu"


def test_torchscript_compiles_the_functions_that_are_redirected() -> None:
    def ramp(n: int) -> torch.Tensor:
        return torch.arange(n) + torch.zeros(n)

    assert torch.jit.script(ramp)(3).tolist() == [0.0, 1.0, 2.0]


def test_forward_mode_derivatives_work() -> None:
    assert torch.func.jacfwd(lambda x: x * x)(torch.tensor(3.0)).item() == 6.0


def test_a_generator_is_an_instance_of_its_class() -> None:
    assert isinstance(torch.Generator("cuda"), torch.Generator)
    assert isinstance(torch.default_generator, torch.Generator)
    assert not isinstance(3, torch.Generator)
