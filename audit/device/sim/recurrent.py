"""Recurrent layers and cells as HIP has them: ``miopen_rnn`` and the fused cells of ``RNN.cu``, computed on the CPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from audit.device.sim.rounding import LOW_PRECISION, Rounding, without_onednn

#: miopenRNNMode_t and torch's own constant for LSTM and GRU, which ATen passes on (RNN_miopen.cpp).
MODES = {"rnn_relu": 0, "rnn_tanh": 1, "lstm": 2, "gru": 3}
_NAMES = {number: name for name, number in MODES.items()}


@contextmanager
def recording_gradients() -> Iterator[None]:
    """Autograd inside a kernel: below the dispatcher's autograd layer it is switched off and must be let in again."""
    with ExitStack() as stack:
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())
        stack.enter_context(torch._C._SetExcludeDispatchKeyGuard(torch._C.DispatchKey.AutogradFunctionality, False))
        yield


def _run(
    x: torch.Tensor, weight: Sequence[torch.Tensor], stride: int, hx: torch.Tensor, cx: torch.Tensor | None, mode: int,
    num_layers: int, batch_first: bool, dropout: float, train: bool, bidirectional: bool, batch_sizes: Sequence[int],
    seed: int,
) -> tuple[torch.Tensor, ...]:  # fmt: skip
    name = _NAMES[mode]
    hidden: Any = (hx, cx) if name == "lstm" else hx
    layer = getattr(torch._VF, name)
    options = (stride == 4, num_layers, dropout, train, bidirectional)
    with ExitStack() as stack:
        # Below autograd dropout is another op and draws another mask than the one that backward will recompute.
        stack.enter_context(recording_gradients())
        if dropout and train:
            stack.enter_context(torch.random.fork_rng(devices=()))
            torch.manual_seed(seed)
        stack.enter_context(without_onednn())
        stack.enter_context(Rounding())
        if batch_sizes:
            result = layer(x, torch.tensor(list(batch_sizes)), hidden, list(weight), *options)
        else:
            result = layer(x, hidden, list(weight), *options, batch_first)
    return tuple(result)


def miopen_rnn(
    input: torch.Tensor, weight: list[torch.Tensor], weight_stride0: int, hx: torch.Tensor, cx: torch.Tensor | None,
    mode: int, hidden_size: int, num_layers: int, batch_first: bool, dropout: float, train: bool, bidirectional: bool,
    batch_sizes: list[int], dropout_state: torch.Tensor | None,
) -> tuple[torch.Tensor, ...]:  # fmt: skip
    """``aten::miopen_rnn``: output, hy, cy, reserve and weight buffer; the reserve carries the dropout seed."""
    seed = torch.randint(2**62, (1,)) if dropout and train else torch.zeros(1, dtype=torch.int64)
    x, h, *weights = (_wide(tensor) for tensor in (input, hx, *weight))
    c = None if cx is None else _wide(cx)
    out, hy, *cy = _run(x, weights, weight_stride0, h, c, mode, num_layers, batch_first, dropout, train, bidirectional,
                        batch_sizes, int(seed))  # fmt: skip
    last = cy[0] if cy else torch.empty(0, dtype=input.dtype)
    results = [tensor.to(input.dtype) for tensor in (out, hy, last)]
    return (*results, seed.view(torch.uint8), torch.empty(0, dtype=input.dtype))


def _wide(x: torch.Tensor) -> torch.Tensor:
    """fp16 and bf16 as fp32: MIOpen accumulates in fp32."""
    return x.float() if x.dtype in LOW_PRECISION else x


def miopen_rnn_backward(
    input: torch.Tensor, weight: list[torch.Tensor], weight_stride0: int, weight_buf: torch.Tensor, hx: torch.Tensor,
    cx: torch.Tensor | None, output: torch.Tensor, grad_output: torch.Tensor | None, grad_hy: torch.Tensor | None,
    grad_cy: torch.Tensor | None, mode: int, hidden_size: int, num_layers: int, batch_first: bool, dropout: float,
    train: bool, bidirectional: bool, batch_sizes: list[int], dropout_state: torch.Tensor | None, reserve: torch.Tensor,
    output_mask: list[bool],
) -> tuple[Any, ...]:  # fmt: skip
    """``aten::miopen_rnn_backward``: gradients of input, hx, cx and the weights, through a recomputed forward."""
    originals = (input, hx, *weight) if cx is None else (input, hx, cx, *weight)
    with recording_gradients():
        leaves = [_wide(tensor).detach().clone().requires_grad_() for tensor in originals]
        x, h, *weights = leaves
        c = None if cx is None else weights.pop(0)
        seed = int(reserve.view(torch.int64)[0]) if dropout and train else 0
        outputs = _run(x, weights, weight_stride0, h, c, mode, num_layers, batch_first, dropout, train, bidirectional,
                       batch_sizes, seed)  # fmt: skip
        arrived = zip(outputs, (grad_output, grad_hy, grad_cy), strict=False)
        pairs = [(y, g.to(y.dtype)) for y, g in arrived if g is not None]
        with without_onednn(), Rounding():
            found = torch.autograd.grad(
                [y for y, _ in pairs], leaves, [g for _, g in pairs], allow_unused=True, materialize_grads=True
            )
    dx, dh, *dw = (grad.to(original.dtype) for grad, original in zip(found, originals, strict=True))
    dc = None if cx is None else dw.pop(0)
    return (dx if output_mask[0] else None, dh if output_mask[1] else None, dc if output_mask[2] else None, dw)


