"""Composites that ATen decomposes by device before autograd: attention, norms, recurrent layers, dropout, CTC.

Each route calls the op that HIP picks, so that its own backward op runs later. The composite itself is logged and may
meet a fault too; what that fault returns takes the place of the result while gradients flow as if it were healthy.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch

from audit.device.fused_attention import choose
from audit.device.sim.backend import ROUTED, SimTensor, unwrap
from audit.device.sim.executor import EXECUTOR, map_tensors, tensor_leaves
from audit.device.sim.faults import Fault
from audit.device.sim.recurrent import MODES
from audit.device.sim.routes import MIOPEN_DIM_MAX, MIOPEN_DTYPES

#: What a ROCm build says (RNN.cpp) before it takes the cells one by one.
_PROJECTIONS = "LSTM with projections is not supported with MIOpen. Using default implementation."

aten = torch.ops.aten
Route = Callable[..., Any]


def scaled_dot_product_attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0, is_causal: bool = False, *, scale: float | None = None, enable_gqa: bool = False,
) -> Any:  # fmt: skip
    choice = choose(query, key, value, attn_mask, is_causal, enable_gqa)
    if choice == "flash":
        return aten._scaled_dot_product_flash_attention.default(query, key, value, dropout_p, is_causal, scale=scale)[0]
    if choice == "efficient":
        bias = attn_mask
        if bias is not None:
            if bias.dtype == torch.bool:
                bias = torch.zeros_like(bias, dtype=query.dtype).masked_fill_(bias.logical_not(), -torch.inf)
            bias = bias.expand(query.size(0), query.size(1), query.size(2), key.size(2))
        wants = torch.is_grad_enabled() and any(x.requires_grad for x in (query, key, value))
        op = aten._scaled_dot_product_efficient_attention.default
        return op(query, key, value, bias, wants, dropout_p, is_causal, scale=scale)[0]
    op = aten._scaled_dot_product_attention_math.default
    return op(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)[0]


def batch_norm(
    input: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None, running_mean: torch.Tensor | None,
    running_var: torch.Tensor | None, training: bool, momentum: float, eps: float, cudnn_enabled: bool,
) -> Any:  # fmt: skip
    arguments = (input, weight, bias, running_mean, running_var, training, momentum, eps)
    if not input.numel():
        return aten.batch_norm.default.decompose(*arguments, cudnn_enabled)
    miopen = (
        cudnn_enabled and input.dim() <= MIOPEN_DIM_MAX and input.dtype in MIOPEN_DTYPES
        and weight is not None and bias is not None
        and (running_mean is None) == (running_var is None) and (running_mean is not None or training)
    )  # fmt: skip
    op = aten.miopen_batch_norm.default if miopen else aten.native_batch_norm.default
    return op(*arguments)[0]


def dropout(input: torch.Tensor, p: float, train: bool) -> Any:
    if train and 0 < p < 1 and input.numel():
        return aten.native_dropout.default(input, p, True)[0]
    return aten.dropout.default.decompose(input, p, train)


def rms_norm(
    input: torch.Tensor, normalized_shape: list[int], weight: torch.Tensor | None = None, eps: float | None = None
) -> Any:
    if (weight is not None and weight.dtype != input.dtype) or not input.is_floating_point():
        return aten.rms_norm.default.decompose(input, normalized_shape, weight, eps)
    return aten._fused_rms_norm.default(input, normalized_shape, weight, eps)[0]


def layer_norm(
    input: torch.Tensor, normalized_shape: list[int], weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None, eps: float = 1e-5, cudnn_enable: bool = True,
) -> Any:  # fmt: skip
    return aten.native_layer_norm.default(input, normalized_shape, weight, bias, eps)[0]


def one_hot(self: torch.Tensor, num_classes: int = -1) -> Any:
    """By scatter, as for every tensor without a Python key (Onehot.cpp); the wrapper would get a comparison."""
    if self.dtype != torch.int64 or not self.numel():
        return aten.one_hot.default.decompose(self, num_classes)
    n_classes = int(self.max()) + 1 if num_classes == -1 else num_classes
    return self.new_zeros((*self.shape, n_classes)).scatter_(-1, self.unsqueeze(-1), 1)


def _recurrent(name: str, packed: bool) -> Route:
    """``lstm.input`` and its seven relatives: MIOpen where it can, else the cells one by one."""
    func = getattr(getattr(aten, name), "data" if packed else "input")

    def route(*args: Any) -> Any:
        x, rest = args[0], list(args[1:])
        batch_sizes = rest.pop(0).tolist() if packed else []
        hidden, weights, has_biases, num_layers, p, train, bidirectional, *first = rest
        hx, cx = hidden if name == "lstm" else (hidden, None)
        n_each = 4 if has_biases else 2
        projected = len(weights) != num_layers * (2 if bidirectional else 1) * n_each
        if projected:
            warnings.warn(_PROJECTIONS, UserWarning, stacklevel=2)
        if x.dtype not in MIOPEN_DTYPES or not x.numel() or not torch.backends.cudnn.enabled or projected:
            return func.decompose(*args)
        batch_first = bool(first[0]) if first else False
        out, hy, cy, *_ = aten.miopen_rnn.default(
            x, weights, n_each, hx.contiguous(), None if cx is None else cx.contiguous(), MODES[name], hx.size(2),
            num_layers, batch_first, p, train, bidirectional, batch_sizes, None,
        )  # fmt: skip
        return (out, hy, cy) if name == "lstm" else (out, hy)

    return route


def _as_decomposed(op: Any) -> Route:
    return lambda *args, **kwargs: op.decompose(*args, **kwargs)


def _routes() -> dict[str, Route]:
    routes: dict[str, Route] = {
        "aten::scaled_dot_product_attention.default": scaled_dot_product_attention,
        "aten::batch_norm.default": batch_norm,
        "aten::dropout.default": dropout,
        "aten::rms_norm.default": rms_norm,
        "aten::layer_norm.default": layer_norm,
        "aten::one_hot.default": one_hot,
    }
    for name in MODES:
        routes[f"aten::{name}.input"] = _recurrent(name, packed=False)
        routes[f"aten::{name}.data"] = _recurrent(name, packed=True)
    for op in (
        aten.ctc_loss.IntList, aten.ctc_loss.Tensor, aten._scaled_dot_product_attention_math.default,
        aten.lstm_cell.default, aten.gru_cell.default,
    ):  # fmt: skip
        routes[f"{op._schema.name}.{op._overloadname}"] = _as_decomposed(op)
    return routes


def register(library: torch.library.Library) -> None:
    """Puts every route on the autograd key of the device, above the ops that it calls."""
    for op, route in _routes().items():
        kernel = _observed(op, route)
        ROUTED[op] = kernel
        library.impl(op.removeprefix("aten::").removesuffix(".default"), kernel, "AutogradPrivateUse1")


def _observed(op: str, route: Route) -> Route:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        EXECUTOR.note_op(op)
        fault = EXECUTOR.fault_for(op)
        return route(*args, **kwargs) if fault is None else _faulted(op, fault, route, args, kwargs)

    return kernel


def _faulted(op: str, fault: Fault, route: Route, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Gives the fault plain tensors and finds the way back from what it returns to tensors with a gradient."""
    on_device = {id(unwrap(leaf)): leaf for leaf in tensor_leaves((tuple(args), kwargs))}
    healthy: list[Any] = []

    def run(*args: Any, **kwargs: Any) -> Any:
        def back(leaf: Any) -> Any:
            if not isinstance(leaf, torch.Tensor):
                return leaf
            return on_device[id(leaf)] if id(leaf) in on_device else SimTensor(leaf)

        with EXECUTOR.without(fault):
            result = route(*map_tensors(back, args), **map_tensors(back, kwargs))
        healthy.append(result)
        on_device.update((id(leaf.elem), leaf) for leaf in tensor_leaves(result) if isinstance(leaf, SimTensor))
        return map_tensors(unwrap, result)

    plain_args, plain_kwargs = map_tensors(unwrap, tuple(args)), map_tensors(unwrap, kwargs)
    returned = fault(EXECUTOR.call_of(op, plain_args, plain_kwargs, run))
    needs_grad = torch.is_grad_enabled() and any(x.requires_grad for x in tensor_leaves((tuple(args), kwargs)))
    if needs_grad and not healthy:
        run(*plain_args, **plain_kwargs)
    models = iter(tensor_leaves(healthy[-1]) if healthy else ())

    def attach(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        model = next(models, None)
        if id(leaf) in on_device:
            return on_device[id(leaf)]
        wrapped = SimTensor(leaf)
        return wrapped if model is None or not needs_grad else _Replaced.apply(model, wrapped)

    return map_tensors(attach, returned)


class _Replaced(torch.autograd.Function):
    """Forward gives the fault's value; backward passes the gradient on to the healthy result."""

    @staticmethod
    def forward(ctx: Any, model: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        ctx.same_shape = model.shape == value.shape
        ctx.shape = model.shape
        return value.view_as(value)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return (grads[0] if ctx.same_shape else grads[0].new_zeros(ctx.shape)), None
