"""Predictions where nothing ran."""

from __future__ import annotations

import pytest

from audit.codec import contiguous_strides
from audit.rules.judge import status_of
from audit.rules.predict import predict
from audit.schema import Case, TensorSpec


def _tensor(dtype, *sizes):
    return TensorSpec(sizes or (4, 4), contiguous_strides(sizes or (4, 4)), dtype)


def _case(op, *args, dtype="float32", kwargs=()):
    return Case("k", op, args or (_tensor(dtype), _tensor(dtype)), kwargs)


def _conv(groups, dilation, dtype="float32"):
    image, weight = _tensor(dtype, 1, 4, 8, 8), _tensor(dtype, 4, 4 // groups, 3, 3)
    return _case("aten::convolution.default", image, weight, None, (1, 1), (0, 0), dilation, False, (0, 0), groups)


def _attention(mask=None, dtype="bfloat16", kwargs=()):
    query = _tensor(dtype, 1, 2, 3, 4)
    return _case("aten::scaled_dot_product_attention.default", query, query, query, mask, kwargs=kwargs)


@pytest.mark.parametrize(
    ("case", "arch", "status", "code"),
    [
        (_case("aten::mm.default"), "gfx942", "supported", "SUP120"),
        (_case("aten::add.Tensor"), "gfx1031", "supported", "SUP120"),
        (_case("aten::view.default", _tensor("float32"), (16,)), "gfx90a", "supported", "SUP120"),
        (_case("aten::cudnn_convolution.default"), "gfx942", "unsupported", "SUP121"),
        (_case("aten::_scaled_dot_product_flash_attention_for_cpu.default"), "gfx942", "unsupported", "SUP121"),
        (_case("aten::mkldnn_linear.default"), "gfx1100", "unsupported", "SUP121"),
        (_case("flash_attn::_flash_attn_forward.default"), "gfx942", "unsupported", "SUP121"),
        (_case("aten::_int_mm.default", dtype="int8"), "gfx1030", "unsupported", "SUP121"),
        (_case("aten::_int_mm.default", dtype="int8"), "gfx942", "supported", "SUP120"),
        (_case("aten::histogram.bin_ct"), "gfx942", "unsupported", "SUP123"),
        (_case("my_package::fused_thing.default"), "gfx942", "inconclusive", "INC910"),
        (_case("aten::mm.default"), "gfx1999", "inconclusive", "INC910"),
    ],
)
def test_ops_are_looked_up_by_name(case, arch, status, code):
    findings = list(predict(case, arch))
    assert status_of(findings) == status
    assert code in [finding.code for finding in findings]


@pytest.mark.parametrize(
    ("dtype", "arch", "status"),
    [
        ("float8_e4m3fn", "gfx942", "unsupported"),
        ("float8_e4m3fnuz", "gfx942", "supported"),
        ("float8_e4m3fn", "gfx950", "supported"),
        ("float8_e4m3fnuz", "gfx950", "unsupported"),
        ("float8_e4m3fn", "gfx1201", "supported"),
        ("float8_e4m3fn", "gfx90a", "unsupported"),
        ("float8_e5m2", "gfx1100", "unsupported"),
    ],
)
def test_fp8_products_follow_the_flavour_of_the_arch(dtype, arch, status):
    assert status_of(predict(_case("aten::_scaled_mm.default", dtype=dtype), arch)) == status


@pytest.mark.parametrize(
    ("case", "status"),
    [
        (_conv(1, (1, 1)), "supported"),
        (_conv(2, (1, 1)), "supported"),
        (_conv(1, (2, 2)), "supported"),
        (_conv(2, (1, 2)), "falling_back"),
        (_conv(1, (1, 1), "float64"), "falling_back"),
        (_conv(1, (1, 1), "complex64"), "falling_back"),
    ],
)
def test_convolutions_that_miopen_does_not_take_fall_back(case, status):
    assert status_of(predict(case, "gfx942")) == status


@pytest.mark.parametrize(
    ("case", "arch", "status"),
    [
        (_attention(), "gfx942", "supported"),
        (_attention(_tensor("bool", 3, 3)), "gfx942", "supported"),
        (_attention(_tensor("bfloat16", 3, 3)), "gfx942", "supported"),
        (_attention(_tensor("float32", 3, 3)), "gfx942", "falling_back"),
        (_attention(kwargs=(("attn_mask", _tensor("float32", 3, 3)),)), "gfx942", "falling_back"),
        (_attention(dtype="float64"), "gfx942", "falling_back"),
        (_attention(kwargs=(("enable_gqa", True),)), "gfx942", "supported"),
        (_attention(_tensor("bool", 3, 3), kwargs=(("enable_gqa", True),)), "gfx942", "falling_back"),
        (_attention(_tensor("bool", 3, 3), kwargs=(("enable_gqa", False),)), "gfx942", "supported"),
        (_attention(dtype="float32"), "gfx942", "supported"),
        (_attention(dtype="float32", kwargs=(("enable_gqa", True),)), "gfx942", "falling_back"),
        (_attention(TensorSpec((3, 3), (1, 3), "bfloat16")), "gfx942", "falling_back"),
        (_attention(), "gfx1201", "supported"),
        (_attention(), "gfx1151", "falling_back"),
        (_attention(), "gfx1030", "falling_back"),
    ],
)
def test_attention_is_fused_where_aotriton_has_code_and_the_mask_fits(case, arch, status):
    assert status_of(predict(case, arch)) == status


def test_a_gated_arch_is_told_the_switch():
    [finding] = [f for f in predict(_attention(), "gfx1151") if f.code == "FBK311"]
    assert finding.known is not None
    assert finding.known.remedy == "TORCH_ROCM_AOTRITON_ENABLE_EXPERIMENTAL=1"


def test_bf16_rnn_falls_back_and_fp16_does_not():
    assert status_of(predict(_case("aten::lstm.input", dtype="bfloat16"), "gfx942")) == "falling_back"
    assert status_of(predict(_case("aten::lstm.input", dtype="float16"), "gfx942")) == "supported"


def test_half_gemm_goes_to_the_lesser_blas_on_rdna3_only():
    half = _case("aten::mm.default", dtype="bfloat16")
    assert status_of(predict(half, "gfx1100")) == "falling_back"
    assert status_of(predict(half, "gfx942")) == "supported"


def test_every_finding_says_that_it_is_predicted_and_from_what():
    cases = (_case("aten::mm.default"), _conv(2, (2, 2), "float64"), _attention(), _case("aten::cudnn_rnn.default"))
    for case in cases:
        for finding in predict(case, "gfx1151"):
            assert finding.message.startswith("predicted: ")
            assert finding.data["predicted"] is True


def test_a_known_kernel_names_the_table_and_its_torch():
    [finding] = [f for f in predict(_case("aten::mm.default"), "gfx942") if f.code == "SUP120"]
    assert finding.message == "predicted: runs: kernel mm_out_cuda is shared by CUDA and ROCm builds"
    assert finding.data["source"] == "native_functions.yaml of the torch wheel 2.13.0"


def test_each_code_is_said_once_for_a_case():
    codes = [f.code for f in predict(_conv(2, (2, 2), "float64"), "gfx942")]
    assert codes.count("FBK312") == 1


def test_reports_near_a_case_are_notes_with_a_link(build):
    found = [f for f in predict(_attention(), "gfx942") if f.code == "SUP124"]
    assert found
    assert all(f.status == "supported" and f.known is not None and f.known.link for f in found)


def test_a_predicted_run_is_judged_by_predictions_alone(build):
    case = build.case("aten::cudnn_convolution.default")
    judgement = build.judgement((case,), (build.measurement(),), backend="none")
    [verdict] = judgement.verdicts
    assert [f.code for f in verdict.findings] == ["SUP121"]
    assert (verdict.device_us, verdict.library) == (None, None)
