"""CPU equivalents of ops that have no CPU kernel: same signature and outputs, plain arithmetic in the operands' dtype.

Fed with fp64 operands they give the reference for fused attention, MIOpen and cuDNN ops. Outputs that only the device's
own backward can read are empty here and held to metadata (``audit.replay.standards.PRIVATE``).
"""

# The parameters are those of the ops' schemas, in their order; the op's schema gives their types.
# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False, disallow-untyped-calls=False

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

Equivalent = Callable[..., Any]

# --- attention: softmax(q k^T * scale + bias) v (Vaswani et al. 2017), heads in dimension 1 ------------------------


def _attention(
    query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None, causal: bool, scale: float | None
) -> tuple[Tensor, Tensor]:
    """Output and log-sum-exp of [batch, heads, length, width] operands; fewer key heads are repeated (GQA)."""
    groups = query.size(1) // key.size(1)
    key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
    scores = query @ key.transpose(-2, -1) * (1 / math.sqrt(query.size(-1)) if scale is None else scale)
    if bias is not None:
        scores = scores.masked_fill(~bias, -math.inf) if bias.dtype == torch.bool else scores + bias
    if causal:
        length, width = scores.shape[-2:]
        scores = scores.masked_fill(~torch.ones(length, width, dtype=torch.bool).tril(), -math.inf)
    return torch.softmax(scores, -1) @ value, torch.logsumexp(scores, -1)


def _no_dropout(dropout_p: float) -> None:
    if dropout_p > 0:
        raise NotImplementedError("attention with dropout has no reference: its mask is drawn on the device")


def _flash(query, key, value, dropout_p=0.0, is_causal=False, return_debug_mask=False, *, scale=None):
    _no_dropout(dropout_p)
    output, lse = _attention(query, key, value, None, is_causal, scale)
    return output, lse, None, None, query.size(2), key.size(2), None, None, None


def _efficient(query, key, value, attn_bias, compute_log_sumexp, dropout_p=0.0, is_causal=False, *, scale=None):
    _no_dropout(dropout_p)
    output, lse = _attention(query, key, value, attn_bias, is_causal, scale)
    return output, lse if compute_log_sumexp else None, None, None


def _cudnn(
    query,
    key,
    value,
    attn_bias,
    compute_log_sumexp,
    dropout_p=0.0,
    is_causal=False,
    return_debug_mask=False,
    *,
    scale=None,
):
    _no_dropout(dropout_p)
    output, _ = _attention(query, key, value, attn_bias, is_causal, scale)
    return output, None, None, None, query.size(2), key.size(2), None, None, None


def _flash_forward(
    query, key, value, cum_seq_q, cum_seq_k, max_q, max_k, dropout_p, is_causal, debug, *, scale=None, **more
):
    """Operands are [batch, length, heads, width]; packed sequences and windows are left without a reference."""
    _no_dropout(dropout_p)
    if cum_seq_q is not None or any(extra is not None for extra in more.values()):
        raise NotImplementedError("packed or windowed attention has no CPU equivalent here")
    query, key, value = (t.transpose(1, 2) for t in (query, key, value))
    output, lse = _attention(query, key, value, None, is_causal, scale)
    return output.transpose(1, 2), lse, None, None, None


def _efficient_forward(
    query,
    key,
    value,
    bias,
    cu_seqlens_q,
    cu_seqlens_k,
    max_q,
    max_k,
    dropout_p,
    custom_mask_type,
    lse=False,
    *,
    scale=None,
    **more,
):
    """As ``_flash_forward``; ``custom_mask_type`` 0 is none and 1 causal from the top left."""
    _no_dropout(dropout_p)
    if cu_seqlens_q is not None or custom_mask_type > 1 or any(extra is not None for extra in more.values()):
        raise NotImplementedError("packed or windowed attention has no CPU equivalent here")
    query, key, value = (t.transpose(1, 2) for t in (query, key, value))
    output, sums = _attention(query, key, value, bias, custom_mask_type == 1, scale)
    return output.transpose(1, 2), sums if lse else None, None, None, None, None


def _attention_backward(
    grad: Tensor, operands: Sequence[Tensor], bias: Tensor | None, causal: bool, scale: float | None
) -> tuple[Tensor, ...]:
    """Gradients of query, key, value by differentiating ``_attention``; the forward's saved outputs are not needed."""
    with torch.enable_grad():
        leaves = [operand.detach().requires_grad_() for operand in operands]
        output, _ = _attention(leaves[0], leaves[1], leaves[2], bias, causal, scale)
        return torch.autograd.grad(output, leaves, grad)


