"""Calls whose healthy result on the simulated device is compared with the CPU: name, function, tensors.

``ARITHMETIC`` are those that a correct GPU may round differently; ``EXACT`` those that no device may.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

aten = torch.ops.aten


@dataclass(frozen=True)
class HealthyCall:
    """``function`` of tensors; gradients are taken of those in floating point."""

    name: str
    function: Callable[..., Any]
    tensors: tuple[torch.Tensor, ...]


def _seeded(*sizes: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(seed + sum(sizes))).to(dtype)


def _many(*shapes: tuple[int, ...], dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, ...]:
    return tuple(_seeded(*shape, seed=index, dtype=dtype) for index, shape in enumerate(shapes))


def _elementwise() -> list[HealthyCall]:
    x, positive = _seeded(33, 17), _seeded(33, 17).abs() + 0.1
    functions: dict[str, Callable[..., Any]] = {
        "exp": torch.exp, "tanh": torch.tanh, "sigmoid": torch.sigmoid, "erf": torch.erf, "sin": torch.sin,
        "cos": torch.cos, "gelu": F.gelu, "gelu tanh": lambda t: F.gelu(t, approximate="tanh"), "silu": F.silu,
        "mish": F.mish, "softplus": F.softplus, "elu": F.elu, "expm1": torch.expm1, "atan": torch.atan,
        "log_sigmoid": F.logsigmoid,
    }  # fmt: skip
    calls = [HealthyCall(name, function, (x,)) for name, function in functions.items()]
    more: dict[str, Callable[..., Any]] = {
        "log": torch.log, "log1p": torch.log1p, "rsqrt": torch.rsqrt, "pow 2.5": lambda t: t**2.5,
        "lgamma": torch.lgamma,
    }  # fmt: skip
    return calls + [HealthyCall(name, function, (positive,)) for name, function in more.items()]


def _contractions() -> list[HealthyCall]:
    attention = _many((2, 3, 9, 16), (2, 3, 11, 16), (2, 3, 11, 16))
    half = tuple(t.bfloat16() for t in attention)
    grouped = tuple(t.half() for t in _many((2, 4, 9, 16), (2, 2, 9, 16), (2, 2, 9, 16)))
    mask = _seeded(9, 11) > -1.0
    sdpa = F.scaled_dot_product_attention
    return [
        HealthyCall("mm", torch.mm, _many((9, 33), (33, 7))),
        HealthyCall("mm transposed", lambda a, b: a.t() @ b, _many((33, 9), (33, 7))),
        HealthyCall("addmm", torch.addmm, _many((7,), (9, 33), (33, 7))),
        HealthyCall("bmm", torch.bmm, _many((3, 9, 33), (3, 33, 7))),
        HealthyCall("baddbmm", torch.baddbmm, _many((3, 9, 7), (3, 9, 33), (3, 33, 7))),
        HealthyCall("mv", torch.mv, _many((9, 33), (33,))),
        HealthyCall("dot", torch.dot, _many((133,), (133,))),
        HealthyCall("linear", F.linear, _many((2, 9, 33), (7, 33), (7,))),
        HealthyCall("linear bf16", F.linear, _many((2, 9, 133), (70, 133), (70,), dtype=torch.bfloat16)),
        HealthyCall("conv1d", F.conv1d, _many((2, 8, 30), (6, 8, 3))),
        HealthyCall("conv2d", lambda *t: F.conv2d(*t, padding=1), _many((2, 8, 9, 9), (6, 8, 3, 3), (6,))),
        HealthyCall("conv2d stride", lambda *t: F.conv2d(*t, stride=2), _many((1, 8, 9, 9), (6, 8, 3, 3), (6,))),
        HealthyCall("conv2d depthwise", lambda *t: F.conv2d(*t, groups=8), _many((2, 8, 9, 9), (8, 1, 3, 3))),
        HealthyCall("conv2d grouped", lambda *t: F.conv2d(*t, groups=2), _many((2, 8, 9, 9), (6, 4, 3, 3))),
        HealthyCall("conv_transpose2d", lambda *t: F.conv_transpose2d(*t, groups=2), _many((2, 8, 9, 9), (8, 3, 3, 3))),
        HealthyCall("conv3d", F.conv3d, _many((1, 4, 5, 5, 5), (3, 4, 3, 3, 3))),
        HealthyCall("attention fp32", sdpa, attention),
        HealthyCall("attention masked", lambda q, k, v: sdpa(q, k, v, mask.to(q.device)), attention),
        HealthyCall("attention causal", lambda *t: sdpa(*t, is_causal=True), attention),
        HealthyCall("attention bf16", sdpa, half),
        HealthyCall("attention grouped", lambda *t: sdpa(*t, enable_gqa=True), grouped),
        HealthyCall("attention fp64", sdpa, tuple(t.double() for t in attention)),
    ]


def _reductions_and_norms() -> list[HealthyCall]:
    x, image = _seeded(12, 133), _many((4, 6, 9, 9), (6,), (6,))
    target = torch.arange(12)

    def batch_norm(t: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return F.batch_norm(t, torch.zeros_like(w), torch.ones_like(w), w, b, True)

    return [
        HealthyCall("sum", torch.sum, (x,)),
        HealthyCall("sum dim", lambda t: t.sum(-1), (x,)),
        HealthyCall("mean", lambda t: t.mean(0), (_seeded(133, 5),)),
        HealthyCall("var", lambda t: t.var(-1), (x,)),
        HealthyCall("std", lambda t: t.std(-1), (x,)),
        HealthyCall("logsumexp", lambda t: t.logsumexp(-1), (x,)),
        HealthyCall("vector norm", torch.linalg.vector_norm, (x,)),
        HealthyCall("softmax", lambda t: t.softmax(-1), (x,)),
        HealthyCall("log_softmax", lambda t: t.log_softmax(-1), (x,)),
        HealthyCall("softmax over rows", lambda t: t.softmax(0), (_seeded(133, 5),)),
        HealthyCall("layer_norm", lambda t, w, b: F.layer_norm(t, (133,), w, b), (x, *_many((133,), (133,)))),
        HealthyCall("rms_norm", lambda t, w: F.rms_norm(t, (133,), w), (x, _seeded(133))),
        HealthyCall("batch_norm", batch_norm, image),
        HealthyCall("group_norm", lambda t, w, b: F.group_norm(t, 3, w, b), image),
        HealthyCall("cross_entropy", lambda t: F.cross_entropy(t, target.to(t.device)), (x,)),
        HealthyCall("mse_loss", F.mse_loss, (x, _seeded(12, 133, seed=9))),
    ]


def _recurrent() -> list[HealthyCall]:
    def weights(layer: torch.nn.RNNBase) -> tuple[torch.Tensor, ...]:
        return tuple(w.detach() for w in layer._flat_weights)  # type: ignore[union-attr]  # never None after __init__

    torch.manual_seed(0)
    x, h, both = _seeded(5, 2, 12), _seeded(1, 2, 9), _seeded(4, 2, 9)
    lstm, deep = torch.nn.LSTM(12, 9), torch.nn.LSTM(12, 9, 2, bidirectional=True)
    gru, rnn, packed = torch.nn.GRU(12, 9), torch.nn.RNN(12, 9), torch.tensor([2, 2, 1])
    vf: Any = torch._VF
    return [
        HealthyCall("lstm", lambda t, a, c, *w: vf.lstm(t, (a, c), w, True, 1, 0.0, True, False, False),
                    (x, h, h, *weights(lstm))),
        HealthyCall("lstm deep", lambda t, a, c, *w: vf.lstm(t, (a, c), w, True, 2, 0.0, True, True, False),
                    (x, both, both, *weights(deep))),
        HealthyCall("lstm packed", lambda t, a, c, *w: vf.lstm(t, packed, (a, c), w, True, 1, 0.0, True, False),
                    (_seeded(5, 12), h, h, *weights(lstm))),
        HealthyCall("gru", lambda t, a, *w: vf.gru(t, a, w, True, 1, 0.0, True, False, False), (x, h, *weights(gru))),
        HealthyCall("rnn", lambda t, a, *w: vf.rnn_tanh(t, a, w, True, 1, 0.0, True, False, False),
                    (x, h, *weights(rnn))),
        HealthyCall("lstm cell", lambda t, a, c, *w: vf.lstm_cell(t, (a, c), *w),
                    (x[0], h[0], h[0], *weights(lstm))),
        HealthyCall("gru cell", lambda t, a, *w: vf.gru_cell(t, a, *w), (x[0], h[0], *weights(gru))),
    ]  # fmt: skip


def _exact() -> list[HealthyCall]:
    x, y, index = _seeded(12, 33), _seeded(12, 33, seed=5), torch.tensor([3, 1, 4, 1])
    functions: dict[str, Callable[..., Any]] = {
        "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b, "div": lambda a, b: a / b,
        "maximum": torch.maximum, "where": lambda a, b: torch.where(a > b, a, b), "cat": lambda a, b: torch.cat([a, b]),
        "stack": lambda a, b: torch.stack([a, b]), "lerp": lambda a, b: torch.lerp(a, b, 0.5),
        "copy": lambda a, b: a.clone().copy_(b), "add_": lambda a, b: a.clone().add_(b),
        "addcmul": lambda a, b: torch.addcmul(a, a, b),
    }  # fmt: skip
    single: dict[str, Callable[..., Any]] = {
        "relu": F.relu,
        "neg": torch.neg,
        "sqrt": torch.sqrt,
        "abs": torch.abs,
        "square": lambda a: a**2,
        "clamp": lambda a: a.clamp(-1, 1),
        "amax": lambda a: a.amax(-1),
        "transpose": lambda a: a.t().contiguous(),
        "slice": lambda a: a[2:8:2, ::3],
        "view": lambda a: a.view(-1).view(33, 12),
        "expand": lambda a: a[:1].expand(4, 33),
        "index_select": lambda a: a.index_select(0, index.to(a.device)),
        "index": lambda a: a[index.to(a.device)],
        "embedding": lambda a: F.embedding(index.to(a.device), a),
        "sort": lambda a: a.sort(-1).values,
        "topk": lambda a: a.topk(3).values,
        "masked_fill": lambda a: a.masked_fill(a > 0, 1.0),
        "pad": lambda a: F.pad(a, (1, 2)),
        "select": lambda a: a[3],
        "diag_embed": torch.diag_embed,
        "diagonal": lambda a: a.diagonal(1),
        "pad circular": lambda a: F.pad(a[None], (2, 2), mode="circular"),
        "pad reflect": lambda a: F.pad(a[None], (2, 2), mode="reflect"),
        "slice_scatter": lambda a: a.slice_scatter(a[:2] * 2, 0, 4, 6),
        "movedim": lambda a: a.movedim(0, 1),
        "select_scatter": lambda a: a.select_scatter(a[0] * 2, 0, 5),
        "squeeze": lambda a: a[:1].squeeze(0),
        "gather": lambda a: a.gather(0, index.to(a.device)[:, None].expand(4, 33)),
        "kthvalue": lambda a: a.kthvalue(2).values,
        "index_put": lambda a: a.index_put((index.to(a.device)[:3],), a[:3] * 2),
        "cummax": lambda a: a.cummax(0).values,
        "nearest": lambda a: F.interpolate(a[None], scale_factor=2),
        "median": lambda a: a.median(-1).values,
        "max_pool": lambda a: F.max_pool1d(a, 3),
        "tril": torch.tril,
        "cumsum": lambda a: a.cumsum(0),
        "roll": lambda a: a.roll(3),
        "to bf16": lambda a: a.to(torch.bfloat16),
        "chunk": lambda a: a.chunk(3)[1],
        "repeat": lambda a: a.repeat(2, 1),
        "flip": lambda a: a.flip(0),
        "unbind": lambda a: a.unbind(0)[3],
        "im2col": lambda a: F.unfold(a[None, None], 3),
    }
    calls = [HealthyCall(name, function, (x, y)) for name, function in functions.items()]
    return calls + [HealthyCall(name, function, (x.abs() + 0.1,)) for name, function in single.items()]


ARITHMETIC = (*_contractions(), *_reductions_and_norms(), *_elementwise(), *_recurrent())
_COMPLEX = torch.complex(_seeded(3, 2), _seeded(3, 2, seed=9))
EXACT = (*_exact(), HealthyCall("pinv complex", torch.linalg.pinv, (_COMPLEX,)))
