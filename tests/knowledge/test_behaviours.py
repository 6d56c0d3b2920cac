"""Known behaviours, predictions and fallback ops refer to rules and ops that exist."""

from __future__ import annotations

from audit.kernel_settings import setting
from audit.knowledge.dispatch import load_dispatch
from audit.knowledge.known_behaviours import load_behaviours
from audit.knowledge.paths import load_fallback_ops, load_predictions
from audit.knowledge.tables import matches, rows
from audit.replay.mechanisms import MECHANISMS
from audit.rules.codes import CODES


def _namespaces(op_globs):
    return {glob.split("::")[0] for glob in op_globs}


def test_behaviours_name_codes_that_exist():
    for behaviour in load_behaviours():
        for pattern in behaviour.codes:
            assert any(matches(code, (pattern,)) for code in CODES), f"{behaviour.id}: {pattern}"


def test_behaviours_and_fallbacks_name_aten_ops_that_exist():
    ops = tuple(load_dispatch())
    for entry in load_behaviours():
        if _namespaces(entry.ops) == {"aten"}:
            assert any(matches(op, entry.ops) for op in ops), entry.id
    for fallback in load_fallback_ops():
        assert any(matches(op, fallback.chosen_ops) for op in ops), fallback.meaning
        assert any(matches(op, fallback.case_ops) for op in ops), fallback.meaning


def test_settings_have_names_that_are_recorded_and_shapes_names_that_are_measured():
    steering = {row["name"] for row in rows("environment_variables.csv")}
    mechanisms = {mechanism.name for mechanism in MECHANISMS} | {"sums-in-own-dtype"}
    for behaviour in load_behaviours():
        for name in behaviour.settings:
            assert setting(name) is not None or name in steering, f"{behaviour.id}: {name}"
        assert not behaviour.shape or behaviour.shape.removeprefix("at most ") in mechanisms, behaviour.id


def test_predictions_name_codes_that_exist_and_say_what_to_read():
    for prediction in load_predictions():
        assert prediction.code in CODES
        assert prediction.link.startswith("https://")
        assert prediction.message
        assert prediction.ops
        assert prediction.archs


def test_an_empty_list_fits_everything_and_each_given_one_must_fit():
    behaviour = next(b for b in load_behaviours() if b.id == "mi200-denormals")
    assert behaviour.fits(("aten::mm.default",), "gfx90a", ("float32", "float16"))
    assert not behaviour.fits(("aten::mm.default",), "gfx90a", ("float32",))
    anywhere = next(b for b in load_behaviours() if b.id == "atomics-order")
    assert anywhere.fits(("aten::index_add_.default",), "sm_90", ())
