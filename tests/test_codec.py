"""Every schema value survives JSON, and nothing but schema values comes out of a stranger's JSON."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from audit.codec import DecodeError, arg_from_json, arg_to_json, case_key, decode, encode, signature_text, tensors_of
from audit.comparison import Comparison, TensorFact
from audit.schema import Arg, Case, Measurement, Named, Outcome, TensorSpec, Values

SPECS = st.builds(
    TensorSpec,
    sizes=st.lists(st.integers(0, 9), max_size=4).map(tuple),
    strides=st.lists(st.integers(0, 99), max_size=4).map(tuple),
    dtype=st.sampled_from(["float32", "bfloat16", "int64", "bool"]),
    offset=st.integers(0, 5),
    extent=st.integers(0, 100),
    storage=st.integers(0, 3),
    requires_grad=st.booleans(),
    host=st.booleans(),
)
LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.complex_numbers(),
    st.text(max_size=5),
    SPECS,
    st.builds(
        Named,
        kind=st.sampled_from(["dtype", "layout", "device", "memory_format", "generator"]),
        name=st.text(max_size=4),
    ),
)
ARGS = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=3).map(tuple), max_leaves=6)


def same(a: object, b: object) -> bool:
    """Equality under which NaN equals NaN, and 1, 1.0 and True differ."""
    return repr(a) == repr(b)


@given(ARGS)
def test_every_argument_survives_json(arg: Arg) -> None:
    assert same(arg_from_json(json.loads(json.dumps(arg_to_json(arg), allow_nan=False))), arg)


@given(st.lists(ARGS, max_size=4).map(tuple), st.sampled_from(["forward", "backward", "optimizer"]))
def test_a_case_survives_json_and_keeps_its_key(args: tuple[Arg, ...], phase: str) -> None:
    kwargs = (("alpha", 1), ("out", None))
    case = Case(
        key=case_key("aten::add.Tensor", args, kwargs, phase, None),  # type: ignore[arg-type]
        op="aten::add.Tensor",
        args=args,
        kwargs=kwargs,
        phase=phase,  # type: ignore[arg-type]
        modules=("a.b",),
        values={0: Values(stored=True, n_sampled=3, minimum=-1, maximum=2.5)},
    )
    back = decode(Case, json.loads(json.dumps(encode(case), allow_nan=False)))
    assert same(back, case)
    assert case_key(back.op, back.args, back.kwargs, back.phase, back.grads) == case.key


def test_non_finite_measurements_survive() -> None:
    comparison = Comparison(
        "output", "numeric", TensorFact((2,), (1,), "float32"), None, worst_ratio=math.inf, max_abs_error=math.nan
    )
    measurement = Measurement("k", Outcome("ok"), Outcome("crashed", signal=11), (comparison,))
    back = decode(Measurement, json.loads(json.dumps(encode(measurement), allow_nan=False)))
    assert same(back, measurement)


def test_keys_are_what_they_were() -> None:
    """Keys join runs of different machines and years: this value may never change."""
    spec = TensorSpec((2, 3), (3, 1), "float32", extent=6)
    assert case_key("aten::mul.Tensor", (spec, 2.5), (), "forward", None) == "mul-caf8581a4f78"


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["key", "op", "args", "kwargs", "tensor", "x"]), inner)
    ),
    max_leaves=12,
)


@given(JUNK)
def test_junk_is_refused_in_words_and_never_crashes_the_decoder(junk: object) -> None:
    for cls in (Case, Measurement):
        try:
            value = decode(cls, junk)
        except DecodeError:
            continue
        assert isinstance(value, cls)


def test_a_wrong_type_is_named_with_its_place() -> None:
    with pytest.raises(DecodeError, match="expected int, got"):
        decode(Case, {"key": "k", "op": "o", "args": [], "n_calls": "many"})


def test_signatures_read_well() -> None:
    args: tuple[Arg, ...] = (
        TensorSpec((8, 16), (16, 1), "bfloat16", extent=128),
        TensorSpec((16, 4), (1, 16), "bfloat16", offset=2, extent=66),
        (None, 3),
        Named("dtype", "float32"),
    )
    assert signature_text(args, (("alpha", 1.5),)) == (
        "bf16[8, 16], bf16[16, 4] strides (1, 16) offset 2, [None, 3], float32, alpha=1.5"
    )
    assert [spec.dtype for spec in tensors_of(args, ())] == ["bfloat16", "bfloat16"]
