"""The invariant of tracing, for any program: it computes what it computes untraced, and every call is accounted for.

A *program* is a callable without arguments that makes its own model and returns all that a user could look at:
tensors, modules (their parameters, buffers and gradients are looked at), optimizers, and containers of these.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy
import torch
from torch import nn
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from audit.schema import Source, Trace
from audit.tracer.compiled import CompiledRegions
from audit.tracer.recorder import Recorder
from audit.tracer.values import ValueRecorder

Program = Callable[[], Any]


class Tracer(Protocol):
    """What records a program: ours, or the bare dispatch mode that the tests are held against."""

    def start(self) -> object: ...
    def stop(self) -> None: ...
    def build(self, source: Source, environment: Mapping[str, str]) -> tuple[Trace, Any]: ...


def check(program: Program, tracer: Callable[[], Tracer] | None = None, seed: int = 0, fails: bool = False) -> Trace:
    """Runs ``program`` untraced, then traced from the same random state, and compares bit by bit what can be seen.

    Compared: what it returns (values, strides, ``.grad``, ``requires_grad``, the class of a subclass), the random state
    that it leaves (torch, numpy, random), and the exception of a program that ``fails``. Raises AssertionError with
    what differs, or when calls are unaccounted for; the program's own exception when it fails untraced and should not.
    What ``torch.compile`` wraps is run eagerly both times.
    """
    with _compiled_eagerly():
        untraced = observe(program, seed)
    if untraced.error is not None and not fails:
        raise untraced.error
    recorder = tracer() if tracer is not None else Recorder(ValueRecorder())
    recorder.start()
    try:
        traced = observe(program, seed, stop=recorder.stop)
    except BaseException:
        recorder.stop()
        raise
    name = getattr(program, "__name__", "program")
    if differences := list(compare(untraced, traced)):
        with _compiled_eagerly():
            unsteady = list(compare(untraced, observe(program, seed)))
        hint = "; it differs from run to run without a tracer too" if unsteady else ""
        raise AssertionError(f"{name} is not what it is untraced{hint}: {'; '.join(differences[:5])}")
    trace, _ = recorder.build(Source("script", name), {})
    check_accounts(trace)
    return trace


@contextmanager
def _compiled_eagerly() -> Iterator[None]:
    regions = CompiledRegions(lambda what, reason: None)
    regions.install()
    try:
        yield
    finally:
        regions.remove()


def check_accounts(trace: Trace) -> None:
    """Recorded calls are those of the cases and those that are named, and there are some."""
    n_cases = sum(case.n_calls for case in trace.cases)
    n_named = sum(item.n_calls for item in trace.not_audited)
    assert trace.n_recorded == n_cases + n_named, (
        f"{trace.n_recorded} calls were recorded, {n_cases} are in cases and {n_named} are named as not audited"
    )
    assert trace.cases or trace.not_audited, "nothing was recorded, and nothing named as not audited"
    assert all(item.reason for item in trace.not_audited)


@dataclass(frozen=True)
class Seen:
    """Everything that can be seen of a program that ran: bits by place."""

    bits: Mapping[str, object]
    error: Exception | None = None


def observe(program: Program, seed: int, stop: Callable[[], None] = lambda: None) -> Seen:
    """Runs ``program`` from ``seed``; ``stop`` is called when it is done, before anything is looked at."""
    torch.manual_seed(seed)
    numpy.random.seed(seed)
    random.seed(seed)
    result: Any = None
    error: Exception | None = None
    try:
        result = program()
    except Exception as problem:  # noqa: BLE001 - the program's own, whatever it is: it is compared
        error = problem
    finally:
        stop()
    state = {
        "torch's random state": torch.get_rng_state().numpy().tobytes(),
        "numpy's random state": repr(numpy.random.get_state()),
        "random's state": repr(random.getstate()),
    }
    described = {"the exception": f"{type(error).__name__}: {error}" if error is not None else "none"}
    return Seen({**dict(_walk("result", result, set())), **state, **described}, error)


def compare(untraced: Seen, traced: Seen) -> Iterator[str]:
    for place in dict.fromkeys((*untraced.bits, *traced.bits)):
        if untraced.bits.get(place) != traced.bits.get(place):
            yield f"{place} differs ({_short(untraced.bits, place)} untraced, {_short(traced.bits, place)} traced)"


def _short(bits: Mapping[str, object], place: str) -> str:
    if place not in bits:
        return "absent"
    value = bits[place]
    return f"{len(value)} bytes" if isinstance(value, bytes) else repr(value)[:120]


def _walk(place: str, value: Any, seen: set[int]) -> Iterator[tuple[str, object]]:
    if isinstance(value, torch.Tensor):
        yield from _tensor(place, value)
    elif isinstance(value, (str, bytes, int, float, complex, type(None))):
        yield place, repr(value)
    elif id(value) in seen:
        return
    else:
        seen.add(id(value))
        for name, part in _parts(value):
            yield from _walk(f"{place}{name}", part, seen)


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, nn.Module):
        yield from ((f".{name}", p) for name, p in value.named_parameters())
        yield from ((f".{name}", b) for name, b in value.named_buffers())
    elif isinstance(value, torch.optim.Optimizer):
        yield from ((f".state[{i}]", state) for i, state in enumerate(value.state.values()))
    elif isinstance(value, Mapping):
        yield from ((f"[{key!r}]", item) for key, item in value.items())
    elif isinstance(value, Sequence):
        yield "'s type", type(value).__name__
        yield from ((f"[{i}]", item) for i, item in enumerate(value))
    elif hasattr(value, "__dict__"):
        yield from ((f".{name}", item) for name, item in vars(value).items())
    else:
        raise TypeError(f"a program returned a {type(value).__name__}, in which nothing can be compared")


def _tensor(place: str, tensor: torch.Tensor) -> Iterator[tuple[str, object]]:
    yield f"{place}'s class", type(tensor).__name__
    yield f"{place}'s layout", f"{tensor.dtype} {tensor.layout} {tensor.device} {tensor.requires_grad}"
    if tensor.is_leaf and tensor.grad is not None:
        yield from _tensor(f"{place}.grad", tensor.grad)
    for name, part in _plain_parts(tensor.detach()):
        yield f"{place}{name}'s strides", f"{tuple(part.shape)} {part.stride()} {part.storage_offset()}"
        if not part.is_meta:
            yield f"{place}{name}", _bytes(part)


def _plain_parts(tensor: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
    """The strided tensors that make up a wrapper subclass, a sparse, a quantised or a nested tensor."""
    if is_traceable_wrapper_subclass(tensor):
        names, _ = tensor.__tensor_flatten__()
        for name in names:
            yield from ((f".{name}{rest}", part) for rest, part in _plain_parts(getattr(tensor, name)))
    elif tensor.is_nested:
        yield from ((f".values[{i}]", part) for i, part in enumerate(tensor.unbind()))
    elif tensor.is_quantized:
        yield ".int_repr", tensor.int_repr()
    elif tensor.layout is torch.sparse_coo:
        yield ".indices", tensor._indices()
        yield ".values", tensor._values()
    elif tensor.layout is not torch.strided:
        yield ".dense", tensor.to_dense()
    else:
        yield "", tensor


def _bytes(tensor: torch.Tensor) -> bytes:
    """The bits of the elements: a NaN equals itself, -0.0 does not equal 0.0."""
    plain = tensor.resolve_conj().resolve_neg().contiguous()
    return plain.reshape(-1).view(torch.uint8).numpy().tobytes() if plain.numel() else b""
