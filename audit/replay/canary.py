"""A known op with a known answer: says whether the device still computes after a case, and at all in a fresh child."""

from __future__ import annotations

import torch

from audit.device.protocol import Device
from audit.replay.spool import bytes_of

#: A batched GEMM with an addition in one call. Rare in models, so that a fault in the GEMM under audit is not taken for
#: a lost device.
CANARY_OP = "aten::addbmm.default"


def canary_passes(device: Device) -> bool:
    """Runs the canary op; small integers as floats make every summation order give the same bits.

    Raises what the device raises.
    """
    device.begin_case(CANARY_OP, "forward")
    first = torch.arange(2 * 16 * 16).remainder(7).sub(3).reshape(2, 16, 16)
    second = torch.arange(2 * 16 * 16).remainder(5).sub(2).reshape(2, 16, 16)
    bias = torch.arange(16 * 16).remainder(11).reshape(16, 16)
    expected = (first @ second).sum(0) + bias
    operands = [t.to(torch.float32) for t in (bias, first, second)]
    buffers = [device.buffer(bytes_of(t)) for t in operands]
    views = [b.view(torch.float32, t.shape, t.stride(), 0) for b, t in zip(buffers, operands, strict=True)]
    with torch.no_grad():
        actual = device.to_host(torch.ops.aten.addbmm.default(*views))
    device.synchronize()
    return torch.equal(actual, expected.to(torch.float32))
