"""The same case in double precision, and with every float input moved by one rounding step."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import torch

from audit.replay.inputs import elements_of, storages_of, torch_dtype
from audit.replay.overload import resolve
from audit.replay.spool import on_storage
from audit.replay.stream import PERIOD, Stream, repeated
from audit.replay.ulp import spacing_above_one
from audit.schema import Arg, Case, Named, TensorSpec

#: Ops whose ``eps`` defaults to that of the type they compute in: float32 for narrower inputs (seen in torch 2.13).
_EPS_BY_DTYPE = ("rms_norm", "_fused_rms_norm")
_SINGLE_EPS = torch.finfo(torch.float32).eps
#: Rounding steps of a shift; of numbers that are computed with in float32 fewer are needed, and more would be far.
_SHIFT, _NARROW_SHIFT = 16, 2
#: Ops that make numbers out of none, in the default dtype unless they are told another.
_MAKERS = frozenset(
    """
    bartlett_window blackman_window hamming_window hann_window kaiser_window linspace logspace arange range fft_fftfreq
    fft_rfftfreq
    """.split()
)


def wide_dtype(dtype: torch.dtype) -> torch.dtype:
    """float64 for floats, complex128 for complex numbers, anything else as it is."""
    if dtype.is_complex:
        return torch.complex128
    return torch.float64 if dtype.is_floating_point else dtype


def widened(case: Case) -> Case:
    """The case with dtype arguments in double precision and ``half_to_float`` off; tensor specs stay as they are."""
    try:
        names = [argument.name for argument in resolve(case.op)._schema.arguments]
    except AttributeError:
        names = []
    args = tuple(_widened(names[i] if i < len(names) else "", arg) for i, arg in enumerate(case.args))
    kwargs = {name: _widened(name, arg) for name, arg in case.kwargs}
    base = case.op.split("::")[-1].split(".")[0]
    if base in _EPS_BY_DTYPE and _is_single_precision(case.args[0]):
        args, kwargs = _with_eps(names, args, kwargs)
    if base in _MAKERS and kwargs.get("dtype") is None:
        is_complex = any(isinstance(arg, complex) for arg in case.args)
        kwargs["dtype"] = Named("dtype", "complex128" if is_complex else "float64")
    return dataclasses.replace(case, args=args, kwargs=tuple(kwargs.items()))


def with_single_scalars(case: Case) -> Case:
    """The case with its floating scalars as float32 has them."""

    def single(arg: Arg) -> Arg:
        return torch.tensor(arg, dtype=torch.float32).item() if isinstance(arg, float) else arg

    kwargs = tuple((name, single(arg)) for name, arg in case.kwargs)
    return dataclasses.replace(case, args=tuple(single(arg) for arg in case.args), kwargs=kwargs)


def _is_single_precision(arg: Arg) -> bool:
    return isinstance(arg, TensorSpec) and arg.dtype != "float64"


def _with_eps(
    names: list[str], args: tuple[Arg, ...], kwargs: dict[str, Arg]
) -> tuple[tuple[Arg, ...], dict[str, Arg]]:
    """Writes the default ``eps`` out, which would be another one in double precision."""
    place = names.index("eps")
    if place < len(args):
        given = args[place] if args[place] is not None else _SINGLE_EPS
        return (*args[:place], given, *args[place + 1 :]), kwargs
    return args, {**kwargs, "eps": kwargs.get("eps") or _SINGLE_EPS}


def _widened(name: str, arg: Arg) -> Arg:
    if name == "half_to_float":
        return False
    if isinstance(arg, Named) and arg.kind == "dtype":
        return Named("dtype", str(wide_dtype(torch_dtype(arg.name))).removeprefix("torch."))
    return arg


def operands(
    case: Case,
    contents: dict[str, torch.Tensor],
    move_seed: int | None,
    only: str | None = None,
    fine: bool = False,
    shift: int = 0,
) -> Callable[[int, TensorSpec], torch.Tensor]:
    """Fresh operands in double precision with the case's strides and sharing; moved if ``move_seed`` is given, ``only``
    those on the storage of that name. ``fine``: narrow inputs move by a step of the float32 that is computed in.
    ``shift``: all of them move to the same side instead, +1 or -1, and as far as a device's quotient may be off.

    Operands of different dtypes on one storage (rare) are widened one by one and then share nothing.
    """
    wide: dict[int, torch.Tensor] = {}
    narrow: dict[int, torch.Tensor] = {}
    for storage in storages_of(case):
        position, spec = storage.members[0]
        dtype = torch_dtype(spec.dtype)
        content = contents[storage.name]
        if len({member.dtype for _, member in storage.members}) > 1:
            narrow.update((p, content.clone()) for p, _ in storage.members)
        elif wide_dtype(dtype) != dtype or dtype.is_floating_point or dtype.is_complex:
            elements = elements_of(content, dtype).to(wide_dtype(dtype), copy=True)
            if shift and only in (None, storage.name):
                steps = _NARROW_SHIFT if dtype.itemsize < 4 else _SHIFT
                elements.mul_(1 + shift * steps * spacing_above_one(dtype))
            elif move_seed is not None and only in (None, storage.name):
                move(elements, dtype, Stream(move_seed, case.key, position, "move"), fine)
            wide.update((p, elements) for p, _ in storage.members)
        else:
            shared = content.clone()
            narrow.update((p, shared) for p, _ in storage.members)

    def operand(position: int, spec: TensorSpec) -> torch.Tensor:
        if position in wide:
            return wide[position].as_strided(spec.sizes, spec.strides, spec.offset)
        dtype = torch_dtype(spec.dtype)
        tensor = on_storage(narrow[position], dtype, spec.sizes, spec.strides, spec.offset)
        return tensor.to(wide_dtype(dtype))

    return operand


def movable(case: Case) -> list[str]:
    """The storages that ``operands`` can move, by name."""
    return [
        storage.name
        for storage in storages_of(case)
        if len({spec.dtype for _, spec in storage.members}) == 1 and _has_rounding(storage.members[0][1])
    ]


def _has_rounding(spec: TensorSpec) -> bool:
    dtype = torch_dtype(spec.dtype)
    return dtype.is_floating_point or dtype.is_complex


def moved_contents(case: Case, contents: dict[str, torch.Tensor], seed: int) -> dict[str, torch.Tensor]:
    """The storages with every float element moved by one rounding step, in their own dtypes."""
    moved: dict[str, torch.Tensor] = {}
    for storage in storages_of(case):
        position, spec = storage.members[0]
        dtype = torch_dtype(spec.dtype)
        content = contents[storage.name].clone()
        uniform = len({member.dtype for _, member in storage.members}) == 1
        if uniform and (dtype.is_floating_point or dtype.is_complex):
            elements = elements_of(content, dtype)
            wide = elements.to(wide_dtype(dtype))
            move(wide, dtype, Stream(seed, case.key, position, "move"))
            elements.copy_(wide)
        moved[storage.name] = content
    return moved


def move(wide: torch.Tensor, dtype: torch.dtype, stream: Stream, fine: bool = False) -> None:
    """Multiplies each element in place by 1 + eps(dtype) or 1 - eps(dtype), at random; ``fine``: eps of float32."""
    n = wide.numel()
    eps = min(spacing_above_one(dtype), _SINGLE_EPS) if fine else spacing_above_one(dtype)
    signs = repeated(stream.signs(min(n, PERIOD)), n).reshape(wide.shape).to(torch.float64)
    wide.mul_(signs.mul_(eps).add_(1))
