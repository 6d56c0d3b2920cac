"""Calls inside a GPU's autocast region: one for each op that is cast there, and the forms that regions take."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from tests.fidelity import calls as plain

Call = tuple[str, Callable[..., Any], tuple[Any, ...], dict[str, Any]]


def _leaf(*sizes: int) -> torch.Tensor:
    return torch.randn(*sizes, requires_grad=True)


def _half(*sizes: int) -> torch.Tensor:
    return torch.randn(*sizes).half().requires_grad_()


def _in_region(function: Callable[..., Any], dtype: torch.dtype = torch.float16) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        with torch.autocast("cuda", dtype=dtype):
            return function(*args, **kwargs)

    return call


def listed() -> Iterator[Call]:
    """By policy, each op once or in the form that its list names."""
    image, square, vector = _leaf(2, 3, 8, 8), _leaf(4, 4), _leaf(4)
    for name in ("acos", "asin", "cosh", "erfinv", "exp", "expm1", "log", "log10", "log2", "log1p", "reciprocal",
                 "rsqrt", "sinh", "tan"):  # fmt: skip
        yield name, getattr(torch, name), (_half(3, 4),), {}
    for operand in (_half(3, 4), 2.0):
        yield "pow", torch.pow, (_half(3, 4), operand), {}
    yield "pow of a number", torch.pow, (2.0, _half(3, 4)), {}
    yield "softplus", F.softplus, (_half(3, 4),), {}
    yield "layer_norm", F.layer_norm, (_half(3, 4), (4,), _leaf(4), _leaf(4)), {}
    yield "rms_norm", F.rms_norm, (_half(3, 4), (4,)), {}
    yield "group_norm", F.group_norm, (_half(2, 4, 3), 2), {}
    for loss in (F.mse_loss, F.l1_loss, F.smooth_l1_loss, F.huber_loss, F.kl_div, F.poisson_nll_loss,
                 F.binary_cross_entropy_with_logits):  # fmt: skip
        yield loss.__name__, loss, (_half(3, 4), torch.rand(3, 4)), {}
    labels = torch.tensor([0, 1, 3])
    for loss in (F.nll_loss, F.cross_entropy, F.multi_margin_loss):
        yield loss.__name__, loss, (_leaf(3, 4), labels), {}
        yield f"{loss.__name__} in half", loss, (_half(3, 4), labels), {}
    yield "cosine_similarity", F.cosine_similarity, (_half(3, 4), _half(3, 4)), {}
    yield "triplet_margin_loss", F.triplet_margin_loss, (_half(3, 4), _half(3, 4), _half(3, 4)), {}
    yield "cdist", torch.cdist, (_leaf(3, 4), _leaf(3, 4)), {}
    yield "dist", torch.dist, (_half(3, 4), _half(3, 4)), {}
    yield "logsumexp", torch.logsumexp, (_half(3, 4), 1), {}
    yield "upsample", F.interpolate, (_half(2, 3, 8, 8),), {"scale_factor": 2.0}
    yield "upsample bicubic", F.interpolate, (image,), {"scale_factor": 2.0, "mode": "bicubic"}
    for function in (torch.sum, torch.prod):
        yield function.__name__, function, (_half(3, 4),), {}
        yield f"{function.__name__} of a dim", function, (_half(3, 4), 1), {}
    yield "sum to a dtype", torch.sum, (_half(3, 4),), {"dtype": torch.float16}
    for function in (torch.cumsum, torch.cumprod):
        yield function.__name__, function, (_half(3, 4), 1), {}
    for softmax in (F.softmax, F.log_softmax):
        yield softmax.__name__, softmax, (_half(3, 4), -1), {}
        yield f"{softmax.__name__} to a dtype", softmax, (_half(3, 4), -1), {"dtype": torch.float16}
    yield "softmax of integers", torch.sum, (torch.tensor([1, 2]),), {}
    yield "norm", torch.ops.aten.norm.Scalar, (_half(3, 4),), {}
    yield "norm of a dim", torch.ops.aten.norm.ScalarOpt_dim, (_half(3, 4), 2, [1]), {}
    yield "linalg.vector_norm", torch.linalg.vector_norm, (_half(3, 4),), {}
    yield "addcmul promoted", torch.addcmul, (_half(4), _leaf(4), _half(4)), {}
    yield "addcdiv in half", torch.addcdiv, (_half(4), _half(4), _half(4)), {}
    yield "atan2", torch.atan2, (_leaf(4), _half(4)), {}
    yield "dot", torch.dot, (_leaf(4), _half(4)), {}
    yield "bilinear", F.bilinear, (_half(3, 4), _leaf(3, 5), _leaf(2, 4, 5)), {}
    yield "scatter_add", torch.scatter_add, (_leaf(3, 4), 1, torch.zeros(3, 2, dtype=torch.long), _half(3, 2)), {}
    yield "index_put", torch.index_put, (_leaf(4), (torch.tensor([1]),), _half(1)), {}
    yield "matmul", torch.matmul, (square, _half(4, 4)), {}
    for name in ("mm", "mv", "addmm", "einsum", "linalg.multi_dot", "bmm", "baddbmm", "prelu"):
        args: dict[str, tuple[Any, ...]] = {
            "mm": (square, square), "mv": (square, vector), "addmm": (vector, square, square),
            "einsum": ("ij,jk", square, square), "linalg.multi_dot": ([square, square, square],),
            "bmm": (square[None], square[None]), "baddbmm": (square[None], square[None], square[None]),
            "prelu": (image, _leaf(3)),
        }  # fmt: skip
        function = getattr(torch.linalg, "multi_dot") if "." in name else getattr(torch, name)  # noqa: B009
        yield name, function, args[name], {}
    yield "double stays", torch.matmul, (square.double(), square.double()), {}


def on_the_cpu_alone() -> Iterator[Call]:
    """Cast by the CPU's autocast and left alone by a GPU's."""
    yield "cat", torch.cat, ([_half(3, 4), _leaf(3, 4).half()],), {}
    yield "stack", torch.stack, ([_half(3, 4), _half(3, 4)],), {}
    yield "avg_pool3d", F.avg_pool3d, (_leaf(1, 2, 4, 4, 4), 2), {}
    yield "trace", torch.trace, (_leaf(4, 4),), {}
    yield "pad reflect", F.pad, (_leaf(2, 3, 8, 8), (1, 1, 1, 1)), {"mode": "reflect"}


def _twice(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return F.linear(F.linear(x, weight), weight)


def _regions(x: torch.Tensor, weight: torch.Tensor) -> list[torch.Tensor]:
    with torch.autocast("cuda", dtype=torch.bfloat16):
        y = F.linear(x, weight)
        with torch.autocast("cuda", enabled=False):
            z = F.linear(y.float(), weight).exp()
        with torch.autocast("cuda", dtype=torch.float16, cache_enabled=False):
            z = F.linear(F.linear(z, weight), weight)
        y = F.linear(F.linear(y, weight), weight)
    with torch.autocast("cuda"):
        y = F.linear(y, weight)
    return [y, F.linear(z.float(), weight)]


class _Exact(torch.autograd.Function):
    @staticmethod
    @torch.amp.custom_fwd(device_type="cuda", cast_inputs=torch.float32)
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x, weight)
        return x @ weight

    @staticmethod
    @torch.amp.custom_bwd(device_type="cuda")
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x, weight = ctx.saved_tensors
        return grad @ weight.T, x.T @ grad


class _LikeForward(torch.autograd.Function):
    @staticmethod
    @torch.amp.custom_fwd(device_type="cuda")
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x, weight)
        return x @ weight

    @staticmethod
    @torch.amp.custom_bwd(device_type="cuda")
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x, weight = ctx.saved_tensors
        return grad @ weight.T, x.T @ grad


def forms() -> Iterator[Call]:
    """Regions, nested, disabled and without copies of weights, and functions with a cast of their own."""
    x, weight = _leaf(3, 4), _leaf(4, 4)
    yield "a weight used twice", _in_region(_twice), (x, weight), {}
    yield "regions", _regions, (x, weight), {}
    yield "custom_fwd with cast_inputs", _in_region(_Exact.apply), (x, weight), {}
    yield "custom_fwd", _in_region(_LikeForward.apply), (x, weight), {}
    with torch.no_grad():
        yield "frozen weights", _in_region(_twice), (x.detach(), weight.detach()), {}
    convolution = nn.Conv2d(3, 4, 3)
    image = _leaf(2, 3, 8, 8)
    yield "convolution", _in_region(F.conv2d), (image, convolution.weight, convolution.bias), {}
    for kind in ("lstm", "gru"):
        _, cell, arguments, _ = plain._cell(kind)
        yield f"{kind}_cell", _in_region(cell), arguments, {}


def calls() -> Iterator[Call]:
    for call in (*listed(), *on_the_cpu_alone()):
        yield call[0], _in_region(call[1]), call[2], call[3]
    yield "bf16 linear", _in_region(F.linear, torch.bfloat16), (_leaf(3, 4), _leaf(2, 4), _leaf(2)), {}
    yield from forms()
