"""Calls of convolutions, forward and backward, as bilinear outputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from audit.replay.sampled.bilinear import Bilinear
from audit.replay.sampled.convolutions import Convolution, Geometry, TransposedConvolution, WeightGradient
from audit.replay.sampled.products import Product

#: Ops by the names of their arguments; the transposed ones of libraries say so in their name.
FORWARDS = frozenset(
    "convolution _convolution convolution_overrideable conv1d conv2d conv3d miopen_convolution "
    "miopen_depthwise_convolution cudnn_convolution miopen_convolution_transpose cudnn_convolution_transpose".split()
)
BACKWARDS = frozenset(("convolution_backward", "convolution_backward_overrideable"))


def forward_of(base: str, a: Mapping[str, Any], out: Tensor) -> Bilinear | None:
    """``out`` is the output on meta."""
    image, weight, bias = a.get("self", a.get("input")), a["weight"], a.get("bias")
    transposed = bool(a.get("transposed", base.endswith("transpose")))
    if image.dim() != weight.dim() or isinstance(a["padding"], str) or not image.is_floating_point():
        return None
    groups = int(a["groups"])
    geometry = _geometry(a, weight, *((out, image) if transposed else (image, out)))
    addend = None
    if bias is not None:
        addend = bias.view(groups, 1, -1)
        addend = addend if groups == 1 else addend.repeat(image.shape[0], 1, 1)
    kind = TransposedConvolution if transposed else Convolution
    return kind(image, weight.unflatten(0, (groups, -1)), out.dtype, addend=addend, geometry=geometry)


def gradients_of(a: Mapping[str, Any], outputs: Mapping[str, Tensor], names: tuple[str, ...]) -> dict[str, Bilinear]:
    """The gradients of input, weight and bias among ``outputs``, by their ``names`` there."""
    gradient, image, weight = a["grad_output"], a["input"], a["weight"]
    groups, transposed = int(a["groups"]), bool(a["transposed"])
    geometry = _geometry(a, weight, *((gradient, image) if transposed else (image, gradient)))
    grouped = weight.unflatten(0, (groups, -1))
    forms: dict[str, Bilinear] = {}
    if names[0] in outputs:
        kind = Convolution if transposed else TransposedConvolution
        forms[names[0]] = kind(gradient, grouped, outputs[names[0]].dtype, geometry=geometry)
    if names[1] in outputs:
        wide, narrow = (gradient, image) if transposed else (image, gradient)
        right = narrow.unflatten(1, (groups, -1))
        forms[names[1]] = WeightGradient(wide, right, outputs[names[1]].dtype, geometry=geometry)
    if names[2] in outputs:
        places = gradient.movedim(1, -1).flatten(0, -2)
        ones = places.new_ones(1, 1).expand(1, 1, places.shape[0])
        forms[names[2]] = Product(ones, places.unsqueeze(0), outputs[names[2]].dtype)
    return forms


def _geometry(a: Mapping[str, Any], weight: Tensor, wide: Tensor, narrow: Tensor) -> Geometry:
    n = weight.dim() - 2

    def each(name: str) -> tuple[int, ...]:
        given = a[name] if isinstance(a[name], (list, tuple)) else [a[name]]
        return tuple(int(value) for value in (given if len(given) == n else given * n))

    sizes = tuple(weight.shape[2:]), tuple(wide.shape[2:]), tuple(narrow.shape[2:])
    return Geometry(each("stride"), each("padding"), each("dilation"), *sizes)
