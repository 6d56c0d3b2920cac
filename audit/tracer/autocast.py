"""Autocast of a redirected program: CPU tensors are cast as a GPU's autocast would cast them.

A region that the program opens for ``cuda`` stays one for ``cuda`` (what the program asks about it is answered as on a
GPU) and is opened for the CPU as well, with Python kernels on the CPU's autocast key in place of its own: the two op
lists differ (the CPU leaves ``exp`` in half precision and has ``cat`` promoted, a GPU has neither).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch.amp import autocast_mode

from audit.tracer.composites import find_overload

#: Which dtype an op is run in, by policy and overload: the macros of ATen/autocast_mode.h (torch 2.13), which are the
#: lists of https://docs.pytorch.org/docs/stable/amp.html#cuda-op-specific-behavior. What a torch casts on a GPU beyond
#: these, or no more, is found by its dispatcher (``unknown_ops``).
LOWER_PRECISION = """
    _convolution _convolution.deprecated conv1d conv2d conv3d conv_tbc conv_transpose1d conv_transpose2d.input
    conv_transpose3d.input convolution prelu addmm addmv addr matmul einsum mm mv linalg_vecdot linear addbmm baddbmm
    bmm chain_matmul linalg_multi_dot _thnn_fused_lstm_cell _thnn_fused_gru_cell lstm_cell gru_cell rnn_tanh_cell
    rnn_relu_cell _scaled_dot_product_flash_attention scaled_dot_product_attention cudnn_convolution
    cudnn_convolution_transpose
""".split()
FP32 = """
    acos asin cosh erfinv exp expm1 log log10 log2 log1p reciprocal rsqrt sinh tan pow.Tensor_Scalar pow.Tensor_Tensor
    pow.Scalar softplus layer_norm native_layer_norm rms_norm group_norm frobenius_norm.dim nuclear_norm
    nuclear_norm.dim cosine_similarity poisson_nll_loss cosine_embedding_loss nll_loss nll_loss2d hinge_embedding_loss
    kl_div l1_loss smooth_l1_loss huber_loss mse_loss margin_ranking_loss multilabel_margin_loss soft_margin_loss
    triplet_margin_loss multi_margin_loss binary_cross_entropy_with_logits dist pdist cdist renorm logsumexp
    upsample_nearest1d _upsample_nearest_exact1d upsample_nearest2d _upsample_nearest_exact2d upsample_nearest3d
    _upsample_nearest_exact3d upsample_linear1d upsample_bilinear2d _upsample_bilinear2d_aa upsample_trilinear3d
    upsample_bicubic2d _upsample_bicubic2d_aa
""".split()
#: Operands stay as they are, and the op is asked for an fp32 result where the program asked for none.
FP32_RESULT = """
    prod prod.dim_int softmax.int log_softmax.int cumprod cumsum linalg_vector_norm linalg_matrix_norm
    linalg_matrix_norm.str_ord sum sum.dim_IntList
