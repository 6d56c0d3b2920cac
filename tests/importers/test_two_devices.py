"""What is one kind of call on two devices, though each names it after the library that served it."""

from __future__ import annotations

import random
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from audit.codec import signature_text
from audit.importers.kineto import read_recording
from audit.rules.kind_of_call import BY_OP, kind_of_call
from audit.rules.side_by_side import side_by_side
from audit.schema import NOT_RECORDED, Arg, TensorSpec
from audit.verdicts import SideBySide
from tests.importers.recorded import kernel, op, trace

T, C, NO = ("c10::BFloat16", [8, 64, 56, 56]), ("float", [64]), ("", [])
EPS, TRUE, FALSE, ALL = "1.0000000000000001e-05", "True", "False", "[True, True, True]"


def arguments(*args: Any) -> dict[str, Any]:
    """Tensors as (type, sizes); numbers and lists of them as the text that a profiler writes."""
    return {
        "Input Dims": [arg[1] if isinstance(arg, tuple) else [] for arg in args],
        "Input type": [
            arg[0] if isinstance(arg, tuple) else "ScalarList" if arg.startswith("[") else "Scalar" for arg in args
        ],
        "Concrete Inputs": ["" if isinstance(arg, tuple) else arg for arg in args],
    }


def beside(tmp_path: Path, here: tuple[str, dict[str, Any]], there: tuple[str, dict[str, Any]]) -> SideBySide:
    runs = (
        read_recording(
            trace(tmp_path / f"{us}.json", op(f"aten::{call[0]}", 10, 8, 7, **call[1]), kernel("k", 20, us, 0, 7))
        )
        for call, us in ((here, 5.0), (there, 2.0))
    )
    return side_by_side(*runs)


