"""Plays small steps on the simulated device, in one process: ``python -m tests.drift.played FILE`` writes what it saw.

A process of its own, since a device can only be registered before the first backward.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from audit.codec import encode
from audit.device.sim.device import SimDevice
from audit.drift_records import Drift, DriftEnd, DriftStep
from audit.replay.drift.lockstep import LockStep
from audit.tracer.tape_writer import TapeWriter
from audit.tracer.taping import TapeRecorder

# --- programs ------------------------------------------------------------------------------------------------------


class Attention(nn.Module):
    """Heads of 16 behind a norm, with dropout and a residual."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.qkv, self.out, self.drop = (
            nn.LayerNorm(32),
            nn.Linear(32, 96),
            nn.Linear(32, 32),
            nn.Dropout(0.1),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(self.norm(x)).view(2, 8, 3, 2, 16).permute(2, 0, 3, 1, 4)
        heads = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + self.drop(self.out(heads.transpose(1, 2).reshape(2, 8, 32)))


def attention() -> Callable[[], None]:
    model, x = Attention(), torch.randn(2, 8, 32)
    optimizer = torch.optim.AdamW(model.parameters(), foreach=True)

    def step() -> None:
        model(x).square().mean().backward()
        optimizer.step()

    return step


def convolutions() -> Callable[[], None]:
    def block(n: int, m: int) -> nn.Module:
        return nn.Sequential(nn.Conv2d(n, m, 3, padding=1), nn.BatchNorm2d(m), nn.ReLU(inplace=True))

    head = nn.Sequential(nn.MaxPool2d(2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5))
    model, x = nn.Sequential(block(3, 8), block(8, 8), head), torch.randn(4, 3, 12, 12)
    return lambda: nn.functional.cross_entropy(model(x), torch.arange(4)).backward()


def recurrent() -> Callable[[], None]:
    embedding, lstm, head = nn.Embedding(50, 16), nn.LSTM(16, 24, num_layers=2), nn.Linear(24, 50)
    tokens = torch.randint(0, 50, (7, 3))

    def step() -> None:
        output, _ = lstm(embedding(tokens))
        nn.functional.cross_entropy(head(output).flatten(0, 1), tokens.flatten()).backward()

    return step


class Gate(nn.Module):
    """What comes in, times a number of its own for each element."""

    def __init__(self, kind: nn.Module) -> None:
        super().__init__()
        self.linear, self.kind = nn.Linear(64, 64), kind

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * (self.kind(self.linear(x)) + 0.5)


def deep() -> Callable[[], None]:
    """Four gates with relu and twelve with sigmoid, whose errors multiply."""
    model = nn.Sequential(*(Gate(nn.ReLU()) for _ in range(4)), *(Gate(nn.Sigmoid()) for _ in range(12)))
    x = torch.randn(16, 64)

    def step() -> None:
        with torch.no_grad():
            model(x)

    return step


# --- faults --------------------------------------------------------------------------------------------------------


def padded_rows(call: Any) -> Any:
    """Right, and laid out as no CPU does it."""
    output, *rest = call.run(*call.args, **call.kwargs)
    room = output.new_zeros(*output.shape[:-1], output.shape[-1] + 8)
    room[..., : output.shape[-1]] = output
    return (room[..., : output.shape[-1]], *rest)


def wrong_on_padded_rows(call: Any) -> Any:
    output = call.run(*call.args, **call.kwargs)
    x = call.args[0]
    if x.dim() == 4 and x.untyped_storage().nbytes() > x.numel() * x.element_size():
        output = output.clone()
        output[..., -1] *= 1.01
    return output


def notes_what_it_writes(call: Any) -> Any:
    call.args[0].untyped_storage().was_written = True  # as long as the memory lives, unlike its address
    return call.run(*call.args, **call.kwargs)


def wrong_on_what_was_just_written(call: Any) -> Any:
    """As a kernel that reads its input before the one that writes it in place has ended."""
    output = call.run(*call.args, **call.kwargs)
    if getattr(call.args[0].untyped_storage(), "was_written", False):
        output[:, -1] = 0
    return output


def chops_three_bits(call: Any) -> Any:
    """Towards nought by up to 7 steps of the last bit: within what one call is allowed, and always the same way."""
    output = call.run(*call.args, **call.kwargs)
    return (output.contiguous().view(torch.int32) & ~7).view(torch.float32)


def dies(call: Any) -> Any:
    raise RuntimeError("HIP error: invalid device function")


CASES: dict[str, tuple[Callable[[], Callable[[], None]], dict[str, Any]]] = {
    "healthy attention": (attention, {}),
    "healthy convolutions": (convolutions, {}),
    "healthy recurrent": (recurrent, {}),
    "healthy deep": (deep, {}),
    "layout": (
        attention,
        {
            "aten::_scaled_dot_product_*_attention.default": padded_rows,
            "aten::clone.default": wrong_on_padded_rows,
            "aten::_reshape_copy.default": wrong_on_padded_rows,
        },
    ),
    "memory": (
        convolutions,
        {"aten::relu_.default": notes_what_it_writes, "aten::convolution.default": wrong_on_what_was_just_written},
    ),
    "coarse": (deep, {"aten::sigmoid.default": chops_three_bits}),
    "raising": (deep, {"aten::sigmoid.default": dies}),
}


def play(program: Callable[[], Callable[[], None]], faults: dict[str, Any]) -> Drift:
    torch.manual_seed(0)
    step = program()
    steps: list[DriftStep] = []
    with tempfile.TemporaryDirectory() as scratch:
        tape = TapeWriter(Path(scratch), 1 << 30)
        recorder = TapeRecorder(tape).start()
        try:
            step()
        finally:
            recorder.stop()
            tape.end("")
        end: DriftEnd = LockStep(
            Path(scratch),
            SimDevice(faults),
            lambda record: steps.append(record) if isinstance(record, DriftStep) else None,
        ).play()
    return Drift(tuple(steps), end)


if __name__ == "__main__":
    SimDevice()
    torch.set_num_threads(1)
    Path(sys.argv[1]).write_text(json.dumps({name: encode(play(*case)) for name, case in CASES.items()}))
