"""Faults that nobody reported, of random ops, and of what lies in memory or depends on the calls before."""

from __future__ import annotations

import ctypes
import os
from typing import Any

import torch
import torch.nn.functional as F

from audit.device.sim.faults import Call
from tests.detection.fault import Fault, always, healthy, normal

#: How often a fault was met in this process.
CALLS: dict[str, int] = {}
DISTRIBUTION = ("NUM214",)


def _second_call(call: Call) -> Any:
    """Right the first time, wrong the second."""
    CALLS[call.op] = CALLS.get(call.op, 0) + 1
    out = healthy(call)
    return out if CALLS[call.op] % 2 else out * 1.5


def _unrepeatable(call: Call) -> Any:
    return healthy(call) + int.from_bytes(os.urandom(4), "little")


def _behind(call: Call) -> Any:
    source = call.args[0]
    ctypes.memset(source.data_ptr() + source.numel() * source.element_size() + 4, 1, 4)
    return healthy(call)


def _rows_repeat(call: Call) -> Any:
    """Every block of 1,024 draws the same numbers."""
    out = healthy(call)
    flat = out.view(-1)
    return flat[torch.arange(flat.numel()) % 1024].view_as(out)


def _dropout_unscaled(call: Call) -> Any:
    out, mask = healthy(call)
    return out * (1 - call.args[1]), mask


def _dropout_too_often(call: Call) -> Any:
    """Drops with the probability of keeping."""
    return call.run(call.args[0], 1 - call.args[1], *call.args[2:])


def _dropout_apart(call: Call) -> Any:
    """The mask is not that of the output."""
    out, mask = healthy(call)
    return out, mask.roll(1)


def _reseeded(call: Call) -> Any:
    torch.default_generator.manual_seed(int.from_bytes(os.urandom(4), "little"))
    return healthy(call)


def _twice(call: Call) -> Any:
    out = healthy(call)
    out[1] = out[0]
    return out


def _bernoulli_of_half(call: Call) -> Any:
    return call.run(torch.full_like(call.args[0], 0.5), *call.args[1:], **call.kwargs)


def _never_the_last(call: Call) -> Any:
    low, high = call.args[:2]
    return healthy(call).clamp(max=high - 2) if high - low > 2 else healthy(call)


def _dropout(p: float) -> torch.Tensor:
    return F.dropout(torch.ones(200, 100), p, training=True)


def _tangents(n: int, largest: int) -> None:
    """Eight calls of one signature, one of which reaches far."""
    for number in range(8):
        normal(n).mul(1e6 if number == largest else 1.0).tan()


