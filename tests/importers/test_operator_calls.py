"""The grammar of operator-input logs takes what PyTorch writes, evaluates nothing, and says where a line leaves it."""

from __future__ import annotations

import contextlib
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from audit.importers.operator_calls import GrammarError, parse_line
from audit.schema import Arg, Named, TensorSpec


def parsed(value: str) -> Arg:
    """One positional argument."""
    return parse_line(f"cnt: 1, (({value},), {{}})").args[0]


def test_a_line_is_a_number_of_calls_with_arguments_by_place_and_by_name():
    call = parse_line("cnt: 48, ((T([4], f16), 3, True), {'alpha': 2})")
    assert call.n_calls == 48
    assert call.args == (TensorSpec((4,), (1,), "float16", extent=4), 3, True)
    assert call.kwargs == (("alpha", 2),)


def test_a_tensor_without_a_stride_is_contiguous():
    assert parsed("T([2, 0, 3], bf16)") == TensorSpec((2, 0, 3), (3, 3, 1), "bfloat16", extent=0)


def test_a_stride_says_how_far_the_storage_reaches():
    assert parsed("T([4, 6], f32, stride=(1, 5))") == TensorSpec((4, 6), (1, 5), "float32", extent=29)


def test_each_tensor_of_a_call_has_a_storage_of_its_own():
    args = parse_line("cnt: 1, (([T([2], i64), T([2], i64)], T([2], b8)), {})").args
    assert [spec.storage for spec in (*args[0], args[1])] == [0, 1, 2]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("None", None),
        ("-7", -7),
        ("1e-05", 1e-05),
        ("-0.5", -0.5),
        ("inf", math.inf),
        ("-inf", -math.inf),
        ("'floor'", "floor"),
        ("''", ""),
        ("[]", ()),
        ("[[1, 2], (3,)]", ((1, 2), (3,))),
        ("f16", Named("dtype", "float16")),
        ("torch.uint8", Named("dtype", "uint8")),
        ("torch.float8_e4m3fn", Named("dtype", "float8_e4m3fn")),
        ("torch.strided", Named("layout", "strided")),
        ("torch.channels_last", Named("memory_format", "channels_last")),
        ("'cuda'", Named("device", "device")),
        ("'cuda:1'", Named("device", "device")),
        ("'cpu'", Named("device", "cpu")),
        ("\"torch.device('cpu')\"", Named("device", "cpu")),
        ("device(type='cuda', index=0)", Named("device", "device")),
    ],
)
def test_an_argument(text: str, value: Arg):
    assert parsed(text) == value
    assert type(parsed(text)) is type(value)


def test_a_sparse_tensor_is_in_the_grammar():
    spec = parsed("ST([9, 4], f16, torch.sparse_coo, True, nnz=5)")
    assert isinstance(spec, TensorSpec)
    assert (spec.sizes, spec.layout) == ((9, 4), "sparse_coo")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("cnt: 1, ((T([2], f16), {})", "column 24: expected an argument, got '{'"),
        ("cnt: 1, ((T([2], f16", "column 21: expected ',', got the end of the line"),
        ("cnt: 1, ((T([2] f16),), {})", "column 17: expected ',', got 'f16'"),
        ("cnt: 1, ((T([-2], f16),), {})", "column 17: expected sizes of a tensor"),
        ("cnt: 1, ((T([2], f16, stride=(1, 1)),), {})", "column 37: expected 1 strides"),
        ("cnt: 0, ((), {})", "column 1: 0 calls"),
        ("cnt: 1, ((), {}) more", "column 18: expected the end of the line, got 'more'"),
        ("cnt: 1, ((), {'a': 1, 'a': 2})", "column 30: an argument is named twice"),
        ("cnt: 1, ((99999999999999999999,), {})", "column 11: an integer of 20 digits, beyond 64 bits"),
        ("cnt: 1, ((__import__('os').system('ls'),), {})", "column 11: expected T, ST or device, got '__import__'"),
        ("cnt: 1, ((os.environ,), {})", "column 11: 'os.environ' is no value that this grammar knows"),
        ("cnt: 1, ((2 ** 9,), {})", "column 12: ' ** 9,), {})' begins no token"),
        (f"cnt: 1, ({'(' * 99})", "column 19: expected at most 8 lists in each other, got '('"),
    ],
)
def test_what_is_not_in_the_grammar_is_told_with_its_place(line: str, message: str):
    with pytest.raises(GrammarError) as caught:
        parse_line(line)
    assert str(caught.value) == message


@settings(max_examples=50)
@given(st.text(alphabet="cnt: 1,()[]{}T'f16.-e", max_size=60))
def test_no_text_raises_anything_else(text: str):
    for line in (text, f"cnt: 1, (({text}), {{}})"):
        with contextlib.suppress(GrammarError):
            parse_line(line)
