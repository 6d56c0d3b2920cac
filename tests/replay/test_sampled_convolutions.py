"""Convolutions of which parts are computed: each is that of the whole, for all groups, strides and dilations."""

from __future__ import annotations

import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from audit.replay.compare import Expected, compare, fact_of, flat
from audit.replay.sampled import linear_output
from audit.replay.sampled.convolution_calls import forward_of, gradients_of
from audit.replay.sampled.sketch import sums_of
from audit.replay.stream import Stream

aten = torch.ops.aten


@st.composite
def calls(draw):
    """Arguments of a convolution by name, and a gradient of its output."""
    n = draw(st.integers(1, 3))

    def each(low, high):
        return [draw(st.integers(low, high)) for _ in range(n)]

    groups, images = draw(st.sampled_from((1, 1, 2, 3))), draw(st.integers(1, 5))
    first, second = groups * draw(st.integers(1, 4)), groups * draw(st.integers(1, 20))
    kernel, stride, padding, dilation = each(1, 3), each(1, 3), each(0, 2), each(1, 2)
    transposed = draw(st.booleans())
    spare = [draw(st.integers(0, max(0, max(s, d) - 1))) for s, d in zip(stride, dilation, strict=True)]
    generator = torch.Generator().manual_seed(draw(st.integers(0, 99)))
    weight = [first, second // groups, *kernel] if transposed else [second, first // groups, *kernel]
    sizes = [images, first, *each(1, 7)]
    arguments = {
        "input": torch.randn(sizes, generator=generator, dtype=torch.float64),
        "weight": torch.randn(weight, generator=generator, dtype=torch.float64),
        "bias": torch.randn(second, generator=generator, dtype=torch.float64) if draw(st.booleans()) else None,
        "stride": stride,
        "padding": padding,
        "dilation": dilation,
        "transposed": transposed,
        "output_padding": spare if transposed else [0] * n,
        "groups": groups,
    }
    try:
        out = aten.convolution(*arguments.values())
    except RuntimeError:
        assume(False)
    assume(out.numel() > 0)
    if draw(st.booleans()) and n == 2:
        arguments["input"] = arguments["input"].to(memory_format=torch.channels_last)
    return arguments, torch.randn(out.shape, generator=generator, dtype=torch.float64)


def holds(form, whole):
    reference = linear_output.prepared(form, Stream(1, "convolution"))
    exact = reference.exact
    torch.testing.assert_close(exact.wide, flat(whole)[exact.places], rtol=1e-11, atol=1e-11)
    assert {0, whole.numel() - 1} <= set(exact.places.tolist())
    sums = sums_of(form.view(flat(whole)), reference.blocks)
    torch.testing.assert_close(reference.reference, sums.total, rtol=1e-10, atol=1e-10)
    result = compare(Expected("output", fact_of(whole), "numeric", sampled=reference), flat(whole), fact_of(whole))
    assert result.max_abs_error < 1e-11


@settings(max_examples=30, deadline=None)
@given(calls())
def test_exact_parts_and_sketch_of_a_convolution_are_those_of_the_whole(call):
    arguments, _ = call
    whole = aten.convolution(*arguments.values())
    holds(forward_of("convolution", arguments, whole), whole)


@settings(max_examples=30, deadline=None)
@given(calls())
def test_exact_parts_and_sketch_of_its_gradients_are_those_of_the_whole(call):
    arguments, gradient = call
    given_sizes = {**arguments, "bias": [gradient.shape[1]]}
    wholes = aten.convolution_backward(gradient, *given_sizes.values(), [True, True, True])
    outputs = {"input": wholes[0], "weight": wholes[1], "bias": wholes[2]}
    forms = gradients_of({"grad_output": gradient, **arguments}, outputs, ("input", "weight", "bias"))
    for name, form in forms.items():
        holds(form, outputs[name])
