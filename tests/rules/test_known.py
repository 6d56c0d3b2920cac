"""Findings annotated with documented behaviours."""

from __future__ import annotations

import dataclasses

from audit.comparison import Explanation
from audit.rules.known import annotate
from audit.verdicts import Finding

BEYOND = Finding("NUM201", "divergent", "off")


def _half(build, op="aten::addmm.default"):
    return build.case(op, build.tensor(4, 4, dtype="float16"))


def test_half_precision_gemm_on_mi200_is_explained_by_its_denormals(build):
    known = annotate(BEYOND, _half(build), None, "gfx90a").known
    assert known is not None
    assert "denormal" in known.title
    assert "ROCBLAS_INTERNAL_FP16_ALT_IMPL" in known.remedy
    assert known.link.startswith("https://")


def test_a_behaviour_with_a_shape_is_a_guess_where_nothing_was_measured_to_tell(build):
    known = annotate(BEYOND, _half(build), None, "gfx90a").known
    assert known is not None
    assert known.title.startswith("perhaps: ")
    off = dataclasses.replace(BEYOND, data={"output": "output 0"})
    explanations = {
        0.01: (Explanation("subnormals-flushed", 9, 0, 0.01, 1.0),),
        0.99: (Explanation("subnormals-flushed", 9, 9, 0.99, 0.1),),
    }
    measured = {left: build.measurement(build.comparison(explanations=e)) for left, e in explanations.items()}
    seen = annotate(off, _half(build), measured[0.01], "gfx90a").known
    assert seen is not None
    assert not seen.title.startswith("perhaps")
    assert annotate(off, _half(build), measured[0.99], "gfx90a").known is None


def test_the_finding_keeps_its_code_status_and_message(build):
    annotated = annotate(BEYOND, _half(build), None, "gfx90a")
    assert dataclasses.replace(annotated, known=None) == BEYOND


def test_another_arch_dtype_op_or_code_is_not_explained_by_it(build):
    single = build.case("aten::addmm.default", build.tensor(4, 4, dtype="float64"))
    assert annotate(BEYOND, _half(build), None, "gfx942").known is None
    assert annotate(BEYOND, single, None, "gfx90a").known is None
    assert annotate(BEYOND, _half(build, "aten::sin.default"), None, "gfx90a").known is None
    assert annotate(Finding("NUM205", "divergent", ""), _half(build), None, "gfx90a").known is None


def test_nothing_on_the_simulated_device_is_explained_by_hardware(build):
    assert annotate(BEYOND, _half(build), None, "sim").known is None


def test_an_op_that_ran_inside_can_explain_a_composite(build):
    case = build.case("aten::transformer_layer.default", build.tensor(2, 2, dtype="bfloat16"))
    path = dataclasses.replace(build.watched, chosen_ops=("aten::_scaled_dot_product_flash_attention.default",))
    known = annotate(Finding("NUM202", "divergent", ""), case, build.measurement(path=path), "gfx942").known
    assert known is not None
    assert known.link == "https://github.com/ROCm/aotriton/issues/54"


def test_a_report_says_for_what_it_was_made(build):
    case = build.case("aten::mm.default", build.tensor(4, 4, dtype="float64"))
    known = annotate(Finding("SUP102", "unsupported", ""), case, None, "gfx1102").known
    assert known is not None
    assert "(reported for: float64 1000x1000" in known.title


def test_findings_about_the_audit_are_not_explained_by_the_device(build):
    finding = Finding("INC903", "inconclusive", "")
    assert annotate(finding, _half(build), None, "gfx90a") is finding
