"""Kernel names to libraries."""

from __future__ import annotations

import pytest

from audit.knowledge.kernels import UNKNOWN_KERNEL, classify_kernel


@pytest.mark.parametrize(
    ("name", "library", "signal"),
    [
        ("Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT64x32x256_MI16x16x1", "hipBLASLt (TensileLite)", "none"),
        ("Cijk_Ailk_Bljk_BBS_BH_MT32x64x64_MI16x16x16x1_SN", "rocBLAS (Tensile)", "none"),
        ("naive_conv_ab_nonpacked_fwd_nchw_ushort_double_ushort", "MIOpen (ConvDirectNaiveConv*)", "naive"),
        ("Im2d2Col_v2", "MIOpen (GemmFwdRest im2col)", "slow"),
        ("batched_transpose_32x32_half", "MIOpen (layout transform)", "layout"),
        ("attn_fwd", "AOTriton", "none"),
        ("Memcpy DtoH (Device -> Pinned)", "HIP/CUDA runtime", "host_sync"),
        ("nvjet_tst_64x64_64x16_2x1_2cta_v_bz_bias_TNT", "cuBLASLt", "none"),
        ("MIOpenBatchNormFwdTrainSpatialMeanVariance", "MIOpen (batchnorm)", "none"),
    ],
)
def test_names_from_real_traces_tell_their_library(name, library, signal):
    kernel = classify_kernel(name)
    assert (kernel.library, kernel.signal) == (library, signal)


def test_a_word_alone_is_no_library():
    kernel = classify_kernel("my_own_gemm_v2")
    assert (kernel.library, kernel.category) == (None, "gemm")


def test_an_unheard_of_name_is_unknown():
    assert classify_kernel("zzz") is UNKNOWN_KERNEL


def test_the_more_particular_pattern_comes_first():
    """A TensileLite name fits the rocBLAS pattern and the split-K pattern, too."""
    assert classify_kernel("Cijk_Ailk_Bljk_HHS_BH_UserArgs_GG").library == "hipBLASLt (TensileLite)"
