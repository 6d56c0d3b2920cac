"""The op that HIP picks where ATen chooses by device, below autograd: convolutions become MIOpen's.

Also ops whose own kernel, the same for every device, is a call of another op, which a device sees too.

Rules of ``use_miopen`` and ``use_miopen_depthwise`` (ATen/native/Convolution.cpp, torch 2.13): fp32, fp16 or bf16, at
most five dims, not grouped and dilated at once; everything else stays on ATen's own slow path.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch
from torch._ops import OpOverload

Routed: TypeAlias = tuple[OpOverload, tuple[Any, ...], dict[str, Any]]

MIOPEN_DTYPES = (torch.float32, torch.float16, torch.bfloat16)
MIOPEN_DIM_MAX = 5


def convolution(
    input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, stride: list[int], padding: list[int],
    dilation: list[int], transposed: bool, output_padding: list[int], groups: int,
) -> Routed | None:  # fmt: skip
    """``miopen_convolution``, its transposed or depthwise form, or None where MIOpen does not take the call."""
    if (
        input.dtype not in MIOPEN_DTYPES
        or not torch.backends.cudnn.enabled
        or weight.dim() > MIOPEN_DIM_MAX
        or input.dim() != weight.dim()
        or 0 in (input.numel(), weight.numel())
        or (groups > 1 and any(d != 1 for d in dilation))
    ):
        return None
    aten, search = torch.ops.aten, (False, False)
    if input.dim() == 3:  # ATen gives one dimension to MIOpen as an image of height 1
        input, weight = input.unsqueeze(2), weight.unsqueeze(2)
        stride, dilation = [1, *stride], [1, *dilation]
        padding, output_padding = [0, *padding], [0, *output_padding]
    if transposed:
        rest = (padding, output_padding, stride, dilation, groups, *search)
        return aten.miopen_convolution_transpose.default, (input, weight, bias, *rest), {}
    depthwise = input.dim() == 4 and groups == input.size(1) > 1 and weight.size(0) % input.size(1) == 0
    op = aten.miopen_depthwise_convolution.default if depthwise else aten.miopen_convolution.default
    return op, (input, weight, bias, padding, stride, dilation, groups, *search), {}


def cholesky_solve(self: torch.Tensor, input2: torch.Tensor, upper: bool = False) -> Routed | None:
    """``_cholesky_solve_helper`` on operands of one batch size (BatchLinearAlgebra.cpp)."""
    batch = torch.broadcast_shapes(self.shape[:-2], input2.shape[:-2])
    operands = tuple(x.expand(*batch, *x.shape[-2:]) for x in (self, input2))
    return torch.ops.aten._cholesky_solve_helper.default, (*operands, upper), {}


def landed(name: str, args: Sequence[Any], result: Any) -> Any:
    """What the routed op gave, as the op that was called returns it."""
    return result.squeeze(2) if name == "aten::convolution" and args[0].dim() == 3 else result


ROUTES: dict[str, Callable[..., Routed | None]] = {
    "aten::convolution": convolution,
    "aten::cholesky_solve": cholesky_solve,
}
