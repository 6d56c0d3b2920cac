"""Where the CPU's own kernel is missing, wrong or too slow, reference and simulated device go by a wider dtype."""

from __future__ import annotations

import torch

from audit.device.cpu_kernels import detour, through_wider
from audit.device.sim.rounding import healthy


def test_only_the_op_and_dtype_of_the_table_go_another_way() -> None:
    way = detour("aten::convolution_backward", [torch.float32, torch.float16])
    assert way == (torch.float16, "whose own kernel is a hundred times slower")
    assert detour("aten::convolution_backward", [torch.bfloat16]) is None
    assert detour("aten::mm", [torch.float16]) is None


def test_operands_go_up_and_results_come_down() -> None:
    seen: list[torch.dtype] = []

    def double(x: torch.Tensor, index: torch.Tensor, factor: int) -> tuple[torch.Tensor, None]:
        seen.extend((x.dtype, index.dtype))
        return x * factor, None

    result, nothing = through_wider(double, torch.float16)(torch.ones(2).half(), torch.zeros(1).long(), 2)
    assert seen == [torch.float32, torch.int64]
    assert (result.dtype, nothing) == (torch.float16, None)


def test_the_simulated_device_samples_an_image_where_the_grid_points() -> None:
    """In bf16 itself the CPU is off by up to 0.9."""
    torch.manual_seed(0)
    image, grid = torch.rand(1, 1, 64, 64).bfloat16(), (torch.rand(1, 64, 64, 2) * 2 - 1).bfloat16()
    actual = healthy(torch.ops.aten.grid_sampler_2d.default, (image, grid, 0, 0, False), {})
    expected = torch.nn.functional.grid_sample(image.double(), grid.double(), align_corners=False)
    assert actual.dtype == torch.bfloat16
    torch.testing.assert_close(actual.double(), expected, rtol=2**-8, atol=2**-8)


def test_integers_are_counted_as_a_gpu_counts_them() -> None:
    values = torch.tensor([0, 1, 1, 3, (1 << 31) - 1], dtype=torch.int32)
    counted = healthy(torch.ops.aten.histc.default, (values, 4, 0, 3), {})
    assert (counted.dtype, counted.tolist()) == (torch.int32, [1, 2, 0, 1])
