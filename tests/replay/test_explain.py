"""Known mechanisms of GPU arithmetic are recognised by the errors that they make, and no others are."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from audit.comparison import Explanation
from audit.knowledge.known_behaviours import load_behaviours
from audit.places import IndexRun
from audit.rules.judge import judge
from audit.run_records import Run, RunHeader
from audit.schema import Case, DeviceInfo, Measurement, Named, Source, Values

TF32 = (("torch.backends.cuda.matmul.fp32_precision", "tf32"),)

FAULTS = """
import torch

def tf32(x, cut=False):
    bits = x.contiguous().view(torch.int32)
    return ((bits if cut else bits + 0x1000) & ~0x1FFF).view(torch.float32)

def flushed(x):
    return torch.where(x.abs() < torch.finfo(x.dtype).smallest_normal, 0, x)

def by_size(call):
    a, b = call.args
    how = {
        31: lambda: call.run(tf32(a), tf32(b)),
        32: lambda: call.run(tf32(a, True), tf32(b, True)),
        33: lambda: call.run(flushed(a), flushed(b)),
        34: lambda: flushed(call.run(a, b)),
        35: lambda: call.run(*(x.to(torch.bfloat16).float() for x in (a, b))).to(a.dtype),
        36: lambda: in_parts(call, a, b),
        41: lambda: twisted(call.run(a, b)),
        43: lambda: call.run(a[:, 64:], b[64:]),
        42: lambda: twisted(call.run(a, b)),
    }
    return how[a.shape[0]]()

def in_parts(call, a, b):
    total = torch.zeros(a.shape[0], b.shape[1], dtype=a.dtype)
    for start in range(0, a.shape[1], 16):
        total += call.run(a[:, start:start + 16], b[start:start + 16])
    return total

def twisted(out):
    tile = out[:16, :16].clone()
    out[:16, :16] = tile.flip(0)
    return out

def other_flavour(call):
    out = call.run(*call.args, **call.kwargs)
    return out / 4 if call.args[0].shape[0] == 32 else out + 3

def convolved(call):
    image, weight, *rest = call.args
    return call.run(tf32(image), tf32(weight), *rest)

def in_a_net(call):
    inputs, (w_in, w_state, *biases), _, state, *_ = call.args
    same = lambda x: x
    first, then, factor = {24: (tf32, tf32, 1), 25: (tf32, same, 1), 26: (same, same, 2)}[state.shape[2]]
    added = first(inputs) @ first(w_in).T + factor * sum(biases)
    states = [state[0]]
    for row in added:
        states.append(torch.tanh(row + then(states[-1]) @ then(w_state).T))
    return (torch.stack(states[1:]), states[-1][None], *call.run(*call.args, **call.kwargs)[2:])

