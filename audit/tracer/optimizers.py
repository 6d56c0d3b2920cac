"""The default form of an optimizer: one ``_foreach_`` op over all parameters on a GPU, a loop over them on the CPU.

A trace made without a GPU takes the GPU's default where it can. What a redirected program has on its virtual GPU gets
it from torch itself. A program that names no GPU must compute what it computes untraced: on the CPU the two forms give
the same bits for some optimizers in fp32 and fp64 (measured on torch 2.13, tests/tracer/test_optimizers.py); the others
keep their loop, and the trace says so.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import ModuleType
from typing import Any

import torch

#: Modules of torch.optim whose two forms agree bit for bit. NAdam, RAdam, ASGD and a tensor ``lr`` of Adamax do not.
_SAME_BITS = frozenset({"sgd", "adam", "adamw", "adagrad", "rmsprop", "adadelta", "rprop"})
#: In half precision a list op keeps products in fp32 that the loop rounds; complex numbers decay in another order.
_SAME_BITS_DTYPES = frozenset({torch.float32, torch.float64})
_CHOICE = "_default_to_fused_or_foreach"

_Choice = Callable[..., tuple[bool, bool]]


@contextmanager
def chosen_as_on_gpu(names_gpu: Callable[[], bool], note: Callable[[str], None]) -> Iterator[None]:
    """While open, optimizers of parameters on the CPU default to the form that they have on a GPU.

    Not once ``names_gpu()``: then parameters on the CPU are the host's. ``note`` gets a sentence for each optimizer
    that kept its loop.
    """
    kept: set[str] = set()

    def keep(name: str) -> None:
        if name not in kept:
            kept.add(name)
            note(f"{name} ran its loop over the parameters: on a GPU it would run _foreach_ ops by default")

    with ExitStack() as stack:
        for module in _optimizer_modules():
            original = getattr(module, _CHOICE)
            setattr(module, _CHOICE, _gpu_choice(module, original, names_gpu, keep))
            stack.callback(setattr, module, _CHOICE, original)
        yield


def _optimizer_modules() -> list[ModuleType]:
    return [
        module
        for name, module in sorted(sys.modules.items())
        if name.startswith("torch.optim.") and name != "torch.optim.optimizer" and hasattr(module, _CHOICE)
    ]


def _gpu_choice(
    module: ModuleType, original: _Choice, names_gpu: Callable[[], bool], keep: Callable[[str], None]
) -> _Choice:
    name = module.__name__.rpartition(".")[2]
    types = (torch.Tensor, torch.nn.Parameter)  # a list op takes no subclasses

    def choose(params: list[torch.Tensor], differentiable: bool, *args: Any, **kwargs: Any) -> tuple[bool, bool]:
        fused, foreach = original(params, differentiable, *args, **kwargs)
        if fused or foreach or differentiable or names_gpu():
            return fused, foreach
        if not all(p is None or (type(p) in types and p.device.type == "cpu") for p in params):
            return fused, foreach
        if name in _SAME_BITS and all(p is None or p.dtype in _SAME_BITS_DTYPES for p in params):
            return fused, True
        keep(name)
        return fused, foreach

    return choose
