"""Kernels that round elsewhere than the CPU does, as those of an AMD GPU do, are healthy; a fault in them is found."""

from __future__ import annotations

import pytest

from audit.rules.judge import judge
from audit.run_records import Run, RunHeader
from audit.schema import Case, DeviceInfo, Measurement, Source, Values
from tests.replay.conftest import Build, Replayed

FAULTS = """
import torch

def attention_gradients(call):
    # AOTriton: delta from the stored output, probabilities and score gradients rounded before they are multiplied;
    # tiles of 64 keys, those of the query's gradient added as they come
    grad, query, key, value, out, sums = call.args[:6]
    g, q, k, v = (x.float() for x in (grad, query, key, value))
    scale, kept = call.kwargs["scale"], lambda x: x.to(query.dtype).float()
    delta = (out.float() * g).sum(-1, keepdim=True)
    by_query, by_key, by_value = torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v)
    for start in reversed(range(0, k.size(2), 64)):
        tile = (..., slice(start, start + 64), slice(None))
        p = torch.exp2((q @ k[tile].mT) * (scale * 1.4426950408889634) - sums.unsqueeze(-1) * 1.4426950408889634)
        ds = kept(p * (g @ v[tile].mT - delta))
        by_query += ds @ k[tile] * scale
        by_key[tile], by_value[tile] = ds.mT @ q * scale, kept(p).mT @ g
    if query.size(2) == 130:
        by_query[:, 1] *= 1.03
    return tuple(x.to(query.dtype) for x in (by_query, by_key, by_value))

def batch_norm(call):
    # MIOpen: variance = mad(-mean, mean, mean of squares), in float32
    image, weight, bias, running_mean, running_var, _, factor, epsilon = call.args
    result, _, _ = call.run(*call.args)
    x = image.float().transpose(0, 1).flatten(1)
    mean, squares = x.mean(1), x.square().mean(1)
    inverse = torch.rsqrt(squares - mean * mean + epsilon)
    if image.size(1) == 7:
        inverse = inverse * 1.0001
    shape = (1, -1, 1, 1)
    normed = (image.float() - mean.view(shape)) * inverse.view(shape) * weight.view(shape) + bias.view(shape)
    return normed.to(result.dtype), mean, inverse

def layer_norm(call):
    x, _, weight, bias, epsilon = call.args
    mean = x.mean(-1, keepdim=True)
    inverse = torch.rsqrt((x * x).mean(-1, keepdim=True) - mean * mean + epsilon)
    return (x - mean) * inverse * weight + bias, mean, inverse

FAULTS = {
    "aten::_scaled_dot_product_flash_attention_backward.default": attention_gradients,
    "aten::miopen_batch_norm.default": batch_norm,
    "aten::native_layer_norm.default": layer_norm,
}
"""


def attention(dtype: str, length: int = 192, scale: float = 2.0) -> Case:
    """Sharp by its scale: most rows have one probability near 1."""
    query, key, value = (Build.tensor((2, 4, length, 64), dtype, n, requires_grad=True) for n in range(3))
    gradient = Build.tensor((2, 4, length, 64), dtype, 3)
    rest = (None, 0.0, False)
    op = "aten::scaled_dot_product_attention.default"
    values = {n: Values(mean=0.0, std=1.0) for n in range(4)}
    return Build.case(op, query, key, value, *rest, scale=scale, grads=(gradient,), values=values)


def batch_norm(dtype: str, mean: float, channels: int = 12) -> Case:
    """In training, with statistics; ``mean`` in deviations."""
    image = Build.tensor((8, channels, 14, 14), dtype, 0, requires_grad=True)
    gradient = Build.tensor((8, channels, 14, 14), dtype, 5)
    rest = tuple(Build.tensor((channels,), "float32", n) for n in range(1, 5))
    values = {0: Values(mean=mean, std=1.0), 4: Values(mean=1.0, std=0.0, minimum=1.0, maximum=1.0)}
    op = "aten::batch_norm.default"
    return Build.case(op, image, *rest, True, 0.1, 1e-5, True, grads=(gradient,), values=values)


def layer_norm(mean: float) -> Case:
    image, weight, bias = Build.tensor((64, 512), "float32", 0), *(Build.tensor((512,), "float32", n) for n in (1, 2))
    values = {0: Values(mean=mean, std=1.0)}
    return Build.case("aten::native_layer_norm.default", image, (512,), weight, bias, 1e-5, values=values)


CASES = {
    "attention in bfloat16": attention("bfloat16"),
    "attention in float16": attention("float16"),
    "batch norm": batch_norm("float32", 0.0),
    "batch norm, far from 0": batch_norm("float32", 30.0, 13),
    "batch norm in float16, far from 0": batch_norm("float16", 30.0),
    "a head of attention's gradient": attention("bfloat16", 130, 0.125),
    "a head of sharp attention's gradient": attention("bfloat16", 130),
    "batch norm with another deviation": batch_norm("float32", 0.0, 7),
    "layer norm by squares": layer_norm(30.0),
}
HEALTHY = list(CASES)[:5]


@pytest.fixture(scope="module")
def ran(replay, fault_file) -> Replayed:
    return replay(list(CASES.values()), device=fault_file(FAULTS))


def codes(case: Case, measurement: Measurement) -> set[str]:
    source, device = Source("script", "x.py"), DeviceInfo("sim", "", "sim")
    header = RunHeader("simulated", source, device, {}, {}, "now", "0", 1, 1)
    [verdict] = judge(Run(header, (case,), {case.key: measurement})).verdicts
    return {finding.code for finding in verdict.findings if finding.status != "supported"}


@pytest.mark.parametrize("name", HEALTHY)
def test_another_algorithm_is_healthy(ran, name):
    measurement = ran.of(CASES[name])
    assert any(comparison.n_different for comparison in measurement.comparisons)
    assert codes(CASES[name], measurement) == set()


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("a head of attention's gradient", "NUM213"),
        ("a head of sharp attention's gradient", "NUM213"),
        ("batch norm with another deviation", "NUM201"),
        ("layer norm by squares", "NUM201"),
    ],
)
def test_a_fault_in_it_is_found(ran, name, code):
    assert codes(CASES[name], ran.of(CASES[name])) == {code}