def _flash_backward(
    grad_out, query, key, value, out, lse, cum_q, cum_k, max_q, max_k, dropout_p, is_causal, seed, offset, *, scale=None
):
    _no_dropout(dropout_p)
    return _attention_backward(grad_out, (query, key, value), None, is_causal, scale)


def _efficient_backward(
    grad_out,
    query,
    key,
    value,
    attn_bias,
    out,
    lse,
    seed,
    offset,
    dropout_p,
    grad_input_mask,
    is_causal=False,
    *,
    scale=None,
):
    _no_dropout(dropout_p)
    gradients = _attention_backward(grad_out, (query, key, value), attn_bias, is_causal, scale)
    return (*(g if wanted else None for g, wanted in zip(gradients, grad_input_mask, strict=False)), None)


# --- convolution ---------------------------------------------------------------------------------------------------


def _convolution(self, weight, bias, padding, stride, dilation, groups, *_):
    return torch.ops.aten.convolution(self, weight, bias, stride, padding, dilation, False, [0] * len(stride), groups)


def _convolution_unbiased(self, weight, padding, stride, dilation, groups, *_):
    return _convolution(self, weight, None, padding, stride, dilation, groups)


def _transposed(self, weight, bias, padding, output_padding, stride, dilation, groups, *_):
    return torch.ops.aten.convolution(self, weight, bias, stride, padding, dilation, True, output_padding, groups)


def _transposed_unbiased(self, weight, padding, output_padding, stride, dilation, groups, *_):
    return _transposed(self, weight, None, padding, output_padding, stride, dilation, groups)


def _convolution_relu(self, weight, bias, stride, padding, dilation, groups):
    return torch.relu(_convolution(self, weight, bias, padding, stride, dilation, groups))


def _convolution_add_relu(self, weight, z, alpha, bias, stride, padding, dilation, groups):
    summed = _convolution(self, weight, bias, padding, stride, dilation, groups) + (1 if alpha is None else alpha) * z
    return torch.relu(summed)


# --- batch norm ----------------------------------------------------------------------------------------------------


def _batch_norm(input, weight, bias, running_mean, running_var, training, factor, epsilon):
    return torch.ops.aten.native_batch_norm(input, weight, bias, running_mean, running_var, training, factor, epsilon)


def _cudnn_batch_norm(*args):
    return (*_batch_norm(*args), None)


def _batch_norm_backward(input, grad_output, weight, running_mean, running_var, save_mean, save_var, epsilon, *_):
    return torch.ops.aten.native_batch_norm_backward(
        grad_output, input, weight, running_mean, running_var, save_mean, save_var, True, epsilon, [True, True, True]
    )


# --- recurrent nets: the equations of torch.nn.LSTM and torch.nn.GRU -------------------------------------------------


def _lstm_cell(input_gates, hidden_gates, cx, input_bias=None, hidden_bias=None):
    gates = input_gates + hidden_gates
    if input_bias is not None:
        gates = gates + input_bias + hidden_bias
    i, f, g, o = gates.chunk(4, 1)
    cy = torch.sigmoid(f) * cx + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(cy), cy, None


def _gru_cell(input_gates, hidden_gates, hx, input_bias=None, hidden_bias=None):
    x = input_gates if input_bias is None else input_gates + input_bias
    h = hidden_gates if hidden_bias is None else hidden_gates + hidden_bias
    (xr, xz, xn), (hr, hz, hn) = x.chunk(3, 1), h.chunk(3, 1)
    z, n = torch.sigmoid(xz + hz), torch.tanh(xn + torch.sigmoid(xr + hr) * hn)
    return (1 - z) * n + z * hx, None


#: cuDNN's numbering of recurrent nets, which MIOpen shares (ATen/native/cudnn/RNN.cpp).
_RNN_MODES = (torch.ops.aten.rnn_relu, torch.ops.aten.rnn_tanh, torch.ops.aten.lstm, torch.ops.aten.gru)


