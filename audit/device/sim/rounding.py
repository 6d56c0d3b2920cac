"""Healthy results of the simulated device: right, but rounded along another path than the CPU reference takes.

A correct GPU sums in another order and has its own transcendental functions. So contractions and reductions are
computed over interleaved elements, transcendentals move by at most one fp32 (fp64) ULP on about half of the elements,
and everything that IEEE 754 or torch defines exactly (add, mul, copies, comparisons, integers, views) stays bitwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import torch
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode

from audit.device.cpu_kernels import detour, through_wider

Values: TypeAlias = dict[str, Any]
Rule: TypeAlias = Callable[[OpOverload, Values], Any]

LOW_PRECISION = (torch.float16, torch.bfloat16)


def base_name(func: OpOverload) -> str:
    """``addmm`` for ``aten::addmm_`` and ``aten::addmm.out``: the name that the rules go by."""
    return str(func._schema.name).split("::")[-1].rstrip("_")


def bind(func: OpOverload, args: Sequence[Any], kwargs: dict[str, Any]) -> Values:
    """The call's arguments by schema name; those left at their default are absent."""
    names = [argument.name for argument in func._schema.arguments]
    return {**dict(zip(names, args, strict=False)), **kwargs}


def call(func: OpOverload, values: Values) -> Any:
    """Calls ``func`` with arguments by schema name (``self`` cannot be passed as a keyword)."""
    rest = dict(values)
    args: list[Any] = []
    for argument in func._schema.arguments:
        if argument.kwarg_only or argument.name not in rest:
            break
        args.append(rest.pop(argument.name))
    return func(*args, **rest)


