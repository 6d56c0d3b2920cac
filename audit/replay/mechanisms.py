"""Documented ways in which a GPU's arithmetic differs from the dtype's own, as changes to a computation in fp64.

Where the reference, changed so, comes to what the device gave, the mechanism explains the error. Sources: PyTorch's
"Numerical accuracy" (TF32, the flush of subnormals on MI200 and its bf16 based alternate), AMD's "Data types and
precision support" (the two FP8 flavours).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch

from audit.replay.inner_products import Keeps, one_row, one_step
from audit.replay.overload import base_of
from audit.schema import Case

#: From fp64 values and the dtype that they were stored in to what the device makes of them. None: nothing.
Change = Callable[[torch.Tensor, torch.dtype], torch.Tensor]

#: Ops that run on matrix units.
PRODUCTS = frozenset(
    """
    mm bmm addmm baddbmm addbmm addmv mv _addmm_activation linear matmul _scaled_mm convolution _convolution
    convolution_backward conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d cudnn_convolution
    miopen_convolution miopen_convolution_transpose miopen_depthwise_convolution scaled_dot_product_attention
    _scaled_dot_product_flash_attention _scaled_dot_product_efficient_attention
    """.split()
)
#: Ops of many products, which one call of a library takes together.
RECURRENT = frozenset(("lstm", "gru", "rnn_tanh", "rnn_relu", "_cudnn_rnn"))
#: Operands that are added to a product behind the matrix unit: by name, and of ops where ``self`` is one.
_ADDED = frozenset(("bias", "attn_mask", "attn_bias"))
_ADDED_FIRST = frozenset(("addmm", "baddbmm", "addbmm", "addmv", "_addmm_activation"))

_HALF = (torch.float16, torch.bfloat16)
_OCP, _FNUZ = (torch.float8_e4m3fn, torch.float8_e5m2), (torch.float8_e4m3fnuz, torch.float8_e5m2fnuz)


@dataclass(frozen=True)
class Mechanism:
    """``operand`` is applied to each floating operand, ``result`` to each output. Several may have one name: variants,
    of which the one that explains most counts. ``dtypes``: of an operand that it changes. With ``keeps`` it is for
    recurrent ops: ``operand`` is applied to the factors of the products inside, but for those that it keeps."""

    name: str
    dtypes: tuple[torch.dtype, ...]
    operand: Change | None = None
    result: Change | None = None
    keeps: Keeps | None = None

    def concerns(self, case: Case, dtypes: Iterable[str]) -> bool:
        """Whether it could act on a case with operands of these dtypes."""
        names = {str(dtype).removeprefix("torch.") for dtype in self.dtypes}
        ops = PRODUCTS if self.keeps is None else RECURRENT
        return base_of(case.op) in ops and bool(names & set(dtypes))


def is_factor(op: str, operand: str) -> bool:
    """Whether a matrix unit takes the operand of that name: what is only added to the product keeps its digits."""
    return operand not in _ADDED and not (operand == "self" and base_of(op) in _ADDED_FIRST)


def _mantissa(values: torch.Tensor, n_bits: int, cut: bool = False) -> torch.Tensor:
    """fp64 rounded, or cut, to so many bits behind the leading one; the exponent's range stays."""
    fraction, exponent = torch.frexp(values)
    scale = math.ldexp(1.0, n_bits + 1)
    whole = fraction * scale
    return torch.ldexp((whole.trunc() if cut else whole.round()) / scale, exponent)


def _tf32(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return _mantissa(values, 10) if dtype == torch.float32 else values


def _tf32_cut(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return _mantissa(values, 10, cut=True) if dtype == torch.float32 else values


def _bf16(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return _mantissa(values, 7) if dtype == torch.float16 else values


def _flushed(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    if dtype not in _HALF:
        return values
    return torch.where(values.abs() < torch.finfo(dtype).smallest_normal, 0.0, values)


def _flushed_result(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """What rounds to the smallest normal number is one."""
    if dtype not in _HALF:
        return values
    return _flushed(values.to(dtype).to(torch.float64), dtype).where(
        values.abs() < torch.finfo(dtype).smallest_normal, values
    )


def _other_flavour(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The exponent biases differ by one, and the pattern of OCP's -0.0 is FNUZ's only NaN."""
    if dtype in _OCP:
        negative_zero = (values == 0) & torch.signbit(values)
        return torch.where(negative_zero, math.nan, values / 2)
    return values * 2 if dtype in _FNUZ else values


MECHANISMS: tuple[Mechanism, ...] = (
    Mechanism("tf32-operands", (torch.float32,), operand=_tf32),
    Mechanism("tf32-operands", (torch.float32,), operand=_tf32_cut),
    # cuDNN's two ways on an H200: its LSTM and GRU of packed sequences, its RNN of four steps
    Mechanism("tf32-operands", (torch.float32,), operand=_tf32, keeps=one_row),
    Mechanism("tf32-operands", (torch.float32,), operand=_tf32, keeps=one_step),
    Mechanism("subnormals-flushed", _HALF, result=_flushed_result),
    Mechanism("subnormals-flushed", _HALF, operand=_flushed),
    Mechanism("subnormals-flushed", _HALF, operand=_flushed, result=_flushed_result),
    Mechanism("bf16-operands", (torch.float16,), operand=_bf16),
    Mechanism("fp8-other-flavour", (*_OCP, *_FNUZ), operand=_other_flavour),
)
