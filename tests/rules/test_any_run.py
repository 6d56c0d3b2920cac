"""Judging never raises and never loses a case, whatever a run file holds."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Mapping
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from audit.codec import decode, encode
from audit.comparison import (
    ChanceTest,
    CoarsePart,
    Comparison,
    Distribution,
    Explanation,
    Sketch,
    SketchScale,
    TensorFact,
)
from audit.places import IndexRun, IndexSet, Places
from audit.rules.codes import CODES
from audit.rules.judge import judge
from audit.rules.remedies import plan
from audit.run_records import UNCHANGED, Alternative, Change, PreflightCheck, Run, RunEnd, RunHeader, Trial
from audit.schema import (
    EVIDENCE_BY_BACKEND,
    STATUSES,
    Backend,
    Case,
    Copy,
    DeviceInfo,
    Kernel,
    Measurement,
    Outcome,
    Path,
    Source,
    TensorSpec,
    Timing,
)

OPS = (
    "aten::mm.default",
    "aten::convolution.default",
    "aten::scaled_dot_product_attention.default",
    "aten::_scaled_dot_product_attention_math.default",
    "aten::lstm.input",
    "aten::empty.memory_format",
    "aten::cudnn_convolution.default",
    "my::op.default",
    "",
)
KERNELS = ("Cijk_Ailk_Bljk_BBS_BH_MT32", "naive_conv_fwd", "Memcpy DtoH (Device -> Pinned)", "Im2d2Col", "", "x")
TEXTS = ("", "nan", "1.5", "(1+2j)", "HIP error: invalid device function", "the time budget was spent", "a\nb")
DTYPES = ("float32", "bfloat16", "float8_e4m3fn", "complex64", "bool", "")
INTEGERS = st.integers(-2, 2**40)
SPECIAL: Mapping[type, st.SearchStrategy[Any]] = {
    int: INTEGERS,
    str: st.sampled_from(TEXTS),
    float: st.floats().map(lambda value: value + 0.0),  # -0.0 is written as the default 0.0
    bool: st.booleans(),
}


def _strategy(hint: Any, name: str) -> st.SearchStrategy[Any]:
    """Values for a field, by its type and where it matters by its name."""
    if name in ("op", "chosen_ops"):
        return st.sampled_from(OPS) if hint is str else st.lists(st.sampled_from(OPS), max_size=3).map(tuple)
    if name == "dtype":
        return st.sampled_from(DTYPES)
    if hint in SPECIAL:
        return SPECIAL[hint]
    if dataclasses.is_dataclass(hint):
        return _built(typing.cast(type, hint), "kernel" if hint is Kernel else "")
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Literal:
        return st.sampled_from(inner)
    if origin is tuple:
        return st.lists(_strategy(inner[0], ""), max_size=3).map(tuple)
    return st.one_of([st.none() if part is type(None) else _strategy(part, "") for part in inner])


def _built(cls: type, kind: str = "") -> st.SearchStrategy[Any]:
    hints = typing.get_type_hints(cls)
    fields = {f.name: _strategy(hints[f.name], f.name) for f in dataclasses.fields(cls)}
    if kind == "kernel":
        fields["name"] = st.sampled_from(KERNELS)
    return st.builds(cls, **fields)


TENSORS = st.builds(TensorSpec, st.just((2, 2)), st.just((2, 1)), st.sampled_from(DTYPES))
ARGS = st.one_of(st.none(), st.booleans(), st.integers(-1, 4), TENSORS, st.just((2, 2)), st.just("same"))


@st.composite
def runs(draw: st.DrawFn) -> Run:
    keys = [f"k-{i}" for i in range(draw(st.integers(0, 3)))]
    cases = tuple(
        Case(
            key,
            draw(st.sampled_from(OPS)),
            tuple(draw(st.lists(ARGS, max_size=10))),
            (("groups", draw(ARGS)), ("dilation", draw(ARGS))),
            n_calls=draw(st.integers(1, 10**6)),
        )
        for key in keys
    )
    measured = draw(st.lists(st.sampled_from(keys), unique=True)) if keys else []
    measurements = {key: dataclasses.replace(draw(_built(Measurement)), key=key) for key in measured}
    backend: Backend = draw(st.sampled_from(sorted(EVIDENCE_BY_BACKEND)))
    arch = draw(st.sampled_from(("gfx942", "gfx90a", "gfx1151", "gfx1031", "sm_90", "sim", "")))
    header = RunHeader(
        EVIDENCE_BY_BACKEND[backend],
        Source("script", "x.py"),
        DeviceInfo(backend, draw(st.sampled_from(TEXTS)), arch),
        {"hip": draw(st.sampled_from(("", "7.2.1", "x")))},
        {},
        "now",
        "0",
        len(cases),
        len(cases),
        preflight=tuple(draw(st.lists(_built(PreflightCheck), max_size=2))),
    )
    started = frozenset(key for key in keys if key not in measurements and draw(st.booleans()))
    tried = {key: draw(_alternatives(key)) for key in measured}
    return Run(header, cases, measurements, started, draw(st.none() | _built(RunEnd)), (), tried)


@st.composite
def _alternatives(draw: st.DrawFn, key: str) -> tuple[Alternative, ...]:
    names = draw(st.lists(st.sampled_from((UNCHANGED, "contiguous", "float32", "other")), max_size=3, unique=True))
    changes = st.builds(
        Change,
        st.sampled_from((None, (), (("torch.backends.cudnn.enabled", False), ("a b", "x")))),
        st.sampled_from((None, "contiguous", "channels_last")),
        st.sampled_from((None, "float32")),
    )
    return tuple(
        Alternative(
            Trial(key, name, draw(st.sampled_from(TEXTS)), draw(changes)),
            dataclasses.replace(draw(_built(Measurement)), key=key),
        )
        for name in names
    )


@settings(max_examples=100, deadline=None)
@given(runs())
def test_any_run_is_judged_whole(run):
    judgement = judge(run)
    assert [verdict.key for verdict in judgement.verdicts] == [case.key for case in run.cases]
    for verdict in judgement.verdicts:
        assert verdict.status in STATUSES
        assert {finding.code for finding in verdict.findings} <= CODES.keys()
        assert all(finding.message for finding in verdict.findings)
        expected = {f.status for f in verdict.findings} | {"supported"}
        assert verdict.status in expected
        assert len(verdict.tried) == len(run.alternatives.get(verdict.key, ()))
    for case, trials in plan(judgement, 20):
        assert case in run.cases
        assert trials
    for total in judgement.coverage[:3]:
        assert set(total.by_status) == set(STATUSES)
        assert sum(total.by_status.values()) == total.total
    judged, inconclusive = (
        sum(verdict.status != "inconclusive" for verdict in judgement.verdicts),
        judgement.coverage[0].by_status["inconclusive"],
    )
    assert judged + inconclusive == len(run.cases)
    if judgement.run.header.evidence != "measured":
        assert judgement.headline.startswith("not measured on AMD: ")


@settings(max_examples=50, deadline=None)
@given(_built(Measurement))
def test_the_strategy_makes_what_a_run_file_can_hold(measurement):
    """Guards the test above: every generated measurement survives the codec, NaN being unequal to itself aside."""
    again = decode(Measurement, encode(measurement))
    assert repr(again) == repr(measurement)


def test_the_strategy_covers_every_class_inside_a_measurement():
    """A field of a new class would otherwise be left at nothing."""
    inside = {Outcome, Comparison, Path, Timing, TensorFact, Kernel, Copy, Sketch, SketchScale}
    inside |= {Explanation, Places, IndexSet, IndexRun, ChanceTest, Distribution, CoarsePart}
    seen: set[type] = set()

    def walk(cls: type) -> None:
        for hint in typing.get_type_hints(cls).values():
            for part in (hint, *typing.get_args(hint)):
                if dataclasses.is_dataclass(part) and part not in seen:
                    seen.add(typing.cast(type, part))
                    walk(typing.cast(type, part))

    walk(Measurement)
    assert seen == inside
