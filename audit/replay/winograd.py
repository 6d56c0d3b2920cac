"""Convolutions by Winograd's minimal filtering F(6x6, 3x3), in the operands' own dtype: as exact as a library may be.

MIOpen, cuDNN and NNPACK choose it for 3x3 filters in fp32, up to this tile, forward and for the gradients: on an MI300X
it is MIOpen's multi-pass Winograd, F(2, 3) to F(6, 3). It has a tenth of the products and some twenty times the
rounding error of a direct sum, which no moved operand shows. Source: Lavin and Gray, "Fast Algorithms for Convolutional
Neural Networks" (2015); the matrices are those of Toom and Cook for the usual points.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from audit.replay.overload import arguments_of, base_of, named_arguments
from audit.schema import Arg, Case, TensorSpec

#: Points at which the polynomials are taken, beside infinity.
_POINTS = (0.0, 1.0, -1.0, 2.0, -2.0, 0.5, -0.5)
#: Places of the output in a tile, along each side, and of the filter.
TILE, TAPS = 6, 3
WIDTH = TILE + TAPS - 1
#: Bytes of the images that are transformed in one go; what is made of them takes five times that.
_PIECE_BYTES = 64 << 20

_FORWARDS = frozenset(
    "convolution _convolution conv2d miopen_convolution miopen_depthwise_convolution miopen_convolution_transpose "
    "cudnn_convolution cudnn_convolution_transpose".split()
)


def winograd_of(case: Case) -> Callable[..., Any] | None:
    """What computes the call so, with the op's own arguments; None where no library would."""
    base, arguments = base_of(case.op), arguments_of(case)
    weight = arguments.get("weight")
    if not isinstance(weight, TensorSpec) or weight.dtype != "float32" or weight.sizes[2:] != (TAPS, TAPS):
        return None
    if not all(_all_one(arguments.get(name)) for name in ("stride", "dilation")):
        return None
    if isinstance(arguments.get("padding"), str):
        return None
    way = _forward if base in _FORWARDS else _backward if base == "convolution_backward" else None
    if way is None:
        return None
    transposed = base.endswith("_transpose") or bool(arguments.get("transposed"))
    return lambda *args, **kwargs: way(named_arguments(case.op, args, kwargs), transposed)


def _all_one(arg: Arg) -> bool:
    return isinstance(arg, tuple) and all(value == 1 for value in arg)


def _forward(a: Mapping[str, Any], transposed: bool) -> Tensor:
    result: Tensor = _convolved(a["self"] if "self" in a else a["input"], a["weight"], a, transposed)
    return result if a.get("bias") is None else result + a["bias"][:, None, None]


def _backward(a: Mapping[str, Any], transposed: bool) -> tuple[Tensor | None, ...]:
    """By differentiating the forward: the transposed algorithm is the one that libraries have for gradients."""
    grad = a["grad_output"]
    with torch.enable_grad():
        leaves = a["input"].detach().requires_grad_(), a["weight"].detach().requires_grad_()
        by_image, by_weight = torch.autograd.grad(_convolved(*leaves, a, transposed), leaves, grad)
    gradients = by_image, by_weight, grad.sum((0, 2, 3))
    return tuple(gradient if want else None for gradient, want in zip(gradients, a["output_mask"], strict=True))


def _convolved(image: Tensor, weight: Tensor, a: Mapping[str, Any], transposed: bool) -> Tensor:
    padding: tuple[int, ...] = tuple(a["padding"]) * (2 // len(a["padding"]))
    if transposed:
        weight, padding = turned(weight, a["groups"]), tuple(TAPS - 1 - pad for pad in padding)
    return filtered(image, weight, padding, a["groups"])


def turned(weight: Tensor, groups: int) -> Tensor:
    """The weight of a transposed convolution [channels, filters / groups, 3, 3] as that of one that is not."""
    grouped: Tensor = weight.unflatten(0, (groups, -1))
    return grouped.transpose(1, 2).flatten(0, 1).flip(2, 3)


def filtered(image: Tensor, weight: Tensor, padding: Sequence[int], groups: int) -> Tensor:
    """``image`` [n, channels, height, width] filtered with ``weight`` [filters, channels / groups, 3, 3]."""
    step = max(1, _PIECE_BYTES // max(1, image[:1].numel() * image.itemsize))
    return torch.cat([_filtered(some, weight, padding, groups) for some in image.split(step)])


def _filtered(image: Tensor, weight: Tensor, padding: Sequence[int], groups: int) -> Tensor:
    outer, filters, inner = (torch.from_numpy(matrix).to(image.dtype) for matrix in _matrices())
    n, channels, *sizes = image.shape
    wanted = [size + 2 * pad - TAPS + 1 for size, pad in zip(sizes, padding, strict=True)]
    (n_high, more_high), (n_wide, more_wide) = ((-(-size // TILE), -size % TILE) for size in wanted)
    padded = torch.nn.functional.pad(image, (padding[1], padding[1] + more_wide, padding[0], padding[0] + more_high))
    tiles = padded.unfold(2, WIDTH, TILE).unfold(3, WIDTH, TILE)  # n, channels, high, wide, 8, 8
    transformed = (inner @ tiles @ inner.T).reshape(n, groups, channels // groups, n_high, n_wide, WIDTH, WIDTH)
    kernels = (filters @ weight @ filters.T).unflatten(0, (groups, -1))
    products = torch.einsum("ngchwij,gfcij->ngfhwij", transformed, kernels)
    results = (outer @ products @ outer.T).flatten(1, 2).permute(0, 1, 2, 4, 3, 5)
    return results.reshape(n, -1, n_high * TILE, n_wide * TILE)[:, :, : wanted[0], : wanted[1]]


@cache
def _matrices() -> tuple[np.ndarray[Any, Any], ...]:
    """A^T [6, 8], G [8, 3] and B^T [8, 8] of the paper, in double precision."""
    points = np.array(_POINTS)
    others = [np.delete(points, place) for place in range(len(points))]
    scales = [np.prod(point - rest) for point, rest in zip(points, others, strict=True)]
    outer = np.zeros((TILE, WIDTH))
    outer[:, :-1] = np.vander(points, TILE, increasing=True).T
    filters = np.zeros((WIDTH, TAPS))
    filters[:-1] = np.vander(points, TAPS, increasing=True) / np.array(scales)[:, None]
    outer[-1, -1] = filters[-1, -1] = 1.0
    inner = np.zeros((WIDTH, WIDTH))
    for place, rest in enumerate(others):
        inner[place, :-1] = np.poly(rest)[::-1]
    inner[-1] = np.poly(points)[::-1]
    return outer, filters, inner
