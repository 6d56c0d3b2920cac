"""What judging a large case costs: in parts or in blocks, against its full reference in double precision."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Iterator

import torch

from audit.replay.sampled.attention import Attention, forward_parts
from audit.replay.sampled.convolution_calls import forward_of
from audit.replay.sampled.linear_output import prepared
from audit.replay.stream import Stream
from tests.bench.lines import Line
from tests.sensitivity.products import Trial
from tests.sensitivity.trials import costs


def measure() -> Iterator[Line]:
    yield from _product()
    yield _convolution()
    yield _attention()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    yield Line("memory at the peak of all these", f"{peak:.1f} GB", "with the full references")


def _product() -> Iterator[Line]:
    for cost, kind in zip(costs(Trial.make(1, 8192, 4096, 14336), 1), ("time", "CPU time"), strict=True):
        how = (
            f"[8192, 4096] x [4096, 14336] bf16, three turns: {cost.prepare:.2f} s prepared, {cost.compare:.2f} s "
            f"compared, {cost.full:.1f} s in fp64"
        )
        yield Line(f"judging a large product, of its fp64 {kind}", f"{100 * cost.share:.1f} %", how, "10 %")


def _convolution() -> Line:
    image, weight = torch.randn(32, 256, 56, 56).bfloat16(), torch.randn(256, 256, 3, 3).bfloat16()
    geometry = {"stride": [1, 1], "padding": [1, 1], "dilation": [1, 1], "groups": 1, "transposed": False}
    form = forward_of("convolution", {"input": image, "weight": weight, **geometry}, image)
    assert form is not None
    parts, _ = _timed(lambda: prepared(form, Stream(1, "bench")))
    full, _ = _timed(lambda: torch.conv2d(image.double(), weight.double(), padding=1))
    how = f"[32, 256, 56, 56], 3 x 3, bf16: {parts:.2f} s, {full:.1f} s in fp64"
    return Line("reference of a convolution in parts, of its fp64 time", f"{100 * parts / full:.0f} %", how)


def _attention() -> Line:
    query, key, value = (torch.randn(1, 32, 4096, 128).bfloat16() for _ in range(3))
    attention = Attention(query, key, value, None, causal=True, scale=128**-0.5)
    parts, _ = _timed(lambda: forward_parts(attention, query.dtype, Stream(1, "bench")))
    full, _ = _timed(
        lambda: [
            torch.nn.functional.scaled_dot_product_attention(
                *(t[:, head : head + 1].double() for t in (query, key, value)), is_causal=True
            )
            for head in range(4)
        ]
    )
    how = f"[1, 32, 4096, 128] causal bf16: {parts:.2f} s; eight times {full:.1f} s of four heads in fp64"
    return Line("reference of attention in rows, of its fp64 time", f"{100 * parts / (8 * full):.0f} %", how)


def _timed(run: Callable[[], object]) -> tuple[float, object]:
    start = time.perf_counter()
    result = run()
    return time.perf_counter() - start, result
