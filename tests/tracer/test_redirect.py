"""Programs that name ``cuda`` on a machine without a GPU find torch as it is otherwise."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch

from audit.schema import DeviceInfo
from audit.tracer.redirect import cuda_redirected_to_cpu

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="nothing is redirected where there is a GPU")


@pytest.fixture(autouse=True)
def redirected() -> Iterator[None]:
    facts = {"total_memory_bytes": str(192 << 30), "compute_units": "304"}
    with cuda_redirected_to_cpu(DeviceInfo("none", "AMD Instinct MI300X", "gfx942", facts)):
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


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.ones(2).to(0),
        lambda: torch.ones(2, device=0),
        lambda: torch.empty(2, pin_memory=True).fill_(1.0),
        lambda: torch.ones(2, dtype=torch.float64).type("torch.cuda.FloatTensor"),
        lambda: torch.cuda.FloatTensor([1.0, 1.0]),
        lambda: torch.sparse_coo_tensor([[0, 1]], [1.0, 1.0], device="cuda", check_invariants=True).to_dense(),
    ],
)
def test_every_way_to_name_a_gpu_gives_a_tensor_on_the_cpu(make: Callable[[], torch.Tensor]) -> None:
    tensor = make()
    assert (tensor.device.type, tensor.dtype, tensor.tolist()) == ("cpu", torch.float32, [1.0, 1.0])


def test_what_training_scripts_ask_of_torch_cuda_is_answered() -> None:
    torch.cuda.set_rng_state(torch.cuda.get_rng_state())
    torch.cuda.set_rng_state_all(torch.cuda.get_rng_state_all())
    torch.cuda.nvtx.range_push("step")
    torch.cuda.nvtx.range_pop()
    torch.ones(2).record_stream(torch.cuda.current_stream())
    assert not torch.cuda.is_current_stream_capturing()
    assert torch.cuda.memory_summary() == ""


def test_a_data_parallel_module_runs() -> None:
    model = torch.nn.DataParallel(torch.nn.Linear(3, 2).cuda(), device_ids=[0])
    assert model(torch.ones(4, 3)).shape == (4, 2)
    assert torch.nn.Linear(3, 2).to(0).weight.device.type == "cpu"


def test_the_accelerator_module_tells_the_same_story_without_asking_the_driver() -> None:
    assert torch.accelerator.is_available()
    assert torch.accelerator.current_accelerator() == torch.device("cuda")
    assert torch.accelerator.current_stream().is_capturing() is False
    torch.accelerator.synchronize()
    assert torch.ones(2, device=torch.accelerator.current_accelerator()).device.type == "cpu"


def test_an_optimizer_steps_on_any_build_of_torch() -> None:
    model = torch.nn.Linear(2, 2).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(1, 2, device="cuda")).sum().backward()
    before = model.weight.detach().clone()
    optimizer.step()
    assert not torch.equal(model.weight, before)
