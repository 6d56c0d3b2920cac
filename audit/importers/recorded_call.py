"""A recorded call as torch's schemas have it: which overload it was, and which of its arguments go by keyword.

A profiler writes an op's name without its overload, every argument by position, defaults included, and a word for what
each was: the element type of a tensor, ``Scalar``, ``ScalarList``, ``TensorList``, or nothing for None, text, a
generator, a device and a list of more than 30 numbers. Where that leaves one overload only, it is the one; else the
call stays as it was written. Source: ``InputOutputEncoder`` of torch/csrc/profiler/collection.cpp.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TypeAlias

from audit.importers.call_arguments import DTYPES
from audit.importers.enumerations import ENUMERATIONS, constant
from audit.knowledge.dispatch import qualified
from audit.knowledge.signatures import Parameter, overloads_of
from audit.schema import NOT_RECORDED, Arg

#: Op, arguments by position, and by keyword.
Call: TypeAlias = "tuple[str, tuple[Arg, ...], tuple[tuple[str, Arg], ...]]"

#: More than any op has (`mkldnn_rnn_layer_backward`: 23), so that a stranger's lists fill no memory.
_MAX_PARAMETERS = 64
_TENSOR_LISTS = ("TensorList", "OptionalTensorList")
#: What a profiler has a number for.
_NUMBERS = frozenset(("Scalar", "int", "SymInt", "float", "bool", "QScheme", *ENUMERATIONS))


def recorded_call(base: str, words: tuple[str, ...], args: tuple[Arg, ...]) -> Call:
    """Of ``aten::add``, what the profiler calls its arguments, and these. ``args`` by position where more than one
    overload is possible, or none: another release may have other ones."""
    op = _overload(base, words) if 0 < len(words) == len(args) <= _MAX_PARAMETERS else None
    if op is None:
        return qualified(base), args, ()
    by_position: list[Arg] = []
    by_keyword: list[tuple[str, Arg]] = []
    for parameter, word, arg in zip(overloads_of(base)[op], words, args, strict=True):
        value = _value(parameter, word, arg)
        if not parameter.by_keyword:
            by_position.append(value)
        elif not _is_default(parameter, value):
            by_keyword.append((parameter.name, value))
    return op, tuple(by_position), tuple(by_keyword)


@lru_cache(maxsize=4096)
def _overload(base: str, words: tuple[str, ...]) -> str | None:
    """The only overload that can be called so."""
    fitting = [
        op
        for op, parameters in overloads_of(base).items()
        if len(parameters) == len(words) and all(map(_may_be, parameters, words))
    ]
    return fitting[0] if len(fitting) == 1 else None


def _may_be(parameter: Parameter, word: str) -> bool:
    """Whether an argument that is so written may be this parameter's. A wrong one is worse than none."""
    is_tensor, is_number = parameter.type == "Tensor", parameter.type in _NUMBERS
    if word == "":
        return is_tensor or not is_number or parameter.is_list or parameter.is_optional
    if word == "Scalar":
        return is_number and not parameter.is_list
    if word == "ScalarList":
        return is_number and parameter.is_list
    if word in _TENSOR_LISTS:
        return is_tensor and parameter.is_list
    if word == "GenericList":
        return parameter.is_list
    if word in DTYPES:
        return is_tensor and not parameter.is_list
    return not is_number and not parameter.is_list


def _value(parameter: Parameter, word: str, arg: Arg) -> Arg:
    """A number may stand for a constant of torch. Text is never written down, nor told from None."""
    if parameter.type in ENUMERATIONS and type(arg) is int:
        return constant(parameter.type, arg) or arg
    return NOT_RECORDED if parameter.type == "str" and word == "" else arg


def _is_default(parameter: Parameter, value: Arg) -> bool:
    """As a tracer leaves out what is as it would be without. Of a device or a generator nothing tells."""
    return parameter.has_default and type(value) is type(parameter.default) and value == parameter.default
