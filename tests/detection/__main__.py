"""``python -m tests.detection program:A15 twin:A15 ...``: runs programs of faults, each in a module of its name."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Literal, TypeAlias

import torch

from tests.detection.registry import BY_NAME

Part: TypeAlias = Literal["program", "twin"]


def in_module(name: str, program: Callable[[], object]) -> None:
    """Calls ``program`` in a module class of that name, by which a trace tells whose its calls are."""
    cls = type(name, (torch.nn.Module,), {"forward": lambda self: program()})
    cls()()


def module_name(part: Part, fault: str) -> str:
    """``program_A15``, ``twin_tail_unwritten``: as a class may be called."""
    return f"{part}_{fault.replace('-', '_')}"


def main(wanted: list[str]) -> None:
    for part, name in (one.split(":") for one in wanted):
        fault = BY_NAME[name]
        if part == "twin":
            in_module(module_name("twin", name), fault.twin)
        else:
            in_module(module_name("program", name), fault.program)


if __name__ == "__main__":
    main(sys.argv[1:])
