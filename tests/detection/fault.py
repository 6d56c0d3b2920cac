"""A fault of a device, a program of a few lines that meets it, and a twin just outside its condition."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from audit.device.sim.faults import Call

Condition = Callable[[Call], bool]
Effect = Callable[[Call], Any]


@dataclass(frozen=True)
class Fault:
    """One mechanism. ``name`` is a report's id, or words in kebab case for one that nobody reported.

    ``fires`` looks at the arguments alone; ``effect`` returns what the device then returns. ``ops`` are overloads as
    the device sees them. ``expected`` is the status of the program's worst case, ``codes`` one of which must say so.
    ``scaled`` names a limit of the report that is smaller here, since the memory or the time of a test is; ``alone``:
    a run of its own, because it hangs. ``missed``: why a per-op audit does not see it, where it does not.
    """

    name: str
    condition: str
    ops: tuple[str, ...]
    fires: Condition
    effect: Effect
    program: Callable[[], object]
    twin: Callable[[], object]
    twin_condition: str
    expected: str = "divergent"
    codes: tuple[str, ...] = ("NUM201", "NUM202", "NUM203", "NUM204", "NUM205", "NUM207", "NUM213")
    scaled: str = ""
    alone: bool = False
    missed: str = ""


@dataclass(frozen=True)
class Unseen:
    """A report that no run of single ops on the simulated device can show, and why."""

    name: str
    condition: str
    why: str


def healthy(call: Call) -> Any:
    """What a device without the fault returns."""
    return call.run(*call.args, **call.kwargs)


def instead(change: Callable[[Any], Any]) -> Effect:
    """The healthy result, changed."""
    return lambda call: change(healthy(call))


def raising(error: type[Exception], text: str, stderr: str = "") -> Effect:
    """What a library says before it gives up."""

    def effect(call: Call) -> Any:
        if stderr:
            call.stderr(stderr)
        raise error(text)

    return effect


def always(call: Call) -> bool:
    return True


def argument(call: Call, position: int, name: str, default: Any = None) -> Any:
    """An argument that may be given by position or by name."""
    return call.args[position] if len(call.args) > position else call.kwargs.get(name, default)


def with_argument(call: Call, position: int, value: Any) -> Any:
    """The healthy result for another value of one positional argument."""
    return call.run(*call.args[:position], value, *call.args[position + 1 :], **call.kwargs)


def fault_table(faults: Iterable[Fault]) -> Mapping[str, Callable[[Call], Any]]:
    """``FAULTS`` of a fault file: for each op the first fault whose condition holds, else the healthy result."""
    by_op: dict[str, list[Fault]] = {}
    for fault in faults:
        for op in fault.ops:
            by_op.setdefault(op, []).append(fault)
    return {op: _first_that_fires(candidates) for op, candidates in by_op.items()}


def _first_that_fires(candidates: Sequence[Fault]) -> Callable[[Call], Any]:
    def meet(call: Call) -> Any:
        fault = next((fault for fault in candidates if fault.fires(call)), None)
        return healthy(call) if fault is None else fault.effect(call)

    return meet


def seeded(seed: int = 0) -> torch.Generator:
    """A generator for the data of a program: the same in every run, and no part of the program's random state."""
    return torch.Generator().manual_seed(seed)


def normal(*sizes: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    """Standard normal numbers."""
    return torch.randn(sizes, generator=seeded(seed)).to(dtype)


def replaced(result: Sequence[Any], position: int, tensor: Any) -> tuple[Any, ...]:
    """The outputs with another one at ``position``."""
    return (*result[:position], tensor, *result[position + 1 :])


def with_run(call: Call, run: Callable[..., Any]) -> Call:
    return dataclasses.replace(call, run=run)
