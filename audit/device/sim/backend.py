"""The PyTorch backend ``sim``: a wrapper tensor on the PrivateUse1 key whose ops all go through the executor."""

from __future__ import annotations

import types
from collections.abc import Sequence
from typing import Any

import torch
import torch.utils.backend_registration
from torch._ops import OpOverload

from audit.device.sim.executor import EXECUTOR, KERNELS, map_tensors, qualified, tensor_leaves
from audit.errors import UsageError
from audit.schema import Copy

COMPOSITE = torch._C.DispatchKey.CompositeImplicitAutograd

#: Composites whose route is chosen before autograd; filled by ``audit.device.sim.composites``.
ROUTED: dict[str, Any] = {}


class SimTensor(torch.Tensor):
    """A tensor on the simulated device; ``elem`` is the plain CPU tensor with its values, strides and storage."""

    elem: torch.Tensor

    @staticmethod
    def __new__(cls, elem: torch.Tensor) -> SimTensor:
        made: SimTensor = torch.Tensor._make_wrapper_subclass(
            cls, elem.size(), strides=elem.stride(), storage_offset=elem.storage_offset(), dtype=elem.dtype,
            device=torch.device("sim:0"), layout=elem.layout,
        )  # fmt: skip
        made.elem = elem
        return made

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]  # as torch's docs have it

    def __repr__(self, *, tensor_contents: Any = None) -> Any:  # type: ignore[override]  # torch omits the name
        return f"SimTensor({self.elem})"

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]  # torch declares the disabled one, which is no classmethod
        cls, func: OpOverload, types: Sequence[type], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return enter(func, args, kwargs or {})