""".split()
#: The same by another overload, which takes the dtype.
FP32_RESULT_BY = {"norm.Scalar": "norm.ScalarOpt_dtype", "norm.ScalarOpt_dim": "norm.ScalarOpt_dim_dtype"}
#: All operands in the widest of their dtypes.
PROMOTE = "addcdiv addcmul atan2 bilinear cross dot vdot grid_sampler index_put tensordot scatter_add".split()
BANNED = ("binary_cross_entropy",)

_GPU, _CPU = "AutocastCUDA", "AutocastCPU"
_Policy = Callable[[torch._ops.OpOverload, tuple[Any, ...], dict[str, Any]], Any]


def _has(op: torch._ops.OpOverload, key: str) -> bool:
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), key))


def _cast_on_the_cpu() -> list[torch._ops.OpOverload]:
    names = [name.removeprefix("aten::") for name in torch._C._dispatch_get_all_op_names() if name.startswith("aten::")]
    return [op for name in names if isinstance(op := find_overload(name), torch._ops.OpOverload) and _has(op, _CPU)]


def unknown_ops() -> list[str]:
    """Ops that this torch casts on a GPU, and this module does not know: a newer torch has added them."""
    known = {op.name() for op, _ in GpuCasts(lambda tensor: True).policies()}
    names = torch._C._dispatch_get_all_op_names()
    listed = {name for name in names if torch._C._dispatch_has_kernel_for_dispatch_key(name, _GPU)}
    return sorted(listed - known)


class GpuCasts:
    """The Python kernels, and the low-precision copies of fp32 weights that are kept while a region is open."""

    def __init__(self, on_gpu: Callable[[torch.Tensor], bool]) -> None:
        self._on_gpu = on_gpu
        self._library: torch.library.Library | None = None
        self._copies: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def policies(self) -> Iterator[tuple[torch._ops.OpOverload, _Policy]]:
        """Every op that a GPU casts in this torch, with how."""
        by_name: tuple[tuple[Iterable[str], _Policy], ...] = (
            (LOWER_PRECISION, self._in_lower_precision),
            (FP32, self._in_fp32),
            (FP32_RESULT, self._with_fp32_result),
            (FP32_RESULT_BY, self._with_fp32_result_by),
            (PROMOTE, self._promoted),
            (BANNED, _refused),
        )
        for names, policy in by_name:
            for name in names:
                op = find_overload(name)
                if op is not None and _has(op, _GPU):
                    yield op, policy

    def install(self) -> None:
        """Puts the kernels in place of the CPU's own; what only the CPU casts is let through."""
        if self._library is not None:
            return
        self._library = torch.library.Library("aten", "IMPL")
        cast = dict(self.policies())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that the CPU's own kernels are overridden is the purpose
            for op, policy in cast.items():
                self._library.impl(op.name().removeprefix("aten::"), _kernel(op, policy), _CPU)
            for op in _cast_on_the_cpu():
                if op not in cast:
                    self._library.impl(op.name().removeprefix("aten::"), torch.library.fallthrough_kernel, _CPU)

    def remove(self) -> None:
        self.clear()
        if self._library is not None:
            self._library._destroy()
            self._library = None

    def clear(self) -> None:
        """Drops the copies of weights, as torch does when the outermost region is left."""
        self._copies.clear()

    # --- policies ----------------------------------------------------------------------------------------------

    def _in_lower_precision(self, op: torch._ops.OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self._cast_to(torch.get_autocast_dtype("cuda"), op, args, kwargs)

    def _in_fp32(self, op: torch._ops.OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self._cast_to(torch.float32, op, args, kwargs)

    def _promoted(self, op: torch._ops.OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        lower = torch.get_autocast_dtype("cuda")
        dtypes = {tensor.dtype for tensor in _tensors((args, tuple(kwargs.values()))) if self._is_eligible(tensor)}
        return self._cast_to(lower if dtypes <= {lower} else torch.float32, op, args, kwargs)

    def _with_fp32_result(self, op: torch._ops.OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not self._is_eligible(args[0]):
            return op(*args, **kwargs)
        bound = {**dict(zip((argument.name for argument in op._schema.arguments), args, strict=False)), **kwargs}
        if bound.get("dtype") is None:
            bound["dtype"] = torch.float32
        return op(**bound)

    def _with_fp32_result_by(self, op: torch._ops.OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        other = find_overload(FP32_RESULT_BY[op.name().removeprefix("aten::")])
        assert other is not None
        given = [*args, *(argument.default_value for argument in op._schema.arguments[len(args) :])]
        return other(*given, dtype=torch.float32 if self._is_eligible(args[0]) else args[0].dtype, **kwargs)

    def _is_eligible(self, tensor: Any) -> bool:
        """Whether autocast may cast it: on the GPU, floating point, and not double."""
        return (
            isinstance(tensor, torch.Tensor)
            and tensor.is_floating_point()
            and tensor.dtype is not torch.float64
            and self._on_gpu(tensor)
        )

    def _cast_to(self, dtype: torch.dtype, op: torch._ops.OpOverload, args: Any, kwargs: dict[str, Any]) -> Any:
        cast_kwargs = {name: self._cast(value, dtype) for name, value in kwargs.items()}
        return op(*[self._cast(arg, dtype) for arg in args], **cast_kwargs)

    def _cast(self, value: Any, dtype: torch.dtype) -> Any:
        if isinstance(value, (list, tuple)):
            return [self._cast(item, dtype) for item in value]
        if not isinstance(value, torch.Tensor) or not self._is_eligible(value) or value.dtype == dtype:
            return value
        if dtype != torch.get_autocast_dtype("cuda") or not _is_weight(value) or not torch.is_autocast_cache_enabled():
            return value.to(dtype)
        kept = self._copies.get(id(value))
        if kept is None:
            kept = self._copies[id(value)] = value, value.to(dtype)
        return kept[1]


def _kernel(op: torch._ops.OpOverload, policy: _Policy) -> Callable[..., Any]:
    without_autocast = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)

    def kernel(*args: Any, **kwargs: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(without_autocast):
            return policy(op, args, kwargs)

    return kernel


def _refused(op: torch._ops.OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    raise RuntimeError(f"{op.name()} is refused under autocast on a GPU: its result is unsafe in half precision")


def _is_weight(tensor: torch.Tensor) -> bool:
    """An fp32 leaf that is trained: cast once while a region is open."""
    return tensor.dtype is torch.float32 and tensor.requires_grad and tensor.is_leaf and not tensor._is_view()


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item)


# --- regions ---------------------------------------------------------------------------------------------------


def patch_autocast(
    replace: Callable[[Any, str, Any], None],
    names_gpu: Callable[[], None],
    on_gpu: Callable[[torch.Tensor], bool],
) -> Callable[[], None]:
    """Patches autocast by ``replace(owner, name, value)``; returns what takes the kernels out again.

    ``names_gpu`` is called when the program opens a region for a GPU, whose casts are for tensors that are ``on_gpu``.
    """
    casts, region = GpuCasts(on_gpu), autocast_mode.autocast
    start, enter, leave, clear = region.__init__, region.__enter__, region.__exit__, torch.clear_autocast_cache

    def init(self: Any, device_type: str, *args: Any, **kwargs: Any) -> None:
        start(self, device_type, *args, **kwargs)
        if device_type == "cuda":
            names_gpu()

    def settle() -> None:
        """The kernels are there while a GPU's region is open, and are not in the way of a CPU's own."""
        if torch.is_autocast_enabled("cuda"):
            casts.install()
            torch.set_autocast_enabled("cpu", True)
            torch.set_autocast_dtype("cpu", torch.get_autocast_dtype("cuda"))
        elif torch.is_autocast_enabled("cpu"):
            casts.remove()

    def open_region(self: Any) -> Any:
        self._cpu_before = torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")
        result = enter(self)
        if self.device == "cuda":
            torch.set_autocast_enabled("cpu", False)
        settle()
        return result

    def close_region(self: Any, *details: Any) -> Any:
        result = leave(self, *details)
        torch.set_autocast_enabled("cpu", self._cpu_before[0])
        torch.set_autocast_dtype("cpu", self._cpu_before[1])
        settle()
        return result

    def clear_both() -> None:
        casts.clear()
        clear()

    for name, method in (("__init__", init), ("__enter__", open_region), ("__exit__", close_region)):
        replace(region, name, method)
    replace(torch, "clear_autocast_cache", clear_both)
    return casts.remove
