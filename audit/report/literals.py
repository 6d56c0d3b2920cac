"""Values and arguments as Python text: nothing that a program chose can become code."""

from __future__ import annotations

import keyword
import math
import re
from collections.abc import Iterator

from audit.schema import Arg, Named, TensorSpec

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def argument_text(arg: Arg, counter: Iterator[int], operand: str = "t{}", dtype: str = "") -> str:
    """An argument as it stands in a call.

    ``operand`` is a pattern for a tensor, whose number ``counter`` gives, ``dtype`` one for a dtype's name; without it
    that is an attribute of torch.
    """
    if isinstance(arg, TensorSpec):
        return operand.format(next(counter))
    if isinstance(arg, Named):
        return _constant(arg, dtype)
    if isinstance(arg, tuple):
        return f"[{', '.join(argument_text(item, counter, operand, dtype) for item in arg)}]"
    return literal(arg)


def _constant(named: Named, dtype: str) -> str:
    if named.kind == "dtype" and dtype:
        return dtype.format(literal(named.name))
    if named.kind == "device":
        return 'torch.device("cpu")' if named.name == "cpu" else "device"
    if named.kind == "generator":
        return "None"  # the default one: a random op's numbers are compared with nothing
    if _IDENTIFIER.fullmatch(named.name) and not keyword.iskeyword(named.name):
        return f"torch.{named.name}"
    return f"getattr(torch, {literal(named.name)})"


def literal(value: object) -> str:
    """An ASCII Python expression with this value: None, bool, numbers (also Inf and NaN), str, sequences, dicts."""
    if value is None or isinstance(value, (bool, int, str)):
        return ascii(value)
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else f'float("{value!r}")'
    if isinstance(value, complex):
        return f"complex({literal(value.real)}, {literal(value.imag)})"
    if isinstance(value, tuple):
        return f"({', '.join(map(literal, value))}{',' if len(value) == 1 else ''})"
    if isinstance(value, list):
        return f"[{', '.join(map(literal, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{literal(key)}: {literal(item)}' for key, item in value.items())}}}"
    raise TypeError(f"no literal for {type(value).__name__}")