def _rnn(input, weight, hx, cx, mode, num_layers, batch_first, dropout, train, bidirectional, batch_sizes):
    if batch_sizes:
        raise NotImplementedError("packed sequences have no CPU equivalent here")
    per_layer = len(weight) // (num_layers * (2 if bidirectional else 1))
    state = [hx, cx] if mode == 2 else hx
    result = _RNN_MODES[mode](
        input, state, list(weight), per_layer == 4, num_layers, dropout, train, bidirectional, batch_first
    )
    return (*result, *[None] * (5 - len(result)))


def _miopen_rnn(
    input, weight, stride0, hx, cx, mode, hidden, layers, batch_first, dropout, train, two_way, sizes, state
):
    return _rnn(input, weight, hx, cx, mode, layers, batch_first, dropout, train, two_way, sizes)


def _cudnn_rnn(
    input,
    weight,
    stride0,
    buffer,
    hx,
    cx,
    mode,
    hidden,
    proj,
    layers,
    batch_first,
    dropout,
    train,
    two_way,
    sizes,
    state,
):
    if proj:
        raise NotImplementedError("projected LSTM has no CPU equivalent here")
    return _rnn(input, weight, hx, cx, mode, layers, batch_first, dropout, train, two_way, sizes)


def _lstm_cell_backward(grad_hy, grad_cy, cx, cy, workspace, has_bias):
    """``workspace`` holds the activated gates i, f, g and o of the forward, [batch, 4 hidden]."""
    i, f, g, o = workspace.chunk(4, 1)
    squashed = torch.tanh(cy)
    by_output = torch.zeros_like(cy) if grad_hy is None else grad_hy
    by_cell = by_output * o * (1 - squashed**2) + (0 if grad_cy is None else grad_cy)
    gates = torch.cat(
        (
            by_cell * g * i * (1 - i),
            by_cell * cx * f * (1 - f),
            by_cell * i * (1 - g**2),
            by_output * squashed * o * (1 - o),
        ),
        1,
    )
    return gates, by_cell * f, gates.sum(0) if has_bias else None


def _gru_cell_backward(grad_hy, workspace, has_bias):
    """``workspace`` holds r, z, n, the old state and the hidden part of n, [batch, 5 hidden]."""
    r, z, n, hx, hidden_n = workspace.chunk(5, 1)
    by_n = grad_hy * (1 - z) * (1 - n**2)
    by_z = grad_hy * (hx - n) * z * (1 - z)
    by_r = by_n * hidden_n * r * (1 - r)
    inputs, hidden = torch.cat((by_r, by_z, by_n), 1), torch.cat((by_r, by_z, by_n * r), 1)
    biases = (inputs.sum(0), hidden.sum(0)) if has_bias else (None, None)
    return inputs, hidden, grad_hy * z, *biases


def _rnn_backward(input, weight, hx, cx, grads, mode, layers, batch_first, dropout, train, two_way, sizes, wanted):
    """By differentiating ``_rnn``; which of input, hx, cx and weight get a gradient is in ``wanted``."""
    if dropout > 0 and train:
        raise NotImplementedError("a recurrent net with dropout has no reference: its mask is drawn on the device")
    with torch.enable_grad():
        tensors = [input, hx, *([] if cx is None else [cx]), *weight]
        leaves = [tensor.detach().requires_grad_() for tensor in tensors]
        n_states = len(leaves) - len(weight)
        state = leaves[2] if cx is not None else None
        outputs = _rnn(leaves[0], leaves[n_states:], leaves[1], state, mode, layers, batch_first, 0.0, train, two_way,
                       sizes)  # fmt: skip
        pairs = [(o, g) for o, g in zip(outputs, grads, strict=False) if o is not None and g is not None]
        gradients = torch.autograd.grad([o for o, _ in pairs], leaves, [g for _, g in pairs], allow_unused=True)
    states = (*gradients[:n_states], *([None] if cx is None else []))
    chosen = [gradient if want else None for gradient, want in zip(states, wanted, strict=False)]
    return (*chosen, list(gradients[n_states:]) if wanted[3] else [])


def _miopen_rnn_backward(
    input, weight, stride0, buffer, hx, cx, output, grad_output, grad_hy, grad_cy, mode, hidden, layers, batch_first,
    dropout, train, two_way, sizes, state, reserve, wanted,
):  # fmt: skip
    grads = grad_output, grad_hy, grad_cy
    return _rnn_backward(
        input, weight, hx, cx, grads, mode, layers, batch_first, dropout, train, two_way, sizes, wanted
    )