FAULTS = (
    Fault(
        "one-call-of-eight", "NaN in the fifth of eight calls, the only one with large values", ("aten::tan.default",),
        lambda call: float(call.args[0].abs().max()) > 1e5, lambda call: healthy(call) * torch.nan,
        lambda: _tangents(30, 4), lambda: _tangents(30, 9), "no large values",
    ),
    Fault(
        "eighth-call-of-eight", "NaN in the last of eight calls, the only one with large values",
        ("aten::tan.default",),
        lambda call: float(call.args[0].abs().max()) > 1e5, lambda call: healthy(call) * torch.nan,
        lambda: _tangents(31, 7), lambda: _tangents(31, 9), "no large values",
    ),
    Fault(
        "second-call", "right in the first call, wrong in the second", ("aten::sinh.default",), always, _second_call,
        lambda: normal(40).sinh(), lambda: normal(40).cosh(), "another op",
        codes=("NUM201", "NUM208"),
    ),
    Fault(
        "integers-unrepeatable", "integers differ from run to run", ("aten::bitwise_xor.Tensor",), always,
        _unrepeatable,
        lambda: torch.arange(9) ^ torch.arange(9).flip(0), lambda: torch.arange(9) | torch.arange(9).flip(0),
        "another op",
        codes=("NUM208", "NUM204"),
    ),
    Fault(
        "behind-its-input", "four bytes behind an operand are written", ("aten::log1p.default",),
        lambda call: call.args[0].numel() % 4 != 0, _behind,
        lambda: normal(33).abs().log1p(), lambda: normal(32).abs().log1p(), "a multiple of four",
        codes=("NUM209",),
    ),
    Fault(
        "uniform-never-small", "uniform_ stays above 0.02", ("aten::uniform_.default",),
        lambda call: call.args[0].numel() == 5000, lambda call: healthy(call).clamp_(min=0.02),
        lambda: torch.empty(5000).uniform_(), lambda: torch.empty(4999).uniform_(), "another size", codes=DISTRIBUTION,
    ),
    Fault(
        "normal-too-narrow", "normal_ has a deviation of 0.95", ("aten::normal_.default",),
        lambda call: call.args[0].numel() == 20000, lambda call: healthy(call).mul_(0.95),
        lambda: torch.empty(20000).normal_(), lambda: torch.empty(19999).normal_(), "another size", codes=DISTRIBUTION,
    ),
    Fault(
        "randn-shifted", "randn has a mean of 0.05", ("aten::randn.default",),
        lambda call: list(call.args[0]) == [400, 100], lambda call: healthy(call) + 0.05,
        lambda: torch.randn(400, 100), lambda: torch.randn(400, 99), "another size", codes=DISTRIBUTION,
    ),
    Fault(
        "blocks-repeat", "every block of 1,024 draws the same numbers", ("aten::rand.default",),
        lambda call: list(call.args[0]) == [8, 1024], _rows_repeat,
        lambda: torch.rand(8, 1024), lambda: torch.rand(8, 1000), "another size", codes=DISTRIBUTION,
    ),
    Fault(
        "randint-never-the-last", "randint never gives its largest number", ("aten::randint.low",),
        lambda call: list(call.args[2]) == [3000], _never_the_last,
        lambda: torch.randint(5, 15, (3000,)), lambda: torch.randint(5, 15, (2999,)), "another size",
        codes=DISTRIBUTION,
    ),
    Fault(
        "permutation-repeats", "randperm gives a number twice", ("aten::randperm.default",),
        lambda call: call.args[0] == 100, _twice,
        lambda: torch.randperm(100), lambda: torch.randperm(99), "another size", codes=DISTRIBUTION,
    ),
    Fault(
        "bernoulli-of-half", "bernoulli takes every probability for a half", ("aten::bernoulli.default",),
        lambda call: bool((call.args[0] < 0.45).all()), _bernoulli_of_half,
        lambda: torch.full((4000,), 0.4).bernoulli(), lambda: torch.full((4000,), 0.5).bernoulli(), "a half",
        codes=DISTRIBUTION,
    ),
    Fault(
        "seed-ignored", "the same seed gives other numbers", ("aten::rand.default",),
        lambda call: list(call.args[0]) == [77], _reseeded,
        lambda: torch.rand(77), lambda: torch.rand(78), "another size", codes=(*DISTRIBUTION, "NUM208"),
    ),
    Fault(
        "dropout-unscaled", "dropout does not scale what it keeps", ("aten::native_dropout.default",),
        lambda call: call.args[1] == 0.25, _dropout_unscaled,
        lambda: _dropout(0.25), lambda: _dropout(0.2), "another probability", codes=DISTRIBUTION,
    ),
    Fault(
        "dropout-too-often", "dropout drops what it should keep", ("aten::native_dropout.default",),
        lambda call: call.args[1] == 0.1, _dropout_too_often,
        lambda: _dropout(0.1), lambda: _dropout(0.2), "another probability", codes=DISTRIBUTION,
    ),
    Fault(
        "dropout-mask-apart", "the mask that dropout keeps for its backward is another one",
        ("aten::native_dropout.default",),
        lambda call: call.args[1] == 0.35, _dropout_apart,
        lambda: torch.native_dropout(normal(200, 100), 0.35, True),
        lambda: torch.native_dropout(normal(200, 100), 0.2, True), "another probability", codes=DISTRIBUTION,
    ),
)  # fmt: skip
