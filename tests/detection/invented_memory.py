"""Faults that nobody reported, of memory: views that are copies, strides, writes where nothing should be written."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from audit.device.sim.faults import Call
from tests.detection.fault import Fault, healthy, instead, normal

CHANNELS_LAST = torch.channels_last
LAYOUT = ("NUM215",)


def _copied(result: Any) -> Any:
    return [view.clone() for view in result] if isinstance(result, (list, tuple)) else result.clone()


def _memory_of(tensor: torch.Tensor) -> torch.Tensor:
    """All of the storage under a tensor."""
    return torch.empty(0, dtype=tensor.dtype).set_(tensor.untyped_storage())


def _writes(place: int) -> Any:
    """One element of the storage more, ``place`` from where the view begins."""

    def effect(call: Call) -> Any:
        target = healthy(call)
        _memory_of(target)[target.storage_offset() + place] = 7.0
        return target

    return effect


def _other_zeroed(call: Call) -> Any:
    result = healthy(call)
    call.args[1].zero_()
    return result


def _input_changed(call: Call) -> Any:
    result = healthy(call)
    call.args[0].view(-1)[0] += 1
    return result


def _not_written(call: Call) -> Any:
    return torch.empty_like(healthy(call))


def _zero_beyond(call: Call) -> Any:
    out = healthy(call).clone()
    out[65535:] = 0
    return out


def _swapped(call: Call) -> Any:
    """Equal zeros of the other sign, and NaN of another payload."""
    out = healthy(call)
    other = torch.where(out == 0, -out, out)
    other.view(torch.int32)[out.isnan()] = 0x7FC12345
    return other


def _written_later(view: torch.Tensor) -> None:
    view.add_(1.0)


def _image(n: int) -> torch.Tensor:
    return normal(n, 3, 4, 5).contiguous(memory_format=CHANNELS_LAST)


def _maxima() -> torch.Tensor:
    return torch.maximum(torch.tensor([0.0, -0.0, 1.0, 2.0]), torch.tensor([-0.0, 0.0, torch.nan, 1.0]))


FAULTS = (
    Fault(
        "view-is-a-copy", "view gives a copy: what is written later is lost", ("aten::view.default",),
        lambda call: call.args[0].shape == (5, 4), instead(_copied),
        lambda: _written_later(normal(5, 4).view(-1)), lambda: _written_later(normal(6, 4).view(-1)), "six rows",
        codes=LAYOUT,
    ),
    Fault(
        "transpose-is-a-copy", "transpose gives a copy, packed in its new order", ("aten::transpose.int",),
        lambda call: call.args[0].shape == (5, 4), lambda call: healthy(call).contiguous(),
        lambda: normal(5, 4).transpose(0, 1).mul_(2.0), lambda: normal(6, 4).transpose(0, 1).mul_(2.0),
        "six rows", codes=LAYOUT,
    ),
    Fault(
        "expand-is-a-copy", "expand fills memory of its own", ("aten::expand.default",),
        lambda call: call.args[0].shape == (5, 1), lambda call: healthy(call).contiguous(),
        lambda: normal(5, 1).expand(5, 9) + 1, lambda: normal(6, 1).expand(6, 9) + 1, "six rows", codes=LAYOUT,
    ),
    Fault(
        "parts-are-copies", "split gives copies", ("aten::split.Tensor",),
        lambda call: call.args[0].shape == (9, 4), instead(_copied),
        lambda: _written_later(normal(9, 4).split(3)[1]), lambda: _written_later(normal(12, 4).split(3)[1]),
        "twelve rows", codes=LAYOUT,
    ),
    Fault(
        "clone-shares-memory", "clone gives a view of what it should copy", ("aten::clone.default",),
        lambda call: call.args[0].numel() == 22, lambda call: call.args[0].view(call.args[0].shape),
        lambda: _written_later(normal(22).clone()), lambda: _written_later(normal(23).clone()), "another size",
        codes=LAYOUT,
    ),
    Fault(
        "clone-loses-its-format", "a clone asked for in channels_last is contiguous", ("aten::clone.default",),
        lambda call: call.kwargs.get("memory_format") == CHANNELS_LAST and call.args[0].shape == (2, 3, 4, 5),
        lambda call: call.args[0].contiguous().clone(),
        lambda: _image(2), lambda: normal(2, 3, 4, 5).clone(), "not asked for", codes=LAYOUT,
    ),
    Fault(
        "activation-loses-its-format", "silu of channels_last images is contiguous", ("aten::silu.default",),
        lambda call: call.args[0].dim() == 4 and not call.args[0].is_contiguous(),
        lambda call: healthy(call).contiguous(),
        lambda: F.silu(_image(3)), lambda: F.silu(normal(3, 3, 4, 5)), "contiguous", codes=LAYOUT,
    ),
    Fault(
        "strides-ignored", "empty_strided ignores its strides", ("aten::empty_strided.default",),
        lambda call: True, lambda call: torch.zeros(call.args[0]),
        lambda: torch.empty_strided((4, 6), (1, 4)).fill_(1), lambda: torch.empty(4, 6).fill_(1), "none given",
        codes=LAYOUT,
    ),
    Fault(
        "writes-the-gaps", "an in-place product writes between the elements of a strided view",
        ("aten::mul_.Tensor",),
        lambda call: call.args[0].dim() == 2 and call.args[0].stride(1) == 2, _writes(1),
        lambda: normal(8, 12)[:, ::2].mul_(1.5), lambda: normal(8, 12)[:, ::3].mul_(1.5), "another step",
        codes=("NUM209",),
    ),
    Fault(
        "writes-before-its-view", "an in-place product writes before the view, in the same tensor",
        ("aten::mul_.Tensor",),
        lambda call: call.args[0].storage_offset() == 5, _writes(-5),
        lambda: normal(20)[5:15].mul_(2.0), lambda: normal(20)[6:16].mul_(2.0), "another offset", codes=("NUM209",),
    ),
    Fault(
        "zeroes-its-operand", "add_ zeroes what it adds", ("aten::add_.Tensor",),
        lambda call: torch.is_tensor(call.args[1]) and call.args[1].numel() == 31, _other_zeroed,
        lambda: normal(31).add_(normal(31, seed=1)), lambda: normal(32).add_(normal(32, seed=1)), "another size",
    ),
    Fault(
        "changes-its-input", "acos changes its input", ("aten::acos.default",),
        lambda call: call.args[0].numel() == 31, _input_changed,
        lambda: normal(31).tanh().acos(), lambda: normal(32).tanh().acos(), "another size",
    ),
    Fault(
        "depth-of-nothing", "a product of depth 0 is not written", ("aten::mm.default",),
        lambda call: call.args[0].size(1) == 0, _not_written,
        lambda: normal(4, 0) @ normal(0, 5), lambda: normal(4, 1) @ normal(1, 5), "depth 1", codes=("NUM207",),
    ),
    Fault(
        "rows-beyond-the-grid", "rows of softmax beyond 65,535 are 0", ("aten::_softmax.default",),
        lambda call: call.args[0].size(0) > 65535, _zero_beyond,
        lambda: normal(65540, 4).softmax(-1), lambda: normal(65535, 4).softmax(-1), "at the limit",
    ),
    Fault(
        "zeros-and-payloads", "maximum gives the other of two zeros, and NaN of another payload (allowed)",
        ("aten::maximum.default",),
        lambda call: bool((call.args[0] == 0).any()), _swapped,
        _maxima, lambda: torch.maximum(normal(5), normal(5, seed=1)), "neither", expected="supported", codes=(),
    ),
)  # fmt: skip