def _cudnn_rnn_backward(
    input, weight, stride0, buffer, hx, cx, output, grad_output, grad_hy, grad_cy, mode, hidden, proj, layers,
    batch_first, dropout, train, two_way, sizes, state, reserve, wanted,
):  # fmt: skip
    if proj:
        raise NotImplementedError("projected LSTM has no CPU equivalent here")
    grads = grad_output, grad_hy, grad_cy
    return _rnn_backward(
        input, weight, hx, cx, grads, mode, layers, batch_first, dropout, train, two_way, sizes, wanted
    )


# --- optimizers: the single-tensor formulas of torch/optim -----------------------------------------------------------


def _adam(decoupled: bool) -> Equivalent:
    def step(params, grads, means, squares, maxima, steps, *, lr, beta1, beta2, weight_decay, eps, amsgrad, maximize,
             grad_scale=None, found_inf=None) -> None:  # fmt: skip
        if found_inf is not None and found_inf.item() == 1:
            return
        for i, param in enumerate(params):
            grad = grads[i] if grad_scale is None else grads[i] / grad_scale
            grad = -grad if maximize else grad
            if decoupled:
                param.mul_(1 - lr * weight_decay)
            elif weight_decay:
                grad = grad + weight_decay * param
            means[i].lerp_(grad, 1 - beta1)
            squares[i].mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
            correction1, correction2 = 1 - beta1 ** steps[i], 1 - beta2 ** steps[i]
            largest = torch.maximum(maxima[i], squares[i], out=maxima[i]) if amsgrad else squares[i]
            param.sub_(lr / correction1 * means[i] / (largest.sqrt() / correction2.sqrt() + eps))

    return step


#: Op (without overload) -> its equivalent on the CPU.
EQUIVALENTS: dict[str, Equivalent] = {
    "aten::_scaled_dot_product_flash_attention": _flash,
    "aten::_scaled_dot_product_efficient_attention": _efficient,
    "aten::_scaled_dot_product_cudnn_attention": _cudnn,
    "aten::_scaled_dot_product_flash_attention_backward": _flash_backward,
    "aten::_scaled_dot_product_efficient_attention_backward": _efficient_backward,
    "aten::_flash_attention_forward": _flash_forward,
    "aten::_efficient_attention_forward": _efficient_forward,
    "aten::miopen_convolution": _convolution,
    "aten::miopen_depthwise_convolution": _convolution,
    "aten::miopen_convolution_transpose": _transposed,
    "aten::miopen_convolution_relu": _convolution_relu,
    "aten::miopen_convolution_add_relu": _convolution_add_relu,
    "aten::cudnn_convolution": _convolution_unbiased,
    "aten::cudnn_convolution_transpose": _transposed_unbiased,
    "aten::cudnn_convolution_relu": _convolution_relu,
    "aten::cudnn_convolution_add_relu": _convolution_add_relu,
    "aten::miopen_batch_norm": _batch_norm,
    "aten::cudnn_batch_norm": _cudnn_batch_norm,
    "aten::miopen_batch_norm_backward": _batch_norm_backward,
    "aten::cudnn_batch_norm_backward": _batch_norm_backward,
    "aten::_thnn_fused_lstm_cell": _lstm_cell,
    "aten::_thnn_fused_gru_cell": _gru_cell,
    "aten::_thnn_fused_lstm_cell_backward_impl": _lstm_cell_backward,
    "aten::_thnn_fused_gru_cell_backward": _gru_cell_backward,
    "aten::miopen_rnn": _miopen_rnn,
    "aten::_cudnn_rnn": _cudnn_rnn,
    "aten::miopen_rnn_backward": _miopen_rnn_backward,
    "aten::_cudnn_rnn_backward": _cudnn_rnn_backward,
    # The CPU has no kernel from fp16 to fp32.
    "aten::_softmax": lambda self, dim, half_to_float: torch.softmax(self, dim),
    "aten::_log_softmax": lambda self, dim, half_to_float: torch.log_softmax(self, dim),
    "aten::_fused_adam_": _adam(decoupled=False),
    "aten::_fused_adamw_": _adam(decoupled=True),
}


def equivalent_of(op: str) -> Equivalent | None:
    """The CPU equivalent of a qualified op, or None."""
    return EQUIVALENTS.get(op.rsplit(".", 1)[0])
