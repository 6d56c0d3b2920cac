"""The fault file of `rocm-audit doctor --selftest`: one op for each way in which a device goes wrong.

What the audit must say of each op stands in ``audit.selftest``; docs/devices.md describes fault files.
"""

from __future__ import annotations

import os
import signal
from typing import Any


def one_percent_off(call: Any) -> Any:
    return call.run(*call.args, **call.kwargs) * 1.01


def not_a_number(call: Any) -> Any:
    result = call.run(*call.args, **call.kwargs)
    result[0, 0] = float("nan")
    return result


def half_unwritten(call: Any) -> Any:
    right = call.run(*call.args, **call.kwargs)
    written = right.new_empty(right.shape)
    written[: len(right) // 2] = right[: len(right) // 2]
    return written


def not_twice_the_same(call: Any) -> Any:
    """Moves one element by the time of day, as an unordered sum of unlucky rounding would."""
    result = call.run(*call.args, **call.kwargs)
    result[0, 0] = int.from_bytes(os.urandom(2), "little")
    return result


def no_kernel(call: Any) -> Any:
    raise RuntimeError("HIP error: invalid device function")


def segmentation_fault(call: Any) -> Any:
    os.kill(os.getpid(), signal.SIGSEGV)


def no_end(call: Any) -> Any:
    while True:
        call.sleep(1.0)


def through_the_host(call: Any) -> Any:
    operand = call.args[0]
    nbytes = operand.numel() * operand.element_size()
    call.copy("DtoH", nbytes)
    result = call.run(*call.args, **call.kwargs)
    call.copy("HtoD", nbytes)
    return result


FAULTS = {
    "aten::mm.default": one_percent_off,
    "aten::relu.default": not_a_number,
    "aten::silu.default": half_unwritten,
    "aten::exp.default": not_twice_the_same,
    "aten::addmm.default": no_kernel,
    "aten::bmm.default": segmentation_fault,
    "aten::cumsum.default": through_the_host,
    "aten::tanh.default": no_end,
}