def enter(func: OpOverload, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Where ops arrive from PyTorch: ``dispatch``, with exceptions held back where C++ could not carry them."""
    if EXECUTOR.in_compiled_backward():
        return EXECUTOR.deferring(lambda: dispatch(func, args, kwargs))
    return dispatch(func, args, kwargs)


def dispatch(func: OpOverload, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Runs one op on the device: SimTensors in, SimTensors out (CPU tensors where the op asks for the CPU)."""
    if qualified(func) in ROUTED:
        return ROUTED[qualified(func)](*args, **kwargs)
    if _is_composite(func):
        return func.decompose(*args, **kwargs)
    original = {id(unwrap(leaf)): leaf for leaf in tensor_leaves((tuple(args), kwargs))}
    plain_args, plain_kwargs = map_tensors(unwrap, tuple(args)), map_tensors(unwrap, kwargs)
    _note_transfer(func, args, kwargs)
    result = EXECUTOR.execute(func, plain_args, plain_kwargs)
    to_host = "device" in kwargs and torch.device(kwargs["device"] or "sim").type == "cpu"

    def wrap(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        if id(leaf) in original:
            return original[id(leaf)]
        # The wrapper has no conjugate or negative bit, so ATen would not know to resolve one that the values have.
        return leaf if to_host else SimTensor(leaf.resolve_conj().resolve_neg())

    wrapped = map_tensors(wrap, result)
    if torch.Tag.inplace_view in func.tags:
        _follow_metadata(args[0])
    return wrapped


def _is_composite(func: OpOverload) -> bool:
    """True for an op that has no kernel but its decomposition; it arrives here only below autograd."""
    own = func.has_kernel_for_dispatch_key(torch._C.DispatchKey.CPU) or str(func._schema.name) in KERNELS
    return bool(func.has_kernel_for_dispatch_key(COMPOSITE)) and not own


def unwrap(leaf: Any) -> Any:
    """The CPU tensor behind a SimTensor, the CPU device for the sim device, anything else as it is."""
    if isinstance(leaf, SimTensor):
        return leaf.elem
    if isinstance(leaf, torch.device) and leaf.type == "sim":
        return torch.device("cpu")
    return leaf


def _note_transfer(func: OpOverload, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
    """Logs the bytes of ``copy_`` and ``_to_copy`` between host and device."""
    name = func._schema.name
    if name == "aten::copy_":
        target, source = args[0], args[1]
        to_device, from_device = isinstance(target, SimTensor), isinstance(source, SimTensor)
    elif name == "aten::_to_copy" and kwargs.get("device") is not None:
        source = args[0]
        to_device, from_device = torch.device(kwargs["device"]).type == "sim", isinstance(source, SimTensor)
    else:
        return
    if to_device != from_device:
        EXECUTOR.log.copies.append(Copy("HtoD" if to_device else "DtoH", source.numel() * source.element_size()))


def _follow_metadata(tensor: Any) -> None:
    """After ``t_``, ``squeeze_`` and their like: gives the wrapper the sizes and strides that its values now have.

    One that has grown (``resize_``) keeps its own: a wrapper has no memory that could grow with its values.
    """
    if isinstance(tensor, SimTensor) and (tensor.size(), tensor.stride()) != (tensor.elem.size(), tensor.elem.stride()):
        elem = tensor.elem
        reach = elem.storage_offset() + sum(
            (n - 1) * stride for n, stride in zip(elem.size(), elem.stride(), strict=True)
        )
        if elem.numel() and (reach + 1) * elem.itemsize > tensor.untyped_storage().nbytes():
            return
        with torch.utils._mode_utils.no_dispatch():
            tensor.as_strided_(elem.size(), elem.stride(), elem.storage_offset())


# --- registration ----------------------------------------------------------------------------------------------


def _backend_module() -> types.ModuleType:
    module = types.ModuleType("torch.sim")
    answers: dict[str, Any] = {
        "is_available": True, "is_initialized": True, "device_count": 1, "current_device": 0, "_is_in_bad_fork": False,
    }  # fmt: skip
    for name, answer in answers.items():
        setattr(module, name, lambda answer=answer: answer)
    module.get_amp_supported_dtype = lambda: [torch.float16, torch.bfloat16]  # type: ignore[attr-defined]
    module.manual_seed_all = lambda seed: None  # type: ignore[attr-defined]
    return module


def _factories() -> list[OpOverload]:
    """ATen ops that make a tensor from no tensor, on the device that they are told."""
    found = []
    for name in torch._C._dispatch_get_all_op_names():
        namespace, _, rest = name.partition("::")
        packet_name, _, overload = rest.partition(".")
        func = getattr(getattr(torch.ops.aten, packet_name, None), overload or "default", None)
        if namespace != "aten" or not isinstance(func, OpOverload) or func.has_kernel_for_dispatch_key(COMPOSITE):
            continue
        arguments = func._schema.arguments
        takes_tensor = any("Tensor" in str(argument.type) for argument in arguments)
        if not takes_tensor and any(argument.name == "device" for argument in arguments):
            found.append(func)
    return found


def _kernel(func: OpOverload) -> Any:
    return lambda *args, **kwargs: enter(func, args, kwargs)


def _copy_from(source: torch.Tensor, target: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    """``aten::_copy_from``: how ATen copies between devices where the Python key is off, as in ``torch.tensor``."""
    copied: torch.Tensor = dispatch(torch.ops.aten.copy_.default, (target, source, non_blocking), {})
    return copied


#: What of torch._C the simulated device leans on; none of it is public.
_PRIVATE_NAMES = (
    "_current_autograd_node",
    "_dispatch_get_all_op_names",
    "_get_mkldnn_enabled",
    "_set_mkldnn_enabled",
    "_SetExcludeDispatchKeyGuard",
    "_ForceDispatchKeyGuard",
    "_dispatch_tls_local_exclude_set",
    "_dispatch_tls_local_include_set",
)

#: What registers a device in Python; not public either.
_SET_UP = "_setup_privateuseone_for_python_backend"

#: Ops with kernels of their own on CPU and GPU, which for unknown devices are composed of others.
_OWN_KERNELS = (
    torch.ops.aten._fused_rms_norm.default, torch.ops.aten.silu_backward.default, torch.ops.aten.mish_backward.default,
)  # fmt: skip

_LIBRARY: list[torch.library.Library] = []


def absence() -> str:
    """Why the torch that is here cannot have the simulated device, or an empty string. Registers nothing."""
    missing = [f"torch._C.{name}" for name in _PRIVATE_NAMES if not hasattr(torch._C, name)]
    if not hasattr(torch.utils.backend_registration, _SET_UP):  # new in torch 2.10
        missing.insert(0, f"torch.utils.backend_registration.{_SET_UP}")
    return _sentence(f"has no {missing[0]}") if missing else ""


def register() -> None:
    """Makes ``sim`` a device of this process; once only. Raises UsageError (``sim-unavailable``) where it cannot."""
    if _LIBRARY:
        return
    if problem := absence():
        raise UsageError(problem, "sim-unavailable")
    from audit.device.sim import composites

    try:
        getattr(torch.utils.backend_registration, _SET_UP)("sim", backend_module=_backend_module())
    except RuntimeError as error:  # another package, such as one for NPUs, has taken the one private key
        message = _sentence(f"refuses: {str(error).partition(chr(10))[0]}")
        raise UsageError(message, "sim-unavailable") from error
    library = torch.library.Library("aten", "IMPL")
    for func in [*_factories(), *_OWN_KERNELS]:
        library.impl(func.name().removeprefix("aten::"), _kernel(func), "PrivateUse1")
    library.impl("_copy_from", _copy_from, "PrivateUse1")
    composites.register(library)
    _LIBRARY.append(library)


def _sentence(reason: str) -> str:
    return (
        f"the simulated device leans on parts of PyTorch that are not public, and torch {torch.__version__} {reason}; "
        "use torch 2.10 or newer (tested with 2.10.0 and 2.13.0), or another --device"
    )