def _gates(parts: Sequence[torch.Tensor | None]) -> torch.Tensor:
    present = [part for part in parts if part is not None]
    total = _wide(present[0])
    for part in present[1:]:
        total = total + part
    return total


def lstm_cell(
    input_gates: torch.Tensor, hidden_gates: torch.Tensor, cx: torch.Tensor, input_bias: torch.Tensor | None = None,
    hidden_bias: torch.Tensor | None = None,
) -> tuple[torch.Tensor, ...]:  # fmt: skip
    """``aten::_thnn_fused_lstm_cell``: hy, cy and the activated gates (i, f, g, o) that backward needs."""
    with Rounding():
        i, f, g, o = _gates((input_gates, hidden_gates, input_bias, hidden_bias)).chunk(4, 1)
        i, f, g, o = torch.sigmoid(i), torch.sigmoid(f), torch.tanh(g), torch.sigmoid(o)
        cy = f * cx + i * g
        hy = o * torch.tanh(cy)
    dtype = input_gates.dtype
    return hy.to(dtype), cy.to(dtype), torch.cat([i, f, g, o], 1).to(dtype)


def lstm_cell_backward(
    grad_hy: torch.Tensor | None, grad_cy: torch.Tensor | None, cx: torch.Tensor, cy: torch.Tensor,
    workspace: torch.Tensor, has_bias: bool,
) -> tuple[torch.Tensor | None, ...]:  # fmt: skip
    """``aten::_thnn_fused_lstm_cell_backward_impl``: gradients of the gates, of cx, and of the bias or None."""
    if grad_hy is None and grad_cy is None:
        return None, None, None
    i, f, g, o = workspace.chunk(4, 1)
    with Rounding():
        tanh_c = torch.tanh(cy)
        grad_h = torch.zeros_like(cy) if grad_hy is None else grad_hy
        grad_c = grad_h * o * (1 - tanh_c * tanh_c)
        grad_c = grad_c if grad_cy is None else grad_c + grad_cy
        parts = [grad_c * g * i * (1 - i), grad_c * cx * f * (1 - f), grad_c * i * (1 - g * g),
                 grad_h * tanh_c * o * (1 - o)]  # fmt: skip
        gates = torch.cat(parts, 1)
        return gates, grad_c * f, gates.sum(0) if has_bias else None


def gru_cell(
    input_gates: torch.Tensor, hidden_gates: torch.Tensor, hx: torch.Tensor, input_bias: torch.Tensor | None = None,
    hidden_bias: torch.Tensor | None = None,
) -> tuple[torch.Tensor, ...]:  # fmt: skip
    """``aten::_thnn_fused_gru_cell``: hy and the workspace (r, z, n, hx, hidden part of n) that backward needs."""
    with Rounding():
        ir, iz, i_n = _gates((input_gates, input_bias)).chunk(3, 1)
        hr, hz, h_n = _gates((hidden_gates, hidden_bias)).chunk(3, 1)
        r, z = torch.sigmoid(ir + hr), torch.sigmoid(iz + hz)
        n = torch.tanh(i_n + r * h_n)
        hy = n + z * (hx - n)
    dtype = input_gates.dtype
    return hy.to(dtype), torch.cat([r, z, n, hx.to(n.dtype), h_n], 1).to(dtype)


def gru_cell_backward(grad_hy: torch.Tensor, workspace: torch.Tensor, has_bias: bool) -> tuple[Any, ...]:
    """``aten::_thnn_fused_gru_cell_backward``: gradients of both gates, hx and both biases (or None)."""
    r, z, n, hx, h_n = workspace.chunk(5, 1)
    with Rounding():
        grad_n = grad_hy * (1 - z) * (1 - n * n)
        grad_z = grad_hy * (hx - n) * z * (1 - z)
        grad_r = grad_n * h_n * r * (1 - r)
        input_gates = torch.cat([grad_r, grad_z, grad_n], 1)
        hidden_gates = torch.cat([grad_r, grad_z, grad_n * r], 1)
        biases = (input_gates.sum(0), hidden_gates.sum(0)) if has_bias else (None, None)
    return (input_gates, hidden_gates, grad_hy * z, *biases)


KERNELS: dict[str, Callable[..., Any]] = {
    "aten::miopen_rnn": miopen_rnn,
    "aten::miopen_rnn_backward": miopen_rnn_backward,
    "aten::_thnn_fused_lstm_cell": lstm_cell,
    "aten::_thnn_fused_lstm_cell_backward_impl": lstm_cell_backward,
    "aten::_thnn_fused_gru_cell": gru_cell,
    "aten::_thnn_fused_gru_cell_backward": gru_cell_backward,
}
