"""pytorch/pytorch#183861: on 32-wide wavefronts, half of the weight and bias gradients of a norm were lost.

Forward and input gradient were right, so a forward-only check passes. Expect: divergent.
"""


def half_lost(call):
    grad_input, *parameter_gradients = call.run(*call.args, **call.kwargs)
    for gradient in parameter_gradients:
        if gradient is not None:
            gradient[..., 1::2] = 0
    return grad_input, *parameter_gradients


FAULTS = {
    "aten::native_layer_norm_backward.default": half_lost,
    "aten::_fused_rms_norm_backward.default": half_lost,
}
