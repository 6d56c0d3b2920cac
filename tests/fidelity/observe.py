"""Runs one program on the device, unaudited, and writes what ran: ``python -m tests.fidelity.observe DEVICE FILE OUT``.

Observed is what runs after the program's first ``torch.cuda.synchronize()``, which ends its set-up. With ``cpu`` as the
device the program is run with the CPU in the GPU's place.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from audit.tracer.autocast import patch_autocast
from tests.fidelity.ran import Session, marked, tallies

HOST_DATA = "host data"


def main(device: str, program: str, output: Path) -> None:
    os.dup2(2, 1)  # what the program prints is progress
    session = Session()
    text = Path(program).read_text()
    if device == "cpu":
        text = _on_the_cpu(text)
    torch.tensor = _marking(torch.tensor)
    torch.cuda.synchronize = _starting(session, torch.cuda.synchronize if device == "cuda" else lambda: None)
    sys.argv = [program]
    exec(compile(text, program, "exec"), {"__name__": "__main__", "__file__": program})
    found = tallies(session.stop(), without=HOST_DATA)
    rows = [[ran.op, ran.dtypes, ran.shapes, tally.calls, tally.us] for ran, tally in found.items()]
    output.write_text(json.dumps(rows))


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
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
