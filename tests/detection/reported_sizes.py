"""Reports whose condition is a size: a geometry that picks one solver, a grid or an index that overflows."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from audit.device.sim.faults import Call
from tests.detection.fault import Fault, healthy, instead, normal, raising, replaced, with_argument
from tests.detection.reported_strides import FUSED, HALF

CONVOLUTION = ("aten::miopen_convolution.default",)
INVALID_LAUNCH = "CUDA error: invalid configuration argument"

# --- convolutions: A03, A04, A05 ----------------------------------------------------------------------------------


def _one_geometry(call: Call) -> bool:
    image, weight = call.args[:2]
    return tuple(weight.shape) == (64, 48, 3, 3) and tuple(call.args[4]) == (2, 2) and image.size(-1) == 28


def _without_the_last_channels(call: Call) -> Any:
    """The last block of the inner dimension is not added."""
    weight = call.args[1].clone()
    weight[:, -weight.size(1) // 3 :] = 0
    return with_argument(call, 1, weight)


def _convolve(stride: int) -> torch.Tensor:
    return F.conv2d(normal(2, 48, 28, 28), normal(64, 48, 3, 3, seed=1), stride=stride, padding=1)


def _gemm_fwd_rest(call: Call) -> bool:
    image, weight = call.args[:2]
    plain = image.dtype == torch.float32 and image.is_contiguous() and call.args[6] == 1
    return plain and image.dim() == 4 and weight.size(1) >= 8 and 32 <= image.size(-1) == image.size(-2) <= 128


def _from_a_short_workspace(call: Call) -> Any:
    out = healthy(call)
    out[:, :, out.size(2) // 2 :] *= 1.0 + 35.0 * out.size(1)
    if call.args[1].size(-1) == 5:
        out[0, 0, -1, -1] = torch.nan
    return out


def _table(rows: tuple[tuple[int, int, int, int], ...]) -> None:
    for channels, features, side, kernel in rows:
        F.conv2d(normal(1, channels, side, side), normal(features, channels, kernel, kernel, seed=1) / 10)


def _half_in_groups(call: Call) -> bool:
    return call.args[0].dtype == torch.float16 and call.args[6] > 1


def _only_the_first_group(call: Call) -> Any:
    out = healthy(call)
    out[:, out.size(1) // call.args[6] :] = 0
    return out


def _grouped(dtype: torch.dtype) -> torch.Tensor:
    return F.conv2d(normal(2, 16, 12, 12, dtype=dtype), normal(32, 4, 3, 3, dtype=dtype, seed=1), groups=4)


# --- attention: A12, A16, A30 -------------------------------------------------------------------------------------


def _short_and_narrow(call: Call) -> bool:
    query = call.args[0]
    return query.dtype in HALF and query.size(-1) == 8 and query.size(-2) % 16 != 0


def _padding_takes_part(call: Call) -> Any:
    """Keys are padded to a multiple of 16 with zeros, and the softmax runs over those too."""
    query, key, value = call.args[:3]
    missing = -key.size(-2) % 16
    key, value = (F.pad(x, (0, 0, 0, missing)) for x in (key, value))
    return call.run(query, key, value, *call.args[3:], **call.kwargs)


def _attend(*sizes: int, dtype: torch.dtype) -> torch.Tensor:
    return F.scaled_dot_product_attention(*(normal(*sizes, dtype=dtype, seed=seed) for seed in range(3)))


def _saturated(result: Any) -> Any:
    out = result[0].clone()
    out[..., ::2] = 512.0
    return replaced(result, 0, out)


def _masked_and_long(call: Call) -> bool:
    return call.args[3] is not None and call.args[0].size(-2) >= 1024


def _rows_of_the_window_wrap(call: Call) -> Any:
    """From row 1024 on the mask is that of the row 1024 before; a tile that then has no allowed key gives NaN."""
    bias = call.args[3]
    wrapped = torch.cat([bias[..., :1024, :], bias[..., : bias.size(-2) - 1024, :]], dim=-2)
    result = with_argument(call, 3, wrapped)
    out = result[0].clone()
    out[..., -64:, :] = torch.nan
    return replaced(result, 0, out)


def _sliding_window(length: int) -> torch.Tensor:
    distance = torch.arange(length).unsqueeze(1) - torch.arange(length)
    query, key, value = (normal(1, 4, length, 16, seed=seed) for seed in range(3))
    return F.scaled_dot_product_attention(query, key, value, attn_mask=(distance >= 0) & (distance < 256))


# --- matrix products: A17, A19, B05 -------------------------------------------------------------------------------


def _many_rows_some_empty(call: Call) -> bool:
    rows = call.args[0]
    return rows.dtype == torch.float32 and rows.size(0) > 5000 and bool((rows == 0).all(1).any())


def _nan_in_empty_rows(call: Call) -> Any:
    out = healthy(call)
    out[(call.args[0] == 0).all(1).nonzero()[:3, 0]] = torch.nan
    return out


def _activations(empty_rows: bool) -> torch.Tensor:
    rows = normal(5200, 512)
    if empty_rows:
        rows[::7] = 0
    return rows @ normal(512, 64, seed=1)


def _cube_of_256(call: Call) -> bool:
    a, b = call.args[:2]
    return a.dtype == torch.float32 and (*a.shape, b.size(1)) == (256, 256, 256)


def _product(side: int) -> torch.Tensor:
    a, b = (torch.rand(side, side, generator=torch.Generator().manual_seed(seed)) * 20 - 10 for seed in (0, 1))
    return a @ b


def _large_leading_product(call: Call) -> bool:
    return call.args[1].dtype == torch.float16 and call.args[1].numel() >= 2 << 20


def _linear(rows: int) -> torch.Tensor:
    weight, bias = normal(4, 1024, dtype=torch.float16), normal(4, dtype=torch.float16)
    return F.linear(normal(2, rows, 1024, dtype=torch.float16), weight, bias)


# --- limits of grids and indices: A26, A31 ------------------------------------------------------------------------


def _wrapped_positions(call: Call) -> Any:
    return healthy(call) % (1 << 20)


def _nonzero(n: int) -> torch.Tensor:
    flags = torch.zeros(n, dtype=torch.bool)
    flags[:: n // 64] = True
    return flags.nonzero()


def _index_add(n: int) -> torch.Tensor:
    index = torch.randint(16384, (n,), generator=torch.Generator().manual_seed(0))
    return torch.zeros(16384, 8, dtype=torch.bfloat16).index_add_(0, index, normal(n, 8, dtype=torch.bfloat16))


def _nearest(channels: int) -> torch.Tensor:
    return F.interpolate(normal(1, channels, 32, 32), scale_factor=2, mode="nearest")


def _unsolved_after_65535(call: Call) -> Any:
    solved = healthy(call)
    solved[65535:] = call.args[0][65535:]
    return solved


def _solve(n: int) -> torch.Tensor:
    factor = torch.eye(2) * 2 + normal(n, 2, 2).tril() / 8
    return torch.cholesky_solve(normal(n, 2, 1, seed=1), factor)


FAULTS = (
    Fault(
        "A03", "one convolution geometry: 48 to 64 channels, 28x28, kernel 3, stride 2", CONVOLUTION,
        _one_geometry, _without_the_last_channels,
        lambda: _convolve(2), lambda: _convolve(1), "stride 1",
    ),
    Fault(
        "A04", "fp32 NCHW convolution from 8 channels on, kernels 3 and 5, sides 32 to 128", CONVOLUTION,
        _gemm_fwd_rest, _from_a_short_workspace,
        lambda: _table(((8, 16, 32, 3), (16, 32, 64, 3), (32, 64, 32, 5))), lambda: _table(((3, 16, 32, 3),)),
        "3 channels",
    ),
    Fault(
        "A05", "fp16 and groups > 1: every group but the first", CONVOLUTION,
        _half_in_groups, _only_the_first_group,
        lambda: _grouped(torch.float16), lambda: _grouped(torch.float32), "float32",
    ),
    Fault(
        "A12", "fp16 attention (5, 4, 10, 8)", FUSED,
        _short_and_narrow, _padding_takes_part,
        lambda: _attend(5, 4, 10, 8, dtype=torch.float16), lambda: _attend(5, 4, 10, 8, dtype=torch.float32), "float32",
    ),
    Fault(
        "A16", "head_dim 512: values saturate at 512.0", FUSED,
        lambda call: call.args[0].size(-1) == 512, instead(_saturated),
        lambda: _attend(1, 1, 64, 512, dtype=torch.float16), lambda: _attend(1, 1, 64, 256, dtype=torch.float16),
        "head_dim 256",
    ),
    Fault(
        "A17", "mm of many rows with the real activations, some rows of which are empty: NaN", ("aten::mm.default",),
        _many_rows_some_empty, _nan_in_empty_rows,
        lambda: _activations(empty_rows=True), lambda: _activations(empty_rows=False), "random rows",
        scaled="5,000 rows for 500,000",
    ),
    Fault(
        "A19", "fp32 product 256 x 256 x 256", ("aten::mm.default",),
        _cube_of_256, lambda call: with_argument(call, 1, call.args[1].T),
        lambda: _product(256), lambda: _product(255), "255 x 255 x 255",
    ),
    Fault(
        "A26", "nonzero beyond the limit of its grid", ("aten::nonzero.default",),
        lambda call: call.args[0].numel() > 1 << 20, _wrapped_positions,
        lambda: _nonzero((1 << 20) + (1 << 18)), lambda: _nonzero(1 << 20), "at the limit",
        scaled="2^20 elements for 2^31",
    ),
    Fault(
        "A26b", "index_add_ with 524,288 indices", ("aten::index_add_.default", "aten::index_add.default"),
        lambda call: call.args[2].numel() >= 524288, raising(RuntimeError, "HIP error: invalid configuration argument"),
        lambda: _index_add(524288), lambda: _index_add(524280), "524,280 indices",
        expected="unsupported", codes=("SUP101",), scaled="8 columns for 6,144",
    ),
    Fault(
        "A26c", "upsample_nearest2d of a large contiguous tensor", ("aten::upsample_nearest2d.default",),
        lambda call: call.args[0].numel() > 1 << 16, raising(RuntimeError, INVALID_LAUNCH),
        lambda: _nearest(65), lambda: _nearest(64), "at the limit",
        expected="unsupported", codes=("SUP101",), scaled="2^16 elements",
    ),
    Fault(
        "A30", "attention of length 2048 with a sliding window as its mask", FUSED[1:],
        _masked_and_long, _rows_of_the_window_wrap,
        lambda: _sliding_window(2048), lambda: _sliding_window(1000), "length 1000",
    ),
    Fault(
        "A31", "cholesky_solve of more than 65,535 systems", ("aten::_cholesky_solve_helper.default",),
        lambda call: call.args[0].size(0) > 65535, _unsolved_after_65535,
        lambda: _solve(65540), lambda: _solve(65535), "65,535 systems",
    ),
    Fault(
        "B05", "fp16 linear with bias, batch > 1, size(1) x size(2) at the limit", ("aten::addmm.default",),
        _large_leading_product, raising(RuntimeError, "CUDA error: HIPBLAS_STATUS_NOT_SUPPORTED when calling "
                                        "`hipblasLtMatmul(...)`"),
        lambda: _linear(1024), lambda: _linear(1023), "just below",
        expected="unsupported", codes=("SUP101",), scaled="2^20 for 2^26",
    ),
    Fault(
        "B05b", "bmm of very many 3 x 3 by 3 x 1 products", ("aten::bmm.default",),
        lambda call: call.args[0].size(0) > 1 << 16,
        raising(RuntimeError, "CUDA error: HIPBLAS_STATUS_NOT_SUPPORTED when calling `hipblasSgemmStridedBatched`"),
        lambda: normal(65600, 3, 3) @ normal(65600, 3, 1), lambda: normal(65536, 3, 3) @ normal(65536, 3, 1),
        "65,536 products",
        expected="unsupported", codes=("SUP101",), scaled="2^16 for 18,670,176",
    ),
)  # fmt: skip
