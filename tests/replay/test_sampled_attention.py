"""Attention of which rows are computed: each is that of the whole, with masks, groups of heads and its gradients."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from audit.comparison import Comparison
from audit.replay.compare import Expected, compare, fact_of, flat
from audit.replay.inputs import Bound
from audit.replay.sampled.attention_calls import attention_of, expected_of
from audit.replay.stream import Stream

NAME = "scaled_dot_product_attention"


def call(shape, group, causal, mask, scale, dtype=torch.float64, seed=0):
    """Arguments by name and the gradient of the output; ``shape``: batch, key heads, length, keys, width."""
    batch, heads, length, keys, width = shape
    generator = torch.Generator().manual_seed(seed)

    def some(*sizes):
        return torch.randn(sizes, generator=generator, dtype=torch.float64).to(dtype).requires_grad_()

    query, key, value = some(batch, heads * group, length, width), some(batch, heads, keys, width), None
    value = some(batch, heads, keys, width + 1)
    bias = {
        "none": None,
        "boolean": torch.rand(batch, 1, length, keys, generator=generator) < 0.8,
        "added": torch.randn(length, keys, generator=generator, dtype=torch.float64).to(dtype),
    }[mask]
    if mask == "boolean":
        bias[..., 0] = True
    arguments = {"query": query, "key": key, "value": value, "attn_mask": bias, "is_causal": causal, "scale": scale}
    gradient = some(batch, heads * group, length, width + 1).detach()
    return arguments, Bound([], {}, [gradient], [query, key, value])


def whole(arguments, gradient):
    """Output and gradients of the whole, in double precision."""
    leaves = [arguments[name].detach().double().requires_grad_() for name in ("query", "key", "value")]
    bias = arguments["attn_mask"]
    bias = bias.double() if bias is not None and bias.dtype != torch.bool else bias
    out = torch.nn.functional.scaled_dot_product_attention(
        *leaves, bias, is_causal=arguments["is_causal"], scale=arguments["scale"], enable_gqa=True
    )
    return [out.detach(), *torch.autograd.grad(out, leaves, gradient.double())]


def names(bound):
    return ["output", *(f"gradient of operand {i}" for i in range(len(bound.operands)))]


def expected(arguments, bound) -> dict[str, Expected]:
    attention = attention_of(NAME, arguments, bound)
    with torch.no_grad():
        return expected_of(NAME, arguments, bound, attention, Stream(1, "attention"))


@settings(max_examples=25, deadline=None)
@given(
    st.tuples(st.integers(1, 2), st.integers(1, 3), st.integers(1, 150), st.integers(1, 150), st.integers(1, 8)),
    st.integers(1, 3),
    st.sampled_from(((True, "none"), (False, "none"), (False, "boolean"), (False, "added"))),
    st.sampled_from((None, 0.3)),
)
def test_exact_rows_are_those_of_the_whole(shape, group, masked, scale):
    arguments, bound = call(shape, group, *masked, scale)
    wholes = whole(arguments, bound.grads[0])
    for name, reference in zip(names(bound), wholes, strict=True):
        exact = expected(arguments, bound)[name].sampled.exact
        torch.testing.assert_close(exact.wide, flat(reference)[exact.places], rtol=1e-10, atol=1e-11)


def judged(arguments, bound, outputs) -> dict[str, Comparison]:
    references = expected(arguments, bound)
    return {
        name: compare(references[name], flat(out), fact_of(out))
        for name, out in zip(names(bound), outputs, strict=True)
    }


def healthy(dtype=torch.bfloat16, shape=(2, 2, 200, 200, 32)):
    arguments, bound = call(shape, 2, True, "none", None, dtype)
    return arguments, bound, [out.to(dtype) for out in whole(arguments, bound.grads[0])]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_a_healthy_output_passes_and_what_was_not_seen_is_told(dtype):
    found = judged(*healthy(dtype))
    assert all(comparison.worst_ratio <= 1 for comparison in found.values())
    # one row in each of four tiles, the first and the last, of 200: in every head, of keys in two heads of four
    assert 0.97 <= found["output"].unseen_fraction <= 0.98
    assert 0.985 <= found["gradient of operand 1"].unseen_fraction <= 0.99


def test_a_tile_of_queries_without_the_mask_is_found():
    arguments, bound, outputs = healthy()
    unmasked, _ = call((2, 2, 200, 200, 32), 2, False, "none", None, torch.bfloat16)
    outputs[0][1, 3, 64:128] = whole(unmasked, bound.grads[0])[0][1, 3, 64:128].to(torch.bfloat16)
    assert judged(arguments, bound, outputs)["output"].worst_ratio > 8


def test_a_wrong_row_of_a_head_with_small_values_is_found_beside_one_with_large_ones():
    arguments, bound = call((1, 2, 200, 200, 32), 1, True, "none", None, torch.bfloat16)
    with torch.no_grad():
        arguments["value"][:, 0] *= 2.0**30
    outputs = [out.to(torch.bfloat16) for out in whole(arguments, bound.grads[0])]
    assert judged(arguments, bound, outputs)["output"].worst_ratio <= 1
    outputs[0][0, 1, -1] *= 1.5
    assert judged(arguments, bound, outputs)["output"].worst_ratio > 8


def test_a_nan_in_a_row_that_is_not_compared_is_found():
    arguments, bound, outputs = healthy()
    outputs[0][1, 2, 70:73] = float("nan")
    assert judged(arguments, bound, outputs)["output"].n_nan_mismatch == 3 * 33
