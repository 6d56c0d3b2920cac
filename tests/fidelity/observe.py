"""Runs one program on the device, unaudited, and writes what ran: ``python -m tests.fidelity.observe DEVICE FILE OUT``.

The profiler does not tell where tensors are. With ``hosts`` as a fourth word the program is run under a dispatch mode
that marks the calls whose tensors are all on the host (counters of optimizers), and these are written.

Observed is what runs after the program's first ``torch.cuda.synchronize()``, which ends its set-up. With ``cpu`` as the
device the program is run with the CPU in the GPU's place.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from audit.schema import DeviceInfo
from audit.tracer import virtual_gpu
from audit.tracer.autocast import patch_autocast
from audit.tracer.redirect import cuda_redirected_to_cpu
from audit.tracer.signature import uses_accelerator
from tests.fidelity.ran import Session, marked, tallies, tallies_by_mark

HOST_DATA, HOST_CALL = "host data", "host call"


def main(device: str, program: str, output: Path, hosts: bool) -> None:
    os.dup2(2, 1)  # what the program prints is progress
    session = Session()
    text = Path(program).read_text()
    sys.argv = [program]
    with ExitStack() as stack:
        if hosts and device == "cpu":
            stack.enter_context(cuda_redirected_to_cpu(DeviceInfo("none", "AMD Instinct MI300X", "gfx942", {})))
        elif device == "cpu":
            text = _on_the_cpu(text)
        torch.tensor = _marking(torch.tensor)
        torch.cuda.synchronize = _starting(session, torch.cuda.synchronize if device == "cuda" else lambda: None)
        if hosts:
            stack.enter_context(torch.autograd.set_multithreading_enabled(False))
            stack.enter_context(MarkingHosts())
            torch.ctc_loss = _unseen(torch.ctc_loss)
        exec(compile(text, program, "exec"), {"__name__": "__main__", "__file__": program})
    events = session.stop()
    found = tallies_by_mark(events).get(HOST_CALL, {}) if hosts else tallies(events, without=HOST_DATA)
    rows = [[ran.op, ran.dtypes, ran.shapes, tally.calls, tally.us] for ran, tally in found.items()]
    output.write_text(json.dumps(rows))


class MarkingHosts(TorchDispatchMode):
    """Marks calls without a tensor on the device; with the CPU in its place, the virtual GPU's marks tell."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if uses_accelerator(args, kwargs):
            if not virtual_gpu.is_active():
                return func(*args, **kwargs)
            try:
                output = func(*args, **kwargs)
            except (NotImplementedError, RuntimeError) as error:
                output = virtual_gpu.run_in_fp32(func, args, kwargs, error)
            virtual_gpu.mark_results(func, output)
            return output
        with marked(HOST_CALL):
            return func(*args, **kwargs)


def _on_the_cpu(text: str) -> str:
    """The program with the CPU in the GPU's place; autocast casts and optimizers choose as on a GPU all the same."""
    torch.cuda.is_available = torch.cuda.is_bf16_supported = lambda *_: True
    patch_autocast(setattr, lambda: None, lambda tensor: True)
    for name, module in list(sys.modules.items()):
        for listed in ("_get_foreach_kernels_supported_devices", "_get_capturable_supported_devices"):
            if name.startswith("torch.optim.") and hasattr(module, listed):
                setattr(module, listed, lambda *_, **__: ["cpu"])
    return re.sub(r'(?<!autocast\()"cuda"', '"cpu"', text).replace(".cuda()", ".cpu()")


def _marking(make: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """``torch.tensor`` copies numbers of Python, in ops that no dispatch mode is shown."""

    def call(*args: Any, **kwargs: Any) -> torch.Tensor:
        with marked(HOST_DATA):
            return make(*args, **kwargs)

    return call


def _unseen(function: Callable[..., Any]) -> Callable[..., Any]:
    """``ctc_loss`` of GPU tensors with lengths on the CPU works, but raises where a dispatch mode is on."""

    def call(*args: Any, **kwargs: Any) -> Any:
        with _disable_current_modes():
            return function(*args, **kwargs)

    return call


def _starting(session: Session, synchronize: Callable[..., Any]) -> Callable[..., Any]:
    started = False

    def call(*args: Any, **kwargs: Any) -> Any:
        nonlocal started
        result = synchronize(*args, **kwargs)
        if not started:
            started = True
            session.start()
        return result

    return call


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), sys.argv[4:] == ["hosts"])
