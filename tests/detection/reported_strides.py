"""Reports whose condition is how a tensor lies in memory: strides, offsets, a dimension that is not there."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from audit.device.sim.faults import Call
from tests.detection.fault import Fault, healthy, normal, raising, with_argument

HALF = (torch.float16, torch.bfloat16)
FUSED = ("aten::_scaled_dot_product_flash_attention.default", "aten::_scaled_dot_product_efficient_attention.default")


# --- A15: attention reads a value tensor that is not contiguous as if it were ----------------------------------


def _value_is_transposed(call: Call) -> bool:
    query, key, value = call.args[:3]
    return query.dtype in HALF and query.is_contiguous() and key.is_contiguous() and not value.is_contiguous()


def _read_as_contiguous(call: Call) -> Any:
    value = call.args[2]
    packed = torch.empty(value.shape).stride()
    return with_argument(call, 2, value.as_strided(value.shape, packed, value.storage_offset()))


def _attend(contiguous: bool) -> torch.Tensor:
    query, key = (normal(1, 16, 62, 128, dtype=torch.bfloat16, seed=seed) for seed in (1, 2))
    value = normal(1, 62, 16 * 128, dtype=torch.bfloat16, seed=3).view(1, 62, 16, 128).transpose(1, 2)
    return F.scaled_dot_product_attention(query, key, value.contiguous() if contiguous else value)


# --- A25: scatter at the index of a 0-dim tensor ------------------------------------------------------------------


def _one_index(call: Call) -> bool:
    return call.args[2].numel() == 1 and call.args[0].dim() == 1


# --- A27: rows that do not begin at 32 bytes ----------------------------------------------------------------------


def _misaligned(call: Call) -> bool:
    image = call.args[0]
    places = (image.storage_offset(), *image.stride()[:-1])
    return any(place * image.element_size() % 32 for place in places)


def _from_aligned_addresses(call: Call) -> Any:
    """Each row is loaded from the 32-byte boundary before it."""
    image = call.args[0]
    step = 32 // image.element_size()
    starts = torch.zeros(image.shape[:-1], dtype=torch.int64) + image.storage_offset()
    for dim, stride in enumerate(image.stride()[:-1]):
        shape = [-1 if at == dim else 1 for at in range(image.dim() - 1)]
        starts += (torch.arange(image.size(dim)) * stride).view(shape)
    places = (starts // step * step).unsqueeze(-1) + torch.arange(image.size(-1))
    memory = image.as_strided((image.untyped_storage().nbytes() // image.element_size(),), (1,), 0)
    return with_argument(call, 0, memory[places])


def _resized(width: int) -> torch.Tensor:
    image = normal(1, 3, 16, width)[..., :17]
    return F.interpolate(image, scale_factor=2, mode="bilinear", align_corners=False)


# --- B11: a Fourier transform of a view that does not begin where its memory does ---------------------------------


def _transformed(volumes: torch.Tensor) -> torch.Tensor:
    return torch.fft.rfftn(volumes)


# --- A23: a function of two tensors that are broadcast against each other, in double precision ----------------------


def _broadcast_doubles(call: Call) -> bool:
    a, b = call.args[:2]
    return a.dtype == torch.float64 and a.shape != b.shape


def _other_branch(call: Call) -> Any:
    """Beyond the turning point the complement is left as it is."""
    below = healthy(call)
    return torch.where(call.args[1] > call.args[0] + 1, 1 - below, below)


def _igamma(dtype: torch.dtype) -> torch.Tensor:
    grid = torch.logspace(-1, 2, 500, dtype=torch.float64).to(dtype).unsqueeze(1)
    return torch.igamma(grid, grid.T)


FAULTS = (
    Fault(
        "A15", "bf16 (1, 16, 62, 128), query and key contiguous, value a transposed view", FUSED,
        _value_is_transposed, _read_as_contiguous,
        lambda: _attend(contiguous=False), lambda: _attend(contiguous=True), "value contiguous",
    ),
    Fault(
        "A23", "igamma in float64 of (500, 1) with its transpose", ("aten::igamma.default",),
        _broadcast_doubles, _other_branch,
        lambda: _igamma(torch.float64), lambda: _igamma(torch.float32), "float32",
    ),
    Fault(
        "A25", "one_hot of a 0-dim int64 tensor, 2 classes", ("aten::scatter_.value",),
        _one_index, lambda call: call.args[0],
        lambda: F.one_hot(torch.tensor(0), 2), lambda: F.one_hot(torch.tensor([0, 1]), 2), "an index of two elements",
    ),
    Fault(
        "A27", "bilinear resize of a slice whose rows do not begin at 32 bytes", ("aten::upsample_bilinear2d.default",),
        _misaligned, _from_aligned_addresses,
        lambda: _resized(20), lambda: _resized(24), "a slice whose rows do",
    ),
    Fault(
        "B11", "rfftn of a 3-D volume that is a view with an offset", ("aten::_fft_r2c.default",),
        lambda call: call.args[0].storage_offset() > 0, raising(RuntimeError, "cuFFT error: HIPFFT_EXEC_FAILED"),
        lambda: _transformed(normal(1, 2, 8, 8, 9)[0, 1]), lambda: _transformed(normal(1, 2, 8, 8, 9)[0, 0]),
        "a view without an offset",
        expected="unsupported", codes=("SUP101",),
    ),
)  # fmt: skip
