"""The GPU device on a real HIP or CUDA GPU."""

from __future__ import annotations

import pytest
import torch

from audit.device import gpu
from audit.device.gpu import GpuDevice

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no HIP or CUDA GPU here"),
]


@pytest.fixture(scope="module")
def device() -> GpuDevice:
    return GpuDevice()


def _buffer_view(device: GpuDevice, tensor: torch.Tensor) -> torch.Tensor:
    content = tensor.contiguous().flatten().view(torch.uint8)
    return device.buffer(content).view(tensor.dtype, tensor.shape, tensor.contiguous().stride(), 0)


def test_the_device_says_what_it_is(device: GpuDevice) -> None:
    info = device.info()
    assert info.backend == gpu.flavour()
    assert info.arch.startswith("gfx" if info.backend == "hip" else "sm_")
    assert int(info.properties["multi_processor_count"]) > 0
    assert int(info.properties["total_memory"]) > 1 << 30


def test_a_buffer_holds_its_content_and_shares_it_between_views(device: GpuDevice) -> None:
    buffer = device.buffer(torch.arange(16, dtype=torch.float32).view(torch.uint8))
    whole, part = buffer.view(torch.float32, (16,), (1,), 0), buffer.view(torch.float32, (2, 2), (8, 2), 3)
    part.add_(100)
    assert device.to_host(whole)[[3, 5, 11, 13]].tolist() == [103.0, 105.0, 111.0, 113.0]
    assert whole.data_ptr() % 512 == 0
    assert buffer.guards_intact()


def test_an_operand_that_is_overrun_breaks_its_guard(device: GpuDevice) -> None:
    buffer = device.buffer(torch.zeros(64, dtype=torch.uint8))
    whole = buffer._whole
    whole[-1] = 0
    assert not buffer.guards_intact()


@pytest.mark.parametrize("strides", [(4, 1), (1, 3), (8, 2), (0, 1)])
def test_to_host_keeps_strides(device: GpuDevice, strides: tuple[int, int]) -> None:
    values = torch.arange(40.0)
    buffer = device.buffer(values.view(torch.uint8))
    host = device.to_host(buffer.view(torch.float32, (3, 4), strides, 1))
    assert host.stride() == strides
    assert torch.equal(host, values.as_strided((3, 4), strides, 1))


@pytest.mark.parametrize("n", [512, 4096, 3 << 20, 64 << 20])
def test_memory_handed_out_next_holds_the_fill(device: GpuDevice, n: int) -> None:
    for byte in (0x7B, 0x3C):
        device.fill_fresh_memory(byte, [n])
        assert (torch.empty(n, dtype=torch.uint8, device=device.torch_device) == byte).all()


def test_a_matmul_shows_its_op_and_a_kernel(device: GpuDevice) -> None:
    a = _buffer_view(device, torch.randn(256, 256))
    out, path = device.observe(lambda: torch.mm(a, a))
    assert path.observed
    assert path.complete
    assert path.chosen_ops[0] == "aten::mm.default"
    assert len(path.kernels) >= 1
    assert path.kernels[0].us > 0
    assert path.copies == ()
    assert out.shape == (256, 256)


def test_copies_to_and_from_the_host_are_seen_with_their_bytes(device: GpuDevice) -> None:
    a = _buffer_view(device, torch.randn(1024))
    _, path = device.observe(lambda: a.cpu().to(device.torch_device))
    assert {(copy.direction, copy.nbytes) for copy in path.copies} == {("DtoH", 4096), ("HtoD", 4096)}


def test_the_backward_of_a_composite_is_observed_too(device: GpuDevice) -> None:
    q = torch.randn(1, 4, 64, 64, dtype=torch.bfloat16, device=device.torch_device, requires_grad=True)

    def step() -> torch.Tensor:
        out = torch.nn.functional.scaled_dot_product_attention(q, q, q)
        return torch.autograd.grad(out.float().sum(), q)[0]

    _, path = device.observe(step)
    assert any("backward" in op for op in path.chosen_ops)
    assert path.kernels


def test_timing_measures_device_time(device: GpuDevice) -> None:
    a = torch.randn(4096, 4096, device=device.torch_device, dtype=torch.bfloat16)
    timing = device.time(lambda: torch.mm(a, a), 0.2)
    assert timing.n >= 5
    assert 10 < timing.median_us < 100_000
    assert timing.iqr_us < timing.median_us


def test_peak_memory_counts_from_the_case_on(device: GpuDevice) -> None:
    device.begin_case("aten::empty.memory_format", "forward")
    before = device.peak_bytes()
    torch.empty(32 << 20, dtype=torch.uint8, device=device.torch_device)
    after = device.peak_bytes()
    assert before is not None
    assert after is not None
    assert after - before >= 32 << 20


def test_the_ceilings_are_those_of_a_gpu(device: GpuDevice) -> None:
    ceilings = device.ceilings()
    assert 20 < ceilings.copy_gbs.median < 20_000
    assert ceilings.gemm_tflops["float16"].median > ceilings.gemm_tflops["float32"].median > 0
    assert 0 < ceilings.launch_us.median < 1000
    assert ceilings.copy_gbs.iqr < ceilings.copy_gbs.median / 4
    assert torch.cuda.memory_allocated(device.torch_device) < 2 << 30  # what they took is free again


def test_an_op_of_many_launches_has_no_gaps_from_the_host(device: GpuDevice) -> None:
    one = torch.zeros(1, device=device.torch_device)

    def many() -> None:
        for _ in range(200):
            one.add_(1.0)

    timing = device.time(many, 0.1)
    assert timing.host_us is not None
    assert timing.lead_us is not None
    assert timing.waits is False
    assert 0 < timing.host_us < timing.lead_us


def test_an_op_that_waits_for_the_device_is_told(device: GpuDevice) -> None:
    one = torch.zeros(1, device=device.torch_device)
    timing = device.time(one.item, 0.1)
    assert timing.waits is True
    assert timing.host_us is not None
    assert timing.host_us < 1000


def test_peak_memory_is_the_case_s_and_not_what_was_there_before(device: GpuDevice) -> None:
    before = torch.empty(64 << 20, dtype=torch.uint8, device=device.torch_device)
    device.begin_case("aten::empty.memory_format", "forward")
    torch.empty(32 << 20, dtype=torch.uint8, device=device.torch_device)
    device.time(lambda: None, 0.001)
    device.fill_fresh_memory(0x3C, [48 << 20])
    device.free_memory()
    device.time(lambda: None, 0.001)
    assert device.peak_bytes() == 32 << 20
    del before


def test_three_hundred_sessions_in_one_process_each_show_their_kernel(device: GpuDevice) -> None:
    a = torch.ones(64, 64, device=device.torch_device)
    for _ in range(300):
        _, path = device.observe(lambda: torch.mm(a, a))
        assert path.complete
        assert 1 <= sum(kernel.count for kernel in path.kernels) <= 3
        assert path.copies == ()
        assert path.chosen_ops == ("aten::mm.default",)
