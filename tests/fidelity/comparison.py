"""A program's run on the device beside the replay of its trace there: how much of it the trace led to."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

#: The least share of the program's calls, and of its device time, that the replayed trace must have led to.
BAR = 0.98
#: Ops of which not one call may be missed: attention, convolution, recurrent layers, CTC, encoder layers, fused Adam.
CRITICAL = re.compile(
    r"aten::(_scaled_dot_product|_flash_attention|_efficient_attention|_cudnn_attention|convolution|cudnn_convolution|"
    r"miopen_|_cudnn_rnn|cudnn_batch_norm|native_batch_norm|mkldnn_rnn|_?ctc_loss|_cudnn_ctc|_use_cudnn_ctc|"
    r"_transformer_encoder_layer_fwd|_native_multi_head_attention|_thnn_fused|_fused_adam)"
)

#: What a dispatch mode changes, and a tracer is one: autograd sums gradients in place without it, a reshape is made by
#: another view, a new tensor is detached in place. The kernels are the same, so either stands for the other.
SAME_KERNEL = {
    "aten::add_.Tensor": "aten::add.Tensor",
    "aten::_reshape_alias": "aten::view",
    "aten::detach_": "aten::detach",
}

#: The place of ``weight_buf`` among the arguments of ``_cudnn_rnn``: all weights in one piece of memory, if they are.
#: ``nn.LSTM`` puts them so in a CUDA build alone (``torch._use_cudnn_rnn_flatten_weight`` is False in a ROCm build),
#: and a trace made without a GPU is of a ROCm machine. The kernel and its sizes are the same, with or without.
_WEIGHT_BUFFER = 3

Key = tuple[str, tuple[str, ...], str]


@dataclass(frozen=True)
class Difference:
    """One kind of call, with how often it ran on one side more than on the other, and for how long."""

    op: str
    dtypes: tuple[str, ...]
    shapes: str
    calls: int
    us: float


@dataclass(frozen=True)
class Comparison:
    """One program. Fractions are of the program's own calls and device time; ``extra`` is of the replayed calls."""

    program: str
    n_calls: int
    calls_fraction: float
    time_fraction: float
    extra_fraction: float
    missed: tuple[Difference, ...] = ()
    extra: tuple[Difference, ...] = ()
    failed: tuple[str, ...] = ()
    notes: tuple[str, ...] = field(default=())

    @property
    def critical(self) -> list[Difference]:
        return [difference for difference in self.missed if CRITICAL.match(difference.op)]

    @property
    def passes(self) -> bool:
        return self.calls_fraction >= BAR and self.time_fraction >= BAR and not self.critical and not self.failed


def compare(
    program: str, observed: list[Any], hosts: list[Any], replayed: list[Any], notes: tuple[str, ...] = ()
) -> Comparison:
    """``observed``: rows of (op, dtypes, shapes, calls, us); ``hosts``: those of them that ran on the host alone.

    ``replayed``: cases, each with such rows for one call.
    """
    ran, ran_us = _sums((row, 1) for row in observed)
    for key, n in _sums((row, 1) for row in hosts)[0].items():
        if ran[key]:
            ran_us[key] *= max(ran[key] - n, 0) / ran[key]
            ran[key] = max(ran[key] - n, 0)
    ran = +ran
    led, led_us = _sums((row, case["n_calls"]) for case in replayed for row in case["ran"])
    missed, extra = ran - led, led - ran
    total, total_us = ran.total(), sum(ran_us.values())
    lost_us = sum(ran_us[key] * n / ran[key] for key, n in missed.items())
    return Comparison(
        program,
        total,
        1 - missed.total() / total if total else 0.0,
        1 - lost_us / total_us if total_us else 0.0,
        extra.total() / led.total() if led else 0.0,
        _listed(missed, ran, ran_us),
        _listed(extra, led, led_us),
        tuple(f"{case['op']} ({case['phase']}): {case['failed']}" for case in replayed if case["failed"]),
        notes,
    )


def _sums(rows: Any) -> tuple[Counter[Key], Counter[Key]]:
    calls: Counter[Key] = Counter()
    us: Counter[Key] = Counter()
    for (op, dtypes, shapes, n, time), factor in rows:
        key = _key(op, dtypes, shapes)
        calls[key] += n * factor
        us[key] += time * factor
    return calls, us


def _key(op: str, dtypes: list[str], shapes: str) -> Key:
    if op == "aten::_reshape_alias":  # it is given the strides, too
        dtypes, shapes = dtypes[:2], shapes.removesuffix(", []]") + "]"
    if op == "aten::_cudnn_rnn":
        sizes = json.loads(shapes)
        sizes[_WEIGHT_BUFFER] = []
        dtypes, shapes = [*dtypes[:_WEIGHT_BUFFER], "", *dtypes[_WEIGHT_BUFFER + 1 :]], str(sizes)
    return SAME_KERNEL.get(op, op), tuple(dtypes), shapes


def _listed(counted: Counter[Key], all_calls: Counter[Key], us: Counter[Key]) -> tuple[Difference, ...]:
    found = [Difference(*key, n, us[key] * n / all_calls[key]) for key, n in counted.items()]
    return tuple(sorted(found, key=lambda difference: (-difference.us, -difference.calls)))
