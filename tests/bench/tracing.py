"""What the recorder adds to a training step: bookkeeping for each recorded call, and value capture apart from it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import LlamaConfig, LlamaForCausalLM

from audit.tracer.recorder import Recorder
from audit.tracer.values import KeptCall, ValueRecorder
from tests.bench.lines import Line, cpu_clock, median_s

N_STEPS = 15
#: Float elements of the tensor whose capture is compared with a copy: 32 MiB, where memory bandwidth decides.
N_ELEMENTS = 1 << 23


class EmptyMode(TorchDispatchMode):
    """A dispatch mode that does nothing: what any tracer of this kind must pay."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def measure() -> Iterator[Line]:
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)  # all work on the thread whose CPU time is taken
    try:
        yield from steps()
        yield from capture()
    finally:
        torch.set_num_threads(n_threads)


def steps() -> Iterator[Line]:
    step = training_step()
    untraced = median_within(nullcontext(), step)
    empty = median_within(EmptyMode(), step)
    bookkeeping, n_calls = recorded_step(step, None)
    with_values, _ = recorded_step(step, ValueRecorder(total_bytes=1 << 30))
    how = f"CPU time on one thread; Llama, 2 layers, hidden 64, {n_calls} recorded calls a step, {N_STEPS} steps"
    yield Line("untraced step", f"{untraced * 1e3:.1f} ms", how)
    yield Line("step under an empty dispatch mode", f"{empty * 1e3:.1f} ms", "the same")
    yield Line("traced step, no values", f"{bookkeeping * 1e3:.1f} ms", "the same")
    yield Line("traced step, with values", f"{with_values * 1e3:.1f} ms", "the same; looks at the first calls")
    per_call = (bookkeeping - empty) / n_calls * 1e6
    yield Line(
        "bookkeeping for a repeated signature", f"{per_call:.1f} µs", "traced less empty mode, per call", "25 µs"
    )
    yield Line("empty mode for a call", f"{(empty - untraced) / n_calls * 1e6:.1f} µs", "empty mode less untraced")
    yield Line("recording / empty mode", f"{(with_values - untraced) / (empty - untraced):.1f}", "both less untraced")
    yield from against_debug_mode(step, untraced, bookkeeping, with_values)


def against_debug_mode(
    step: Callable[[], None], untraced: float, bookkeeping: float, with_values: float
) -> Iterator[Line]:
    """torch's own recording mode on the same model and steps: as it comes, and with modules and lines as here."""
    try:
        from torch.utils._debug_mode import DebugMode  # private; torch 2.10 and newer
    except ImportError:
        yield Line("step under torch's DebugMode", "-", f"torch {torch.__version__} has none")
        return

    def under(**options: bool) -> Callable[[], None]:
        def work() -> None:
            with DebugMode(**options):  # one a step, since it keeps every call
                step()

        return work

    with torch.autograd.set_multithreading_enabled(False):
        plain = median_s(under(), N_STEPS, 3, cpu_clock)
        placed = median_s(under(record_nn_module=True, record_stack_trace=True), N_STEPS, 3, cpu_clock)
    how = "both less untraced, same model and steps"
    yield Line("step under torch's DebugMode", f"{plain * 1e3:.1f} ms", "calls as text, no modules, lines or values")
    yield Line("step under DebugMode with modules and lines", f"{placed * 1e3:.1f} ms", "what is recorded here too")
    yield Line("recording, no values / DebugMode", f"{(bookkeeping - untraced) / (plain - untraced):.2f}", how)
    yield Line(
        "recording, no values / DebugMode with both", f"{(bookkeeping - untraced) / (placed - untraced):.2f}", how
    )
    yield Line("recording / DebugMode with both", f"{(with_values - untraced) / (placed - untraced):.2f}", how)


def capture() -> Iterator[Line]:
    """One look at a large float tensor against one copy of it."""
    tensor = torch.randn(N_ELEMENTS)
    copy = median_s(tensor.clone, 15, 2, cpu_clock)
    look = median_s(lambda: ValueRecorder(total_bytes=1 << 30).sample({0: tensor}, KeptCall()), 15, 2, cpu_clock)
    how = f"CPU time on one thread; {tensor.nbytes >> 20} MiB of float32"
    yield Line("copy of a tensor", f"{copy * 1e3:.1f} ms", how)
    yield Line("value capture of a tensor", f"{look * 1e3:.1f} ms", how, "twice the copy")
    yield Line("value capture / copy", f"{look / copy:.2f}", how, "2")


def training_step() -> Callable[[], None]:
    """One step of a small Llama with AdamW."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=256, hidden_size=64, intermediate_size=176, num_hidden_layers=2, num_attention_heads=4
    )
    model = LlamaForCausalLM(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    tokens = torch.randint(256, (2, 64))

    def step() -> None:
        model(input_ids=tokens, labels=tokens, use_cache=False).loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def median_within(mode: AbstractContextManager[object], step: Callable[[], None]) -> float:
    with mode, torch.autograd.set_multithreading_enabled(False):
        return median_s(step, N_STEPS, 3, cpu_clock)


def recorded_step(step: Callable[[], None], values: ValueRecorder | None) -> tuple[float, int]:
    """Median seconds of a step whose signatures are all known, and the calls that it records."""
    recorder = Recorder(values)
    with started(recorder):
        step()
        before = recorder.n_recorded
        step()
        n_calls = recorder.n_recorded - before
        return median_s(step, N_STEPS, 1, cpu_clock), n_calls


@contextmanager
def started(recorder: Recorder) -> Iterator[None]:
    recorder.start()
    try:
        yield
    finally:
        recorder.stop()
