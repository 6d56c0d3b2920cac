"""Convolutions by Winograd's minimal filtering F(6x6, 3x3), in the operands' own dtype: as exact as a library may be.

MIOpen, cuDNN and NNPACK choose it for 3x3 filters in fp32, up to this tile. It has a tenth of the products and some
twenty times the rounding error of a direct sum, which no moved operand shows. Source: Lavin and Gray, "Fast Algorithms
for Convolutional Neural Networks" (2015); the matrices are those of Toom and Cook for the usual points.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from audit.replay.overload import arguments_of, base_of
from audit.schema import Arg, Case, TensorSpec

#: Points at which the polynomials are taken, beside infinity.
_POINTS = (0.0, 1.0, -1.0, 2.0, -2.0, 0.5, -0.5)
_TILE, _TAPS = 6, 3
_WIDTH = _TILE + _TAPS - 1


def winograd_of(case: Case) -> Callable[..., Any] | None:
    """What computes the call so, with the op's own arguments; None where no library would."""
    arguments = arguments_of(case)
    weight = arguments.get("weight")
    if not isinstance(weight, TensorSpec) or weight.dtype != "float32" or weight.sizes[2:] != (_TAPS, _TAPS):
        return None
    if arguments.get("transposed") or not all(_all_one(arguments.get(name)) for name in ("stride", "dilation")):
        return None
    ways: dict[str, Callable[..., Any]] = {"convolution": _forward, "convolution_backward": _backward}
    return ways.get(base_of(case.op))


def _all_one(arg: Arg) -> bool:
    return isinstance(arg, tuple) and all(value == 1 for value in arg)


def _forward(
    image: Tensor, weight: Tensor, bias: Tensor | None, stride: Sequence[int], padding: Sequence[int],
    dilation: Sequence[int], transposed: bool, output_padding: Sequence[int], groups: int,
) -> Tensor:  # fmt: skip
    result = filtered(image, weight, padding, groups)
    return result if bias is None else result + bias[:, None, None]


def _backward(
    grad: Tensor, image: Tensor, weight: Tensor, bias_sizes: Sequence[int] | None, stride: Sequence[int],
    padding: Sequence[int], dilation: Sequence[int], transposed: bool, output_padding: Sequence[int], groups: int,
    wanted: Sequence[bool],
) -> tuple[Tensor | None, ...]:  # fmt: skip
    """By differentiating the forward: the transposed algorithm is the one that libraries have for gradients."""
    with torch.enable_grad():
        leaves = image.detach().requires_grad_(), weight.detach().requires_grad_()
        by_image, by_weight = torch.autograd.grad(filtered(*leaves, padding, groups), leaves, grad)
    gradients = by_image, by_weight, grad.sum((0, 2, 3))
    return tuple(gradient if want else None for gradient, want in zip(gradients, wanted, strict=True))


def filtered(image: Tensor, weight: Tensor, padding: Sequence[int], groups: int) -> Tensor:
    """``image`` [n, channels, height, width] filtered with ``weight`` [filters, channels / groups, 3, 3]."""
    outer, filters, inner = (torch.from_numpy(matrix).to(image.dtype) for matrix in _matrices())
    n, channels, *sizes = image.shape
    wanted = [size + 2 * pad - _TAPS + 1 for size, pad in zip(sizes, padding, strict=True)]
    (n_high, more_high), (n_wide, more_wide) = ((-(-size // _TILE), -size % _TILE) for size in wanted)
    padded = torch.nn.functional.pad(image, (padding[1], padding[1] + more_wide, padding[0], padding[0] + more_high))
    tiles = padded.unfold(2, _WIDTH, _TILE).unfold(3, _WIDTH, _TILE)  # n, channels, high, wide, 8, 8
    transformed = (inner @ tiles @ inner.T).reshape(n, groups, channels // groups, n_high, n_wide, _WIDTH, _WIDTH)
    kernels = (filters @ weight @ filters.T).unflatten(0, (groups, -1))
    products = torch.einsum("ngchwij,gfcij->ngfhwij", transformed, kernels)
    results = (outer @ products @ outer.T).flatten(1, 2).permute(0, 1, 2, 4, 3, 5)
    return results.reshape(n, -1, n_high * _TILE, n_wide * _TILE)[:, :, : wanted[0], : wanted[1]]


def _matrices() -> tuple[np.ndarray[Any, Any], ...]:
    """A^T [6, 8], G [8, 3] and B^T [8, 8] of the paper, in double precision."""
    points = np.array(_POINTS)
    others = [np.delete(points, place) for place in range(len(points))]
    scales = [np.prod(point - rest) for point, rest in zip(points, others, strict=True)]
    outer = np.zeros((_TILE, _WIDTH))
    outer[:, :-1] = np.vander(points, _TILE, increasing=True).T
    filters = np.zeros((_WIDTH, _TAPS))
    filters[:-1] = np.vander(points, _TAPS, increasing=True) / np.array(scales)[:, None]
    outer[-1, -1] = filters[-1, -1] = 1.0
    inner = np.zeros((_WIDTH, _WIDTH))
    for place, rest in enumerate(others):
        inner[place, :-1] = np.poly(rest)[::-1]
    inner[-1] = np.poly(points)[::-1]
    return outer, filters, inner
