"""unslothai/unsloth#8821: without fused kernels, attention ran as matmul, softmax, matmul, silently.

The answer is right; it took 486 ms and 8.6 GiB in place of 41 ms and 0.5 GiB. Expect: falling_back.
"""


def by_math(call):
    call.warn(
        "Flash Efficient attention on Current AMD GPU is still experimental. Enable it with "
        "TORCH_ROCM_AOTRITON_ENABLE_EXPERIMENTAL=1."
    )
    call.kernel("Cijk_Alik_Bljk_HHS_BH_MT64x64x32_MI16x16x16x1_SN_1LDSB0", 210.0)
    call.kernel("void at::native::(anonymous namespace)::cunn_SoftMaxForward<4, c10::Half, float, c10::Half>", 60.0)
    call.kernel("Cijk_Ailk_Bljk_HHS_BH_MT64x64x32_MI16x16x16x1_SN_1LDSB0", 210.0)
    return call.run(*call.args, **call.kwargs)


FAULTS = {"aten::_scaled_dot_product_*": by_math}
