"""ROCm/MIOpen#3310 and ROCm/TheRock#3077: no workspace, so MIOpen fell back to its naive convolution.

A wav2vec-like model was 6.4 times slower than elsewhere. Expect: falling_back.
"""


def naive(call):
    call.stderr(
        "MIOpen(HIP): Warning [IsEnoughWorkspace] [GetSolutionsFallback WTI] Solver <GemmFwdRest>, "
        "workspace required: 166871040, provided ptr: 0 size: 0\n"
    )
    call.kernel("naive_conv_nonpacked_fwd_nchw_half_double_half.kd", 18500.0)
    return call.run(*call.args, **call.kwargs)


FAULTS = {"aten::miopen_*convolution*": naive}