#: Each pair computes the same.
MET = {
    "batch norm's backward, MIOpen and cuDNN": (
        ("miopen_batch_norm_backward", arguments(T, T, C, NO, NO, C, C, EPS)),
        ("cudnn_batch_norm_backward", arguments(T, T, C, C, C, C, C, EPS, ("unsigned char", [4096]))),
    ),
    "batch norm's backward, native and cuDNN": (
        ("native_batch_norm_backward", arguments(T, T, C, C, C, C, C, TRUE, EPS, ALL)),
        ("cudnn_batch_norm_backward", arguments(T, T, C, C, C, C, C, EPS, ("unsigned char", [0]))),
    ),
    "batch norm below autograd": (
        ("miopen_batch_norm", arguments(T, C, C, C, C, TRUE, "0.1", EPS)),
        ("cudnn_batch_norm", arguments(T, C, C, C, C, TRUE, "0.1", EPS)),
    ),
    "batch norm, above autograd and below": (
        ("batch_norm", arguments(T, C, C, C, C, TRUE, "0.1", EPS, TRUE)),
        ("native_batch_norm", arguments(T, C, C, C, C, TRUE, "0.1", EPS)),
    ),
    "a convolution's backward of torch 1.10": (
        ("miopen_convolution_backward",
         arguments(T, T, ("c10::BFloat16", [64, 64, 3, 3]), "[1, 1]", "[2, 2]", "[1, 1]", "1", FALSE, FALSE,
                   "[True, True, False]")),
        ("cudnn_convolution_backward",
         arguments(T, T, ("c10::BFloat16", [64, 64, 3, 3]), "[1, 1]", "[2, 2]", "[1, 1]", "1", FALSE, FALSE, TRUE,
                   "[True, True]")),
    ),
    "a convolution's backward of torch 1.10 and of today": (
        ("convolution_backward",
         arguments(T, T, ("c10::BFloat16", [64, 64, 3, 3]), "[0]", "[2, 2]", "[1, 1]", "[1, 1]", FALSE, "[0, 0]", "1",
                   "[True, True, False]")),
        ("cudnn_convolution_backward",
         arguments(T, T, ("c10::BFloat16", [64, 64, 3, 3]), "[1, 1]", "[2, 2]", "[1, 1]", "1", FALSE, FALSE, TRUE,
                   "[True, True]")),
    ),
    "a convolution without a bias, below autograd": (
        ("miopen_convolution", arguments(T, T, NO, "[1, 1]", "[2, 2]", "[1, 1]", "1", FALSE, FALSE)),
        ("cudnn_convolution", arguments(T, T, "[1, 1]", "[2, 2]", "[1, 1]", "1", FALSE, FALSE, TRUE)),
    ),
    "attention's backward": (
        ("_scaled_dot_product_flash_attention_backward",
         arguments(T, T, T, T, T, C, NO, NO, "56", "56", "0.", TRUE, ("long", []), ("long", []), "0.125")),
        ("_scaled_dot_product_cudnn_attention_backward",
         arguments(T, T, T, T, T, C, ("long", []), ("long", []), NO, NO, NO, "56", "56", "0.", TRUE, "0.125")),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MET)
def test_one_kind_of_call_meets_whichever_library_names_it(tmp_path: Path, name: str) -> None:
    here, there = MET[name]
    both = beside(tmp_path, here, there)
    (row,) = both.rows
    assert (row.op.partition(".")[0], row.here_us, row.there_us, row.cost_us) == (f"aten::{here[0]}", 5.0, 2.0, 3.0)
    assert (both.only_here, both.only_there) == ((), ())


#: Each pair does other work.
APART = {
    "gradients of the input alone": (
        ("native_batch_norm_backward", arguments(T, T, C, C, C, C, C, TRUE, EPS, "[True, False, False]")),
        ("cudnn_batch_norm_backward", arguments(T, T, C, C, C, C, C, EPS, ("unsigned char", [0]))),
    ),
    "in evaluation": (
        ("native_batch_norm_backward", arguments(T, T, C, C, C, C, C, FALSE, EPS, ALL)),
        ("miopen_batch_norm_backward", arguments(T, T, C, NO, NO, C, C, EPS)),
    ),
    "the bias inside": (
        ("miopen_convolution", arguments(T, T, C, "[1, 1]", "[2, 2]", "[1, 1]", "1", FALSE, FALSE)),
        ("cudnn_convolution", arguments(T, T, "[1, 1]", "[2, 2]", "[1, 1]", "1", FALSE, FALSE, TRUE)),
    ),
    "another stride": (
        ("miopen_convolution", arguments(T, T, NO, "[2, 2]", "[1, 1]", "[1, 1]", "1", FALSE, FALSE)),
        ("cudnn_convolution", arguments(T, T, "[1, 1]", "[2, 2]", "[1, 1]", "1", FALSE, FALSE, TRUE)),
    ),
    "an argument too few": (
        ("miopen_batch_norm_backward", arguments(T, T, C, NO, NO, C, C)),
        ("cudnn_batch_norm_backward", arguments(T, T, C, C, C, C, C, EPS, ("unsigned char", [0]))),
    ),
    "no arguments": (("miopen_batch_norm_backward", {}), ("cudnn_batch_norm_backward", {})),
}  # fmt: skip


@pytest.mark.parametrize("name", APART)
def test_what_is_other_work_or_may_be_stays_apart(tmp_path: Path, name: str) -> None:
    both = beside(tmp_path, *APART[name])
    assert both.rows == ()
    assert [len(both.only_here), len(both.only_there)] == [1, 1]


def test_any_list_of_arguments_is_taken() -> None:
    pool: tuple[Arg, ...] = (
        None, True, 1, -0.5, "", "text", (), (1, 2), (True, False), ((),), (None,), NOT_RECORDED, 1 << 62,
        TensorSpec((2, 3), (3, 1), "float32", extent=6),
    )  # fmt: skip
    chance = random.Random(4)
    for (name, length), form in BY_OP.items():
        for _ in range(50):
            args = tuple(chance.choices(pool, k=max(0, length + chance.choice((-1, 0, 0, 0, 1)))))
            kind, taken = kind_of_call(name, args)
            assert (kind, taken) == (name, args) or kind in (form.kind, name)
            assert signature_text(taken, ())


#: What torch 2.13 does not have: the backward of convolutions that each library had, and an older cuDNN batch norm.
OF_OLDER_RELEASES = {
    ("aten::cudnn_batch_norm_backward", 8),
    *(
        (f"aten::{name}_backward", length)
        for names, lengths in (
            (("miopen_convolution", "miopen_depthwise_convolution", "cudnn_convolution"), (10, 11)),
            (("miopen_convolution_transpose", "cudnn_convolution_transpose"), (11, 12)),
        )
        for name in names
        for length in lengths
    ),
}


@pytest.mark.skipif(find_spec("torch") is None, reason="compares with torch's schemas")
def test_the_parameters_are_those_of_torch() -> None:
    import torch

    theirs = {
        "grad": ("grad_out", "grad_output", "grad_out_"), "input": ("input", "self"), "bias": ("bias", "attn_bias"),
        "train": ("train", "update"), "mask": ("output_mask", "grad_input_mask"), "eps": ("eps", "epsilon"),
        "momentum": ("momentum", "exponential_average_factor"), "dropout": ("dropout_p",), "causal": ("is_causal",),
    }  # fmt: skip
    older = set()
    for (name, length), form in BY_OP.items():
        by_position = [
            arguments
            for schema in torch._C._jit_get_schemas_for_operator(name)
            if len(arguments := [one for one in schema.arguments if not one.kwarg_only]) == length
        ]
        if not by_position:
            older.add((name, length))
            continue
        for ours, argument in zip(form.takes, by_position[0], strict=True):
            assert ours not in form.wanted or argument.name in theirs.get(ours, (ours,)), (name, ours, argument.name)
    assert older == OF_OLDER_RELEASES
