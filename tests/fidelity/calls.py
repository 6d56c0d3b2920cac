"""One call for each row of the table of composites, and for its neighbours that choose nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

Call = tuple[str, Callable[..., Any], tuple[Any, ...], dict[str, Any]]


def _leaf(*sizes: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*sizes, dtype=dtype, requires_grad=True)


def _recurrent(kind: str, packed: bool) -> Call:
    """``torch.lstm`` and its like, as nn.LSTM calls them."""
    n_gates = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}[kind]
    weights = [_leaf(n_gates * 8, 8), _leaf(n_gates * 8, 8), _leaf(n_gates * 8), _leaf(n_gates * 8)]
    hidden: Any = (torch.zeros(1, 3, 8), torch.zeros(1, 3, 8)) if kind == "lstm" else torch.zeros(1, 3, 8)
    function = getattr(torch, kind)
    if packed:
        args: tuple[Any, ...] = (_leaf(6, 8), torch.tensor([3, 2, 1]), hidden, weights, True, 1, 0.0, True, False)
    else:
        args = (_leaf(4, 3, 8), hidden, weights, True, 1, 0.0, True, False, False)
    return f"{kind}.{'data' if packed else 'input'}", function, args, {}


def _cell(kind: str) -> Call:
    n_gates = 4 if kind == "lstm" else 3
    hidden: Any = (_leaf(3, 8), _leaf(3, 8)) if kind == "lstm" else _leaf(3, 8)
    weights = (_leaf(n_gates * 8, 8), _leaf(n_gates * 8, 8), _leaf(n_gates * 8), _leaf(n_gates * 8))
    return f"{kind}_cell", getattr(torch, f"{kind}_cell"), (_leaf(3, 8), hidden, *weights), {}


def _encoder_layer() -> nn.TransformerEncoderLayer:
    return nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)


def _attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return F.multi_head_attention_forward(
        q, k, v, 8, 2, torch.ones(24, 8, device=q.device), torch.ones(24, device=q.device), None, None, False, 0.0,
        torch.ones(8, 8, device=q.device), torch.ones(8, device=q.device), need_weights=False,
    )[0]  # fmt: skip


def rows() -> Iterator[Call]:
    """Named after the row of the table that takes the call."""
    q, half = _leaf(2, 4, 8, 16), _leaf(2, 4, 8, 16, dtype=torch.bfloat16)
    yield "scaled_dot_product_attention", F.scaled_dot_product_attention, (q, q, q), {"is_causal": True}
    yield "scaled_dot_product_attention", F.scaled_dot_product_attention, (half, half, half), {"dropout_p": 0.5}
    running = torch.zeros(3), torch.ones(3)
    yield "batch_norm", F.batch_norm, (_leaf(2, 3, 8, 8), *running, _leaf(3), _leaf(3)), {"training": True}
    for kind in ("lstm", "gru", "rnn_tanh", "rnn_relu"):
        yield _recurrent(kind, packed=False)
        yield _recurrent(kind, packed=True)
    yield _cell("lstm")
    yield _cell("gru")
    log_probs, targets = _leaf(12, 2, 5).log_softmax(-1).detach().requires_grad_(), torch.ones(2, 4, dtype=torch.long)
    lengths = torch.tensor([12, 12]), torch.tensor([4, 3])
    yield "ctc_loss.IntList", torch.ctc_loss, (log_probs, targets, [12, 12], [4, 3]), {}
    yield "ctc_loss.Tensor", torch.ctc_loss, (log_probs, targets, *lengths), {}
    yield "dropout", F.dropout, (_leaf(4, 4),), {}
    yield "rms_norm", F.rms_norm, (_leaf(4, 8), (8,), _leaf(8)), {}
    yield "grid_sampler", F.grid_sample, (_leaf(1, 2, 4, 4), _leaf(1, 3, 3, 2)), {"align_corners": True}
    half_table = torch.randn(3, 4).half().requires_grad_()
    yield "softmax.int", F.softmax, (half_table, -1), {"dtype": torch.float32}
    yield "log_softmax.int", F.log_softmax, (half_table, -1), {"dtype": torch.float32}
    yield "one_hot", F.one_hot, (torch.tensor([0, 2, 1]),), {"num_classes": 4}
    yield "layer_norm", F.layer_norm, (_leaf(4, 8), (8,), _leaf(8), _leaf(8)), {}
    yield "group_norm", F.group_norm, (_leaf(2, 4, 3), 2, _leaf(4), _leaf(4)), {}
    table, index, offsets = _leaf(6, 3), torch.tensor([1, 2, 4, 5]), torch.tensor([0, 2])
    yield "embedding_bag.padding_idx", F.embedding_bag, (index, table, offsets), {"mode": "mean"}
    yield "embedding_bag", torch.ops.aten.embedding_bag.default, (table, index, offsets), {}


def neighbours() -> Iterator[Call]:
    """Composites and Python functions that lead to the same ops everywhere."""
    x, image, half = _leaf(3, 4, 8), _leaf(2, 3, 8, 8), _leaf(2, 3, 8, 8, dtype=torch.bfloat16)
    yield "linear 2-D", F.linear, (x[0], _leaf(5, 8), _leaf(5)), {}
    yield "linear 3-D", F.linear, (x, _leaf(5, 8), _leaf(5)), {}
    yield "linear, no bias, transposed", F.linear, (x.transpose(0, 1), _leaf(5, 8)), {}
    yield "matmul folded", torch.matmul, (x, _leaf(8, 2)), {}
    yield "matmul batched", torch.matmul, (x, _leaf(3, 8, 2)), {}
    yield "einsum", torch.einsum, ("bij,bjk->bik", x, _leaf(3, 8, 2)), {}
    for name, function, weight in (
        ("conv2d", F.conv2d, _leaf(4, 3, 3, 3)),
        ("conv2d same", lambda i, w: F.conv2d(i, w, padding="same"), _leaf(4, 3, 3, 3)),
        ("conv_transpose2d", F.conv_transpose2d, _leaf(3, 4, 3, 3)),
        ("depthwise", lambda i, w: F.conv2d(i, w, groups=3), _leaf(3, 1, 3, 3)),
    ):
        yield name, function, (image, weight), {}
    yield "conv2d channels_last bf16", F.conv2d, (half.to(memory_format=torch.channels_last), half[:, :, :3, :3]), {}
    yield "instance_norm without statistics", F.instance_norm, (image,), {"use_input_stats": True}
    yield "alpha_dropout", F.alpha_dropout, (x, 0.5, True), {}
    yield "feature_alpha_dropout", F.feature_alpha_dropout, (x, 0.5, True), {}
    yield "dropout2d", F.dropout2d, (image, 0.5, True), {}
    yield "dropout_", F.dropout, (torch.randn(3, 4), 0.5, True, True), {}
    yield "weight_norm", torch._weight_norm, (_leaf(4, 3), _leaf(4, 1), 0), {}
    yield "weight_norm fp16", torch._weight_norm, (_leaf(4, 3).half().detach(), _leaf(4, 1).half().detach(), 0), {}
    yield "rnn_tanh_cell", torch.rnn_tanh_cell, (_leaf(3, 8), _leaf(3, 8), _leaf(8, 8), _leaf(8, 8)), {}
    yield "max_pool1d", F.max_pool1d, (torch.randn(2, 3, 8), 2), {}
    yield "max_pool2d", F.max_pool2d, (image, 2), {}
    yield "cross_entropy", F.cross_entropy, (_leaf(4, 5), torch.tensor([0, 1, 2, 4])), {"label_smoothing": 0.1}
    yield "cosine_embedding_loss", F.cosine_embedding_loss, (_leaf(3, 4), _leaf(3, 4), torch.tensor([1, -1, 1])), {}
    yield "cdist", torch.cdist, (_leaf(30, 4), _leaf(30, 4)), {}
    yield "pairwise_distance", F.pairwise_distance, (_leaf(3, 4), _leaf(3, 4)), {}
    yield "interpolate", F.interpolate, (image,), {"scale_factor": 2.0, "mode": "bilinear"}
    yield "pad reflect", F.pad, (image, (1, 1, 1, 1)), {"mode": "reflect"}
    yield "unfold", F.unfold, (image, 2), {}
    yield "stft", torch.stft, (torch.randn(64), 16), {"return_complex": True, "window": torch.ones(16)}
    yield "rrelu", F.rrelu, (x,), {"training": True}
    yield "quantile", torch.quantile, (x, 0.5), {}
    yield "bilinear", F.bilinear, (_leaf(3, 4), _leaf(3, 5), _leaf(2, 4, 5)), {}
    yield "std", torch.std, (x, 1), {}
    yield "nuclear norm", torch.linalg.matrix_norm, (_leaf(4, 4), "nuc"), {}
    yield "embedding", F.embedding, (torch.tensor([1, 2]), _leaf(4, 3)), {"padding_idx": 1}
    yield "gelu", F.gelu, (x,), {"approximate": "tanh"}
    yield "silu", F.silu, (x,), {}
    yield "softmax", F.softmax, (x, -1), {"dtype": torch.float64}
    yield "multi_head_attention_forward", _attention, (x, x, x), {}


def calls() -> Iterator[Call]:
    yield from rows()
    yield from neighbours()