FAULTS = {
    "aten::mm.default": by_size,
    "aten::miopen_rnn.default": in_a_net,
    "aten::_scaled_mm.default": other_flavour,
    "aten::convolution.default": convolved,
    "aten::miopen_convolution_transpose.default": convolved,
}
"""

#: Half of the numbers of a float16 normal of this deviation are subnormal.
SMALL = Values(mean=0.0, std=9e-5, minimum=-4e-4, maximum=4e-4)


#: Rounded to 10 bits of mantissa, it is off by 0.004.
BIAS = Values(mean=7.99609375, std=0.0, minimum=7.99609375, maximum=7.99609375)


Cases = dict[str, tuple[Case, Measurement]]


def mm(build, rows: int, dtype: str = "float32", values: Values | None = None, depth: int = 64) -> Case:
    operands = build.tensor([rows, depth], dtype), build.tensor([depth, 48], dtype, storage=1)
    given = {0: values, 1: Values(mean=0.0, std=300.0)} if values else None
    return build.case("aten::mm.default", *operands, values=given)


def scaled(build, rows: int) -> Case:
    left = build.tensor([rows, 64], "float8_e4m3fn")
    right = build.tensor([64, 48], "float8_e4m3fn", storage=1, strides=(1, 64))
    scales = build.tensor([], storage=2), build.tensor([], storage=3)
    return build.case("aten::_scaled_mm.default", left, right, *scales, out_dtype=Named("dtype", "bfloat16"))


def spread(build) -> Case:
    """A transposed convolution that leaves most of its output to the bias alone."""
    image, weight = build.tensor([1, 1, 4, 5, 2]), build.tensor([1, 1, 4, 3, 1], storage=1)
    bias = build.tensor([1], storage=2)
    rest = ((2, 2, 2), (1, 1, 1), (2, 3, 2), True, (1, 1, 1), 1)
    values = {0: Values(mean=0.0, std=1.0), 1: Values(mean=0.0, std=1.0), 2: BIAS}
    return build.case("aten::convolution.default", image, weight, bias, *rest, values=values)


def net(build, hidden: int) -> Case:
    """A recurrent net over four steps of three sequences."""
    shapes = ([4, 3, 8], [1, 3, hidden], [hidden, 8], [hidden, hidden], [hidden], [hidden])
    inputs, state, *weights = (build.tensor(shape, storage=place) for place, shape in enumerate(shapes))
    return build.case("aten::rnn_tanh.input", inputs, state, tuple(weights), True, 1, 0.0, True, False, False)


@pytest.fixture(scope="module")
def ran(build, replay, fault_file) -> Cases:
    cases = {
        "tf32": mm(build, 31),
        "tf32, cut": mm(build, 32),
        "subnormal inputs flushed": mm(build, 33, "float16", SMALL),
        "subnormal outputs flushed": mm(build, 34, "float16", Values(mean=0.0, std=2e-6), 32),
        "bf16 inside": mm(build, 35, "float16"),
        "sums in fp16": mm(build, 36, "float16", depth=1024),
        "a wrong tile": mm(build, 41),
        "a wrong tile in fp16": mm(build, 42, "float16"),
        "a part of the sums left out": mm(build, 43, "float16", depth=1024),
        "tf32, and a bias in fp32": spread(build),
        "a net, all in tf32": net(build, 24),
        "a net, its steps in fp32": net(build, 25),
        "a net with a bias too much": net(build, 26),
        "fp8 of the other flavour": scaled(build, 32),
        "fp8 with an offset": scaled(build, 48),
    }
    replayed = replay(list(cases.values()), device=fault_file(FAULTS))
    return {name: (case, replayed.of(case)) for name, case in cases.items()}


def explanations(ran: Cases, name: str) -> dict[str, Explanation]:
    comparison = ran[name][1].comparisons[0]
    return {explanation.mechanism: explanation for explanation in comparison.explanations}


def known(
    ran: Cases, name: str, arch: str, settings=(), environment=None, status: str | None = "divergent", **changed: Any
) -> str:
    """What a run of the case on an AMD GPU, with the numbers of the simulated one, is known for: ids, or nothing."""
    case, measurement = ran[name]
    case = dataclasses.replace(case, settings=settings, **changed)
    header = RunHeader(
        "measured", Source("script", "x.py"), DeviceInfo("hip", "", arch), environment or {}, {}, "now", "0", 1, 1
    )
    measurement = dataclasses.replace(measurement, device_time=None)  # a busy machine's times would be slow on a GPU
    [verdict] = judge(Run(header, (case,), {case.key: measurement})).verdicts
    assert status in (None, verdict.status)
    titles = {f.known.title for f in verdict.findings if f.known is not None and f.code.startswith("NUM")}
    return " ".join(behaviour.id for behaviour in load_behaviours() if behaviour.title in titles)


@pytest.mark.parametrize("name", ["tf32", "tf32, cut"])
def test_tf32_is_recognised_where_it_was_allowed(ran, name):
    assert explanations(ran, name)["tf32-operands"].left_fraction < 0.1
    assert known(ran, name, "gfx942", TF32, status="supported") == "tf32-gfx94"
    assert known(ran, name, "gfx950", TF32, status="supported") == "tf32-gfx950"
    assert known(ran, name, "sm_90", TF32, status="supported") == "tf32-cuda"
    assert known(ran, name, "gfx942") == ""


def test_what_is_added_to_a_product_is_not_rounded_with_its_factors(ran):
    assert explanations(ran, "tf32, and a bias in fp32")["tf32-operands"].left_fraction < 0.1
    assert known(ran, "tf32, and a bias in fp32", "sm_90", status=None) == "tf32-cuda-convolution"


@pytest.mark.parametrize("name", ["a net, all in tf32", "a net, its steps in fp32"])
def test_tf32_is_recognised_in_the_products_inside_a_recurrent_net(ran, name):
    assert explanations(ran, name)["tf32-operands"].left_fraction < 0.1
    assert known(ran, name, "sm_90", status=None) == "tf32-cuda-rnn"
    assert known(ran, name, "gfx942") == ""
    assert known(ran, name, "sm_90", (("torch.backends.cudnn.rnn.fp32_precision", "ieee"),)) == ""


def test_another_error_of_a_recurrent_net_is_not_tf32(ran):
    assert explanations(ran, "a net with a bias too much")["tf32-operands"].left_fraction > 0.5
    assert known(ran, "a net with a bias too much", "sm_90") == ""


def test_flushed_subnormals_are_recognised_on_mi200_alone(ran):
    assert explanations(ran, "subnormal inputs flushed")["subnormals-flushed"].left_fraction < 0.1
    assert explanations(ran, "subnormal outputs flushed")["subnormals-flushed"].n_left == 0
    for name in ("subnormal inputs flushed", "subnormal outputs flushed"):
        assert known(ran, name, "gfx90a") == "mi200-denormals"
        assert known(ran, name, "gfx942") == ""


def test_bf16_inside_fp16_is_recognised_in_the_backward_pass_or_where_it_was_asked_for(ran):
    name, forced = "bf16 inside", {"ROCBLAS_INTERNAL_FP16_ALT_IMPL": "1"}
    assert explanations(ran, name)["bf16-operands"].left_fraction < 0.25
    assert known(ran, name, "gfx90a", phase="backward") == "mi200-bf16-backward"
    assert known(ran, name, "gfx90a") == ""
    assert known(ran, name, "gfx90a", environment=forced) == "mi200-bf16-forced"
    never = {"ROCBLAS_INTERNAL_FP16_ALT_IMPL": "0"}
    assert "mi200" not in known(ran, name, "gfx90a", environment=never, phase="backward")
    assert known(ran, name, "gfx942", phase="backward") == ""


def test_sums_in_half_precision_are_recognised_where_they_are_allowed(ran):
    allowed = "torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction"
    assert known(ran, "sums in fp16", "gfx942") == "reduced-fp16"
    assert known(ran, "sums in fp16", "gfx942", ((allowed, False),)) == ""
    assert known(ran, "a part of the sums left out", "gfx942") == ""


def test_the_other_flavour_of_fp8_is_recognised(ran):
    assert explanations(ran, "fp8 of the other flavour")["fp8-other-flavour"].left_fraction < 0.1
    assert known(ran, "fp8 of the other flavour", "gfx942") == "fp8-fnuz"
    assert known(ran, "fp8 with an offset", "gfx942") == ""


@pytest.mark.parametrize("name", ["a wrong tile", "a wrong tile in fp16"])
def test_a_tile_in_the_wrong_place_is_none_of_them(ran, name):
    for explanation in explanations(ran, name).values():
        assert explanation.left_fraction > 0.5
        assert explanation.n_left > explanation.n_wrong / 2
    for arch in ("gfx90a", "gfx942", "gfx950"):
        assert known(ran, name, arch, TF32 if name == "a wrong tile" else ()) == ""
    places = ran[name][1].comparisons[0].wrong
    assert [side.runs for side in places.along] == [(IndexRun(0, 15),)] * 2