def healthy(func: OpOverload, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """What a correct device returns for ``func`` on these CPU tensors."""
    way = detour(func._schema.name, (arg.dtype for arg in args if isinstance(arg, torch.Tensor)))
    if way is not None:
        return through_wider(lambda *args, **kwargs: healthy(func, args, kwargs), way[0])(*args, **kwargs)
    rule = RULES.get(base_name(func)) if func.namespace == "aten" else None
    if rule is None:
        return func(*args, **kwargs)
    return rule(func, bind(func, args, kwargs))


class Rounding(TorchDispatchMode):
    """Gives every aten op inside the block its healthy rounding, so that a composed computation has it too."""

    def __torch_dispatch__(
        self, func: OpOverload, types: Sequence[type], args: Sequence[Any] = (), kwargs: Values | None = None
    ) -> Any:
        composite = torch._C.DispatchKey.CompositeImplicitAutograd
        if base_name(func) not in RULES and func.has_kernel_for_dispatch_key(composite):
            with self:
                return func.decompose(*args, **(kwargs or {}))
        return healthy(func, args, kwargs or {})


# --- order of summation ----------------------------------------------------------------------------------------


def interleaved(n: int) -> torch.Tensor:
    """Indices 0, 2, 4, ..., 1, 3, 5, ...: neighbours in memory no longer meet in one vector lane."""
    return torch.cat([torch.arange(0, n, 2), torch.arange(1, n, 2)])


def reordered(x: torch.Tensor, dims: Iterable[int]) -> torch.Tensor:
    """``x`` with its elements along ``dims`` interleaved, in the memory layout of ``x``."""
    y = x
    for dim in dims:
        if x.dim() and x.size(dim) > 2:
            y = y.index_select(dim, interleaved(x.size(dim)))
    return x if y is x else torch.empty_like(x).copy_(y)


def restored(y: torch.Tensor, dims: Iterable[int]) -> torch.Tensor:
    """The inverse of ``reordered``."""
    z = y
    for dim in dims:
        if y.dim() and y.size(dim) > 2:
            z = z.index_select(dim, torch.argsort(interleaved(y.size(dim))))
    return y if z is y else torch.empty_like(y).copy_(z)


def _contraction(left: str, left_dim: int, right: str, right_dim: int) -> Rule:
    def rule(func: OpOverload, values: Values) -> Any:
        a, b = values[left], values[right]
        if not (a.is_floating_point() or a.is_complex()) or a.size(left_dim) < 3:
            return call(func, values)
        order = interleaved(a.size(left_dim))
        changed = {left: a.index_select(left_dim, order), right: b.index_select(right_dim, order)}
        return call(func, {**values, **changed})

    return rule


def _dims(x: torch.Tensor, dim: Any) -> list[int]:
    if dim is None or dim == []:
        return list(range(x.dim()))
    return [dim] if isinstance(dim, int) else list(dim)


def _reduction(func: OpOverload, values: Values) -> Any:
    x = values["self"]
    if not (x.is_floating_point() or x.is_complex()):
        return call(func, values)
    return call(func, {**values, "self": reordered(x, _dims(x, values.get("dim")))})


def _along_dim(*names: str) -> Rule:
    """Softmax and its like: as many values come out along ``dim`` as go in."""

    def rule(func: OpOverload, values: Values) -> Any:
        dims = [values["dim"]]
        changed = {name: reordered(values[name], dims) for name in names}
        out = call(func, {**values, **changed})
        if "out" in values or "grad_input" in values:
            return out.copy_(restored(out, dims))
        return restored(out, dims)

    return rule


def _last_dim(inputs: Sequence[str], outputs: Sequence[int]) -> Rule:
    """Norms over trailing dims: tensors that have the last dim are reordered along it, outputs put back."""

    def rule(func: OpOverload, values: Values) -> Any:
        changed = {name: reordered(values[name], [-1]) for name in inputs if values.get(name) is not None}
        results = list(call(func, {**values, **changed}))
        for position in outputs:
            if results[position] is not None:
                results[position] = restored(results[position], [-1])
        return tuple(results)

    return rule


def _all_but_channels(inputs: Sequence[str]) -> Rule:
    """Batch norm: samples and pixels are reordered, channels (dim 1) are not; output 0 is put back."""

    def rule(func: OpOverload, values: Values) -> Any:
        dims = [dim for dim in range(values[inputs[0]].dim()) if dim != 1]
        changed = {name: reordered(values[name], dims) for name in inputs}
        results = list(call(func, {**values, **changed}))
        if results[0] is not None:
            results[0] = restored(results[0], dims)
        return tuple(results)

    return rule


def _group_norm(inputs: Sequence[str]) -> Rule:
    def rule(func: OpOverload, values: Values) -> Any:
        dims = list(range(2, values[inputs[0]].dim()))
        changed = {name: reordered(values[name], dims) for name in inputs}
        results = list(call(func, {**values, **changed}))
        if results[0] is not None:
            results[0] = restored(results[0], dims)
        return tuple(results)

    return rule


def _grouped(n: int, groups: int) -> torch.Tensor:
    order = interleaved(n // groups)
    return torch.cat([order + group * (n // groups) for group in range(groups)])


def _convolution(func: OpOverload, values: Values) -> Any:
    x, weight, groups = values["input"], values["weight"], values["groups"]
    channel = x.dim() - weight.dim() + 1
    per_group = x.size(channel) // groups
    if per_group < 3:
        return _by_aten(func, values)
    transposed = values["transposed"]
    order, within = _grouped(x.size(channel), groups), interleaved(per_group)
    changed = {
        "input": _layout_of(x, x.index_select(channel, order)),
        "weight": _layout_of(weight, weight.index_select(0, order) if transposed else weight.index_select(1, within)),
    }
    return call(func, {**values, **changed})


def _convolution_backward(func: OpOverload, values: Values) -> Any:
    grad, x, groups = values["grad_output"], values["input"], values["groups"]
    n, channels = grad.size(0), grad.size(1)
    if grad.dim() != x.dim() or (n < 3 and channels // groups < 3):
        return _by_aten(func, values)
    weight, dim = values["weight"], 1 if values["transposed"] else 0
    samples, order = interleaved(n), _grouped(channels, groups)
    weight_order = interleaved(channels // groups) if values["transposed"] else order
    changed = {
        "grad_output": _layout_of(grad, grad.index_select(0, samples).index_select(1, order)),
        "input": _layout_of(x, x.index_select(0, samples)),
        "weight": _layout_of(weight, weight.index_select(dim, weight_order)),
    }
    grad_x, grad_w, grad_b = call(func, {**values, **changed})
    if grad_x is not None:
        grad_x = _layout_of(grad_x, grad_x.index_select(0, torch.argsort(samples)))
    if grad_w is not None:
        grad_w = _layout_of(grad_w, grad_w.index_select(dim, torch.argsort(weight_order)))
    if grad_b is not None:
        grad_b = grad_b.index_select(0, torch.argsort(order))
    return grad_x, grad_w, grad_b


def _layout_of(model: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(model).copy_(values)


def _by_aten(func: OpOverload, values: Values) -> Any:
    """ATen's own convolution sums in another order than oneDNN; for shapes with no channels to interleave."""
    with without_onednn():
        return call(func, values)


@contextmanager
def without_onednn() -> Iterator[None]:
    """oneDNN off inside. ``torch.backends.mkldnn.flags`` is not used: it warns, and the case would be told of it."""
    enabled = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(False)
    try:
        yield
    finally:
        torch._C._set_mkldnn_enabled(enabled)


# --- transcendental functions ----------------------------------------------------------------------------------

_BITS = {torch.float32: torch.int32, torch.float64: torch.int64}


def moved_one_ulp(y: torch.Tensor, inputs: Iterable[torch.Tensor]) -> torch.Tensor:
    """``y`` with about half of its elements one ULP nearer to zero; the choice follows the bits, so it repeats.

    Values that any correct implementation hits exactly stay: 0, 1, -1, infinities, NaN, subnormals, and elements equal
    to an input (the identity branch of elu, gelu, ...). Towards zero, so that no range (sigmoid <= 1) is left.
    """
    if y.dtype not in _BITS:
        return y
    bits = y.view(_BITS[y.dtype])
    chosen = ((bits ^ (bits >> 7) ^ (bits >> 13)) & 1) == 1
    size = y.abs()
    exact = (size == 1) | ~torch.isfinite(y) | (size < torch.finfo(y.dtype).tiny * 2)
    for x in inputs:
        if x.shape == y.shape:
            exact = exact | (x == y)
    return torch.where(chosen & ~exact, bits - 1, bits).view(y.dtype)


def _transcendental(func: OpOverload, values: Values) -> Any:
    tensors = [value for value in values.values() if isinstance(value, torch.Tensor) and value.is_floating_point()]
    if func._schema.is_mutable:
        out = call(func, values)
        if isinstance(out, torch.Tensor) and out.dtype in _BITS:
            out.copy_(moved_one_ulp(out, ()))
        return out
    low = next((x.dtype for x in tensors if x.dtype in LOW_PRECISION), None)
    if low is None or any(x.dtype not in LOW_PRECISION for x in tensors):
        return _map_tensors(call(func, values), lambda y: _moved(y, tensors))
    up = {name: value.float() if _is_low(value) else value for name, value in values.items()}
    wide = [value.float() for value in tensors]
    return _map_tensors(call(func, up), lambda y: _moved(y, wide).to(low) if y.dtype == torch.float32 else y)


def _loss(func: OpOverload, values: Values) -> Any:
    """Losses are reduced with the logarithm still in flight: the result moves, and in fp32 and fp64 only."""
    out = call(func, values)
    return out if func._schema.is_mutable else _map_tensors(out, lambda y: _moved(y, ()))


def _moved(y: torch.Tensor, inputs: Sequence[torch.Tensor]) -> torch.Tensor:
    moved = moved_one_ulp(y, inputs)
    return moved if moved.stride() == y.stride() else _layout_of(y, moved)


def _is_low(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype in LOW_PRECISION


def _map_tensors(result: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    if isinstance(result, torch.Tensor):
        return change(result)
    if isinstance(result, (tuple, list)):
        return type(result)(_map_tensors(item, change) for item in result)
    return result


#: Exponents for which pow is a product, a root or a quotient, exact on every device.
_EXACT_EXPONENTS = (0, 1, 2, 3, 0.5, -0.5, -1, -2)


def _power(func: OpOverload, values: Values) -> Any:
    exponent = values.get("exponent")
    if isinstance(exponent, (int, float)) and exponent in _EXACT_EXPONENTS:
        return call(func, values)
    return _transcendental(func, values)


_GEMM: dict[str, Rule] = {
    "mm": _contraction("self", -1, "mat2", -2),
    "bmm": _contraction("self", -1, "mat2", -2),
    "addmm": _contraction("mat1", -1, "mat2", -2),
    "_addmm_activation": _contraction("mat1", -1, "mat2", -2),
    "baddbmm": _contraction("batch1", -1, "batch2", -2),
    "addbmm": _contraction("batch1", -1, "batch2", -2),
    "mv": _contraction("self", -1, "vec", -1),
    "addmv": _contraction("mat", -1, "vec", -1),
    "dot": _contraction("self", -1, "tensor", -1),
    "vdot": _contraction("self", -1, "other", -1),
    "linear": _contraction("input", -1, "weight", -1),
    "convolution": _convolution,
    "convolution_backward": _convolution_backward,
}

_REDUCTIONS = (
    "sum", "mean", "nansum", "prod", "var", "std", "var_mean", "std_mean", "logsumexp", "norm", "linalg_vector_norm",
)  # fmt: skip

_NORMS: dict[str, Rule] = {
    "_softmax": _along_dim("self"),
    "_log_softmax": _along_dim("self"),
    "_safe_softmax": _along_dim("self"),
    "_softmax_backward_data": _along_dim("grad_output", "output"),
    "_log_softmax_backward_data": _along_dim("grad_output", "output"),
    "native_layer_norm": _last_dim(("input", "weight", "bias"), (0,)),
    "native_layer_norm_backward": _last_dim(("grad_out", "input", "weight", "bias"), (0, 1, 2)),
    "native_batch_norm": _all_but_channels(("input",)),
    "_native_batch_norm_legit": _all_but_channels(("input",)),
    "_batch_norm_with_update": _all_but_channels(("input",)),
    "native_batch_norm_backward": _all_but_channels(("grad_out", "input")),
    "native_group_norm": _group_norm(("input",)),
    "native_group_norm_backward": _group_norm(("grad_out", "input")),
}

_TRANSCENDENTAL = (
    "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "asin", "acos", "atan", "atan2",
    "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc", "erfinv", "lgamma", "digamma", "sigmoid", "rsqrt",
    "gelu", "gelu_backward", "silu", "silu_backward", "mish", "mish_backward", "softplus", "softplus_backward", "elu",
    "log_sigmoid_forward", "log_sigmoid_backward", "tanh_backward", "sigmoid_backward", "logit", "xlogy", "logaddexp",
    "logaddexp2", "special_erfcx", "special_ndtri", "special_log_ndtr", "i0",
)  # fmt: skip

_LOSSES = (
    "mse_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy", "nll_loss_forward", "nll_loss2d_forward",
    "_ctc_loss",
)  # fmt: skip

RULES: dict[str, Rule] = {
    **_GEMM,
    **dict.fromkeys(_REDUCTIONS, _reduction),
    **_NORMS,
    **dict.fromkeys(_TRANSCENDENTAL, _transcendental),
    **dict.fromkeys(_LOSSES, _loss),
    "pow": _power,
}
