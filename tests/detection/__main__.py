"""``python -m tests.detection [--twins] NAME...``: runs the programs of faults, each in a module of its name."""

from __future__ import annotations

import sys
from collections.abc import Callable

import torch

from tests.detection.registry import BY_NAME


def in_module(name: str, program: Callable[[], object]) -> None:
    """Calls ``program`` in a module class of that name, by which a trace tells whose its calls are."""
    cls = type(name, (torch.nn.Module,), {"forward": lambda self: program()})
    cls()()


def module_name(fault: str) -> str:
    """Of words in kebab case with underscores, as a class has it."""
    return fault.replace("-", "_")


def main(names: list[str]) -> None:
    twins = names[:1] == ["--twins"]
    for name in names[twins:]:
        fault = BY_NAME[name]
        in_module(module_name(name), fault.twin if twins else fault.program)


if __name__ == "__main__":
    main(sys.argv[1:])
