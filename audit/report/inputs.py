"""The arguments of a case as rows: what each is called, what it is, how it lies in memory and what its values were."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from audit.codec import contiguous_strides
from audit.knowledge.signatures import Parameter, overloads_of
from audit.report import text
from audit.schema import Arg, Case, Named, TensorSpec, Values

#: Tensors that are named beside one whose bytes they share.
_MAX_OTHERS = 3


@dataclass(frozen=True)
class InputRow:
    """One argument. ``shape`` is ``[8, 16]`` of a tensor and the value of anything else; ``memory`` names strides that
    are not row-major, an offset, and tensors that share its bytes; ``values`` say what is recorded of them."""

    name: str
    role: str
    dtype: str
    shape: str
    memory: str
    values: str
    is_tensor: bool


def input_rows(case: Case) -> list[InputRow]:
    """In the order of the call: positional arguments, keywords, then the gradients that arrived for its outputs."""
    parameters = overloads_of(case.op.partition(".")[0]).get(case.op, ())
    named = [(_name(parameters, i), arg) for i, arg in enumerate(case.args)] + list(case.kwargs)
    grads = [(f"gradient of output {i}", grad) for i, grad in enumerate(case.grads or ()) if grad is not None]
    flat = [(name, arg, False) for name, value in named for name, arg in _flat(name, value)]
    flat += [(name, grad, True) for name, grad in grads]
    shared = _shared([(name, arg) for name, arg, _ in flat if isinstance(arg, TensorSpec)])
    rows, position = [], 0
    for name, arg, is_gradient in flat:
        if isinstance(arg, TensorSpec):
            rows.append(_tensor(name, arg, case.values.get(position), is_gradient, shared))
            position += 1
        else:
            rows.append(
                InputRow(name, "argument", type(arg).__name__ if arg is not None else "", _shown(arg), "", "", False)
            )
    return rows


def _name(parameters: tuple[Parameter, ...], index: int) -> str:
    return parameters[index].name if index < len(parameters) else f"argument {index}"


def _flat(name: str, value: Arg) -> Iterator[tuple[str, Arg]]:
    """Tensors of a list by their place in it; a list of numbers stays one argument."""
    if isinstance(value, tuple) and any(isinstance(item, TensorSpec) for item in value):
        for index, item in enumerate(value):
            yield from _flat(f"{name}[{index}]", item)
    else:
        yield name, value


def _shared(tensors: list[tuple[str, TensorSpec]]) -> dict[int, list[str]]:
    """Names by storage, of storages that several tensors lie in."""
    by_storage: dict[int, list[str]] = {}
    for name, spec in tensors:
        by_storage.setdefault(spec.storage, []).append(name)
    return {storage: names for storage, names in by_storage.items() if len(names) > 1}


def _tensor(
    name: str, spec: TensorSpec, values: Values | None, is_gradient: bool, shared: dict[int, list[str]]
) -> InputRow:
    role = "gradient" if is_gradient else "scalar on the host" if spec.host else "input"
    if spec.requires_grad and not is_gradient:
        role += ", needs a gradient"
    others = list(islice((other for other in shared.get(spec.storage, []) if other != name), _MAX_OTHERS))
    memory = (
        [f"strides ({', '.join(map(str, spec.strides))})"] if spec.strides != contiguous_strides(spec.sizes) else []
    )
    memory += [f"offset {spec.offset:,}"] if spec.offset else []
    memory += [f"shares memory with {', '.join(others)}"] if others else []
    memory += [word for word, is_set in (("conjugate view", spec.conj), ("negative view", spec.neg)) if is_set]
    shape = f"[{', '.join(map(str, spec.sizes))}]"
    return InputRow(name, role, spec.dtype, shape, "; ".join(memory), _values(values), True)


def _values(values: Values | None) -> str:
    """``recorded; -3.1 to 4.2, mean 0.01, deviation 1``: in the order in which one asks."""
    if values is None:
        return "not recorded"
    parts = ["recorded" if values.stored else "statistics recorded"]
    if values.minimum is not None and values.maximum is not None:
        parts.append(f"{_number(values.minimum)} to {_number(values.maximum)}")
    if values.mean is not None:
        parts.append(f"mean {_number(values.mean)}")
    if values.std is not None:
        parts.append(f"deviation {_number(values.std)}")
    special = ((values.n_nan, "NaN"), (values.n_posinf, "+Inf"), (values.n_neginf, "−Inf"))
    parts += [f"{n:,} {word}" for n, word in special if n]
    fractions = ((values.zero_fraction, "zero"), (values.subnormal_fraction, "subnormal"))
    parts += [f"{text.share_text(fraction, 1.0)} {word}" for fraction, word in fractions if fraction]
    parts += [word for word in (values.pattern, values.order) if word]
    if values.n_distinct is not None:
        parts.append(f"{values.n_distinct:,} distinct")
    return ", ".join(parts)


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.3g}"


def _shown(arg: Arg) -> str:
    if isinstance(arg, Named):
        return arg.name
    if isinstance(arg, tuple):
        return f"[{', '.join(_shown(item) for item in arg)}]"
    return repr(arg)
