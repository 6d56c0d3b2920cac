"""FBK302, FBK303, FBK305, FBK306: chosen ops and kernels."""

from __future__ import annotations

import pytest

from audit.schema import Kernel, Path

ROCBLAS = "Cijk_Ailk_Bljk_BBS_BH_MT32x64x64_MI16x16x16x1_SN_1LDSB0"
HIPBLASLT = "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT64x32x256_MI16x16x1_SN"
NAIVE = "naive_conv_ab_nonpacked_fwd_nchw_ushort_double_ushort"


def _path(chosen: tuple[str, ...] = (), *kernels: Kernel) -> Path:
    return Path(observed=True, complete=True, chosen_ops=chosen, kernels=kernels)


@pytest.mark.parametrize(
    ("op", "chosen"),
    [
        ("aten::scaled_dot_product_attention.default", "aten::_scaled_dot_product_attention_math.default"),
        ("aten::convolution.default", "aten::_slow_conv2d_forward.default"),
        ("aten::convolution_backward.default", "aten::slow_conv_transpose3d.default"),
        ("aten::lstm.input", "aten::_thnn_fused_lstm_cell.default"),
    ],
)
def test_a_fallback_op_inside_is_falling_back_and_named(build, op, chosen):
    [finding] = build.findings(build.measurement(path=_path((chosen,))), build.case(op))
    assert (finding.code, finding.status) == ("FBK302", "falling_back")
    assert chosen in finding.message


def test_a_fallback_that_the_program_itself_forced_is_one_whose_message_names_the_switch(build):
    case = build.case(
        "aten::scaled_dot_product_attention.default",
        settings=(("torch.backends.cuda.enable_flash_sdp", False),),
    )
    path = _path(("aten::_scaled_dot_product_attention_math.default",))
    [finding] = build.findings(build.measurement(path=path), case)
    assert (finding.code, finding.status) == ("FBK302", "falling_back")
    assert finding.message.endswith("the program had switched torch.backends.cuda.enable_flash_sdp off")
    assert finding.data["remedy"] == "leave torch.backends.cuda.enable_flash_sdp on"


def test_a_ctc_loss_for_which_cudnn_was_switched_off_is_no_fallback(build):
    case = build.case("aten::ctc_loss.Tensor", settings=(("torch.backends.cudnn.enabled", False),))
    assert build.findings(build.measurement(path=_path(("aten::_ctc_loss.Tensor",))), case) == []


def test_an_attention_that_went_to_math_quotes_why_the_fused_kernels_refused(build):
    path = Path(
        observed=True,
        complete=True,
        chosen_ops=("aten::_scaled_dot_product_attention_math.default",),
        refusals=("flash attention: it takes no mask", "memory-efficient attention: a mask of bool"),
    )
    [finding] = build.findings(build.measurement(path=path), build.case("aten::scaled_dot_product_attention.default"))
    assert finding.message.endswith(
        "refused: flash attention: it takes no mask; memory-efficient attention: a mask of bool"
    )


@pytest.mark.parametrize(
    ("op", "chosen"),
    [
        ("aten::scaled_dot_product_attention.default", "aten::_scaled_dot_product_flash_attention.default"),
        ("aten::convolution.default", "aten::miopen_convolution.default"),
        ("aten::mm.default", "aten::_scaled_dot_product_attention_math.default"),
    ],
)
def test_the_expected_op_and_a_fallback_of_something_else_are_no_finding(build, op, chosen):
    assert build.codes(build.measurement(path=_path((chosen,))), build.case(op)) == []


def test_an_rnn_with_cells_beside_the_library_call_took_the_library(build):
    chosen = ("aten::miopen_rnn.default", "aten::_thnn_fused_lstm_cell.default")
    assert build.codes(build.measurement(path=_path(chosen)), build.case("aten::lstm.input")) == []


def test_a_fallback_op_called_by_the_program_itself_is_what_it_asked_for(build):
    op = "aten::_scaled_dot_product_attention_math.default"
    assert build.codes(build.measurement(path=_path((op,))), build.case(op)) == []


def test_a_naive_kernel_is_falling_back_with_its_share_of_the_time(build):
    path = _path((), Kernel(NAIVE, 75.0), Kernel("SubTensorOpWithScalar1d", 25.0))
    [finding] = build.findings(build.measurement(path=path), build.case("aten::convolution.default"))
    assert (finding.code, finding.status) == ("FBK303", "falling_back")
    assert "75 % of its device time" in finding.message
    assert finding.data["kernel"] == NAIVE


def test_im2col_is_a_fallback_inside_a_convolution_and_the_work_itself_in_unfold(build):
    path = _path((), Kernel("Im2d2Col_v2", 5.0))
    assert build.codes(build.measurement(path=path), build.case("aten::convolution.default")) == [
        ("FBK303", "falling_back")
    ]
    assert build.codes(build.measurement(path=path), build.case("aten::im2col.default")) == []


def test_a_layout_change_is_a_note_told_once(build):
    path = _path((), Kernel("batched_transpose_32x32_half", 5.0), Kernel("batched_transpose_16x32_half", 4.0))
    assert build.codes(build.measurement(path=path), build.case("aten::convolution.default")) == [
        ("FBK303", "supported")
    ]


def _half_gemm(build, kernel: str, **header):
    case = build.case("aten::mm.default", build.tensor(4, 4, dtype="bfloat16"), build.tensor(4, 4, dtype="bfloat16"))
    return build.codes(build.measurement(path=_path((), Kernel(kernel, 9.0))), case, **header)


def test_rocblas_where_hipblaslt_is_the_default_is_a_lesser_blas(build):
    assert _half_gemm(build, ROCBLAS, backend="hip", arch="gfx942") == [("FBK305", "falling_back")]
    assert _half_gemm(build, HIPBLASLT, backend="hip", arch="gfx942") == []


def test_rocblas_where_hipblaslt_does_not_exist_is_the_best_there_is(build):
    assert _half_gemm(build, ROCBLAS, backend="hip", arch="gfx1030") == []


def test_hipblaslt_support_depends_on_the_rocm_version_compared_as_numbers(build):
    old, new = {"hip": "6.4.43483"}, {"hip": "7.13.60800-96e30b429c"}
    assert _half_gemm(build, ROCBLAS, backend="hip", arch="gfx1151", environment=old) == []
    assert _half_gemm(build, ROCBLAS, backend="hip", arch="gfx1151", environment=new) == [("FBK305", "falling_back")]


def test_an_unwatched_path_is_noted_not_taken_for_a_good_one(build):
    assert build.codes(build.measurement(path=Path())) == [("FBK306", "supported")]
    assert build.codes(build.measurement(path=Path(observed=True))) == [("FBK306", "supported")]


def test_no_kernel_in_an_empty_profile_is_no_fallback(build):
    assert build.codes(build.measurement(path=_path()), backend="hip") == []
