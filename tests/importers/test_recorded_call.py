"""Which overload a recorded call was, and what of it goes by keyword."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from audit.codec import signature_text
from audit.importers.kineto import read_recording
from audit.importers.recorded_call import recorded_call
from audit.report.repro import repro_script
from audit.rules.judge import judge
from audit.rules.side_by_side import side_by_side
from audit.schema import NOT_RECORDED, Arg, Case, Named, TensorSpec
from tests.importers.recorded import kernel, op, trace

X = TensorSpec((2, 3), (3, 1), "float32", extent=6)
F, S, L, NONE = "float", "Scalar", "ScalarList", ""
OUT = ("out", X)


@pytest.mark.parametrize(
    ("base", "words", "args", "expected"),
    [
        ("add", (F, F, S), (X, X, 1), ("add.Tensor", (X, X), ())),
        ("add", (F, F, S), (X, X, -0.5), ("add.Tensor", (X, X), (("alpha", -0.5),))),
        ("add", (F, S, S), (X, 2, 1), ("add.Scalar", (X, 2, 1), ())),
        ("add", (F, "double", S), (X, X, 1), ("add.Tensor", (X, X), ())),
        ("mul", (F, F, F), (X, X, X), ("mul.out", (X, X), (OUT,))),
        ("mm", (F, F, F), (X, X, X), ("mm.out", (X, X), (OUT,))),
        ("pow", (F, S), (X, 2), ("pow.Tensor_Scalar", (X, 2), ())),
        ("pow", (S, F), (2, X), ("pow.Scalar", (2, X), ())),
        ("mean", (F, L, S, NONE), (X, (-1,), True, None), ("mean.dim", (X, (-1,), True), ())),
        ("mean", (F, S), (X, 6), ("mean.default", (X,), (("dtype", Named("dtype", "float32")),))),
        ("clone", (F, S), (X, 2),
         ("clone.default", (X,), (("memory_format", Named("memory_format", "channels_last")),))),
        ("clone", (F, NONE), (X, None), ("clone.default", (X,), ())),
        ("arange", (S, S, NONE, NONE, NONE, S), (0, 9, None, None, None, False),
         ("arange.start", (0, 9), (("pin_memory", False),))),
        ("gelu", (F, NONE), (X, None), ("gelu.default", (X,), (("approximate", NOT_RECORDED),))),
        ("_foreach_add_", ("TensorList", "TensorList", S), ((X,), (X,), 1), ("_foreach_add_.List", ((X,), (X,)), ())),
        ("sum", (F, L, S, "Device"), (X, (0,), False, None), ("sum", (X, (0,), False, None), ())),
    ],
)  # fmt: skip
def test_one_overload_takes_such_arguments(
    base: str, words: tuple[str, ...], args: tuple[Arg, ...], expected: tuple[str, object, object]
) -> None:
    found, positional, keywords = recorded_call(f"aten::{base}", words, args)
    assert (found.removeprefix("aten::"), positional, keywords) == expected


@pytest.mark.parametrize(
    ("base", "words", "args"),
    [
        ("max", (F, F), (X, X)),  # max.other, or max.unary_out
        ("upsample_nearest1d", (F, L, NONE), (X, (4,), None)),  # .default, or .vec
        ("add", (F, F), (X, X)),  # of no release that is known
        ("add", (), ()),  # record_shapes was off
        ("add", (F, S), (X,)),
        ("add", ("", "", ""), (None, None, None)),
        ("no_such_op", (F,), (X,)),
        ("add", (F,) * 70, (X,) * 70),
    ],
)
def test_what_may_be_several_or_none_stays_as_it_was_written(
    base: str, words: tuple[str, ...], args: tuple[Arg, ...]
) -> None:
    assert recorded_call(f"aten::{base}", words, args) == (f"aten::{base}", args, ())


def test_a_number_that_is_no_constant_stays_one() -> None:
    assert recorded_call("aten::clone", (F, S), (X, 77)) == ("aten::clone.default", (X,), (("memory_format", 77),))


def test_any_words_are_taken() -> None:
    chance = random.Random(7)
    words = (F, S, L, NONE, "TensorList", "GenericList", "OptionalTensorList", "Device", "c10::Half", "§", "float ")
    values: tuple[Arg, ...] = (None, X, (X,), 3, -1, 2.5, True, (), (1, 2), "text", NOT_RECORDED, 1 << 62)
    for base in ("add", "sum", "mean", "clone", "to", "_to_copy", "max", "index_put", "div", "randn", "full", "cat"):
        for _ in range(200):
            n = chance.randrange(8)
            args = tuple(chance.choices(values, k=n))
            found, positional, keywords = recorded_call(f"aten::{base}", tuple(chance.choices(words, k=n)), args)
            assert found.startswith(f"aten::{base}")
            assert signature_text(positional, keywords) or not args


def test_a_math_path_has_a_script_that_torch_can_call(tmp_path: Path) -> None:
    """Arguments that go by keyword alone do so in the case."""
    words = ["c10::BFloat16"] * 3 + [NONE, S, S, S, S]
    arguments = {
        "Input Dims": [[1, 8, 64, 64]] * 3 + [[]] * 5,
        "Input type": words,
        "Concrete Inputs": ["", "", "", "", "0.", "False", "0.125", "False"],
    }
    run = read_recording(
        trace(tmp_path / "t.json", op("aten::scaled_dot_product_attention", 10, 8, 7, **arguments),
              op("aten::_scaled_dot_product_attention_math", 11, 6, 8), kernel("k", 20, 5, 0, 8))
    )  # fmt: skip
    (case,), (verdict,) = run.cases, judge(run).verdicts
    assert verdict.status == "falling_back"
    script = repro_script(case, verdict, run.header)
    assert "return [t[0], t[1], t[2], None, 0.0, False], {'scale': 0.125}" in script


def test_a_tracers_call_and_a_profilers_meet(tmp_path: Path) -> None:
    """The one leaves out what the other writes down as it would be without."""
    arguments = {
        "Input Dims": [[2, 3], [2, 3], []],
        "Input type": [F, F, S],
        "Concrete Inputs": ["", "", "1"],
    }
    path = trace(tmp_path / "t.json", op("aten::mse_loss", 10, 8, 7, **arguments), kernel("k", 20, 5, 0, 7))
    imported = read_recording(path)
    (case,) = imported.cases
    traced = Case(case.key, case.op, case.args[:2])
    replayed = type(imported)(imported.header, (traced,), imported.measurements)
    assert [row.n_here for row in side_by_side(imported, replayed).rows] == [1]
