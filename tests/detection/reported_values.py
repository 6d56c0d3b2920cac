"""Reports whose condition is a dtype, the values, or the phase."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from audit.device.sim.faults import Call
from tests.detection.fault import Fault, healthy, instead, normal, replaced, with_argument
from tests.detection.reported_strides import FUSED, HALF

# --- dtypes: A02, A06, A23 ----------------------------------------------------------------------------------------


def _half_in_backward(call: Call) -> bool:
    return call.phase == "backward" and call.args[0].dtype == torch.float16


def _through_bfloat16(call: Call) -> Any:
    """The MI200 alternate: operands lose three bits on their way into the matrix units."""
    return call.run(*(x.to(torch.bfloat16).to(torch.float16) for x in call.args[:2]))


def _half_gradients(dtype: torch.dtype) -> None:
    weight = normal(64, 48, dtype=dtype, seed=1).requires_grad_()
    (normal(32, 64, dtype=dtype) @ weight).square().mean().backward()


def _two_steps_off(call: Call) -> Any:
    """Winograd F(2, 3) in half: errors of up to two spacings of the output, in either direction."""
    out = healthy(call)
    steps = torch.arange(out.numel()).reshape(out.shape) % 5 - 2
    spacing = torch.finfo(out.dtype).eps * 2.0 ** out.abs().clamp(min=2**-14).log2().floor()
    return out + (steps * spacing).to(out.dtype)


def _depthwise(dtype: torch.dtype) -> torch.Tensor:
    image, weight = normal(2, 32, 16, 16, dtype=dtype), normal(32, 1, 3, 3, dtype=dtype, seed=1)
    return F.conv2d(image, weight, padding=1, groups=32)


def _fifth_power_of_bytes(call: Call) -> bool:
    return call.args[0].dtype == torch.int8 and call.args[1] == 5


def _truncated_float_power(call: Call) -> Any:
    base = call.args[0].double()
    return (base.abs() ** 5 * (1 - 1e-7) * base.sign()).to(torch.int8)


def _fifth_power(dtype: torch.dtype) -> torch.Tensor:
    base = torch.randint(-2, 3, (5, 5, 5), generator=torch.Generator().manual_seed(0))
    return base.to(dtype) ** 5


# --- values: A11, A14, A24 ----------------------------------------------------------------------------------------

LOWEST = torch.finfo(torch.float16).min


def _fully_masked_rows(call: Call) -> bool:
    bias = call.args[3]
    return bias is not None and bias.dtype == torch.float16 and bool((bias <= LOWEST).all(-1).any())


def _mask_of_padded_sequences_is_lost(call: Call) -> Any:
    bias = call.args[3]
    padded = (bias <= LOWEST).all(-1).any(-1)[..., None, None]
    return with_argument(call, 3, bias.masked_fill(padded, 0))


def _causal(n_padded: int) -> torch.Tensor:
    """Two sequences of seven, the second padded on the left."""
    allowed = torch.ones(7, 7, dtype=torch.bool).tril().repeat(2, 1, 1, 1)
    allowed[1, ..., :n_padded] = False
    mask = torch.zeros(2, 1, 7, 7, dtype=torch.float16).masked_fill(~allowed, LOWEST)
    query, key, value = (normal(2, 4, 7, 64, dtype=torch.float16, seed=seed) for seed in range(3))
    return F.scaled_dot_product_attention(query, key, value, attn_mask=mask)


def _large_products(call: Call) -> bool:
    query, key = call.args[:2]
    return query.dtype in HALF and float(query.abs().max()) * float(key.abs().max()) > 1e9


def _nan_rows(result: Any) -> Any:
    out = result[0].clone()
    out[..., ::2, :] = torch.nan
    return replaced(result, 0, out)


def _images(sizes: tuple[float, ...]) -> None:
    """One layer over several images, of which a single one reaches far."""
    value = normal(1, 2, 128, 72, dtype=torch.bfloat16, seed=9)
    for seed, size in enumerate(sizes):
        query = normal(1, 2, 128, 72, dtype=torch.bfloat16, seed=seed) * size
        F.scaled_dot_product_attention(query, query, value)


def _constant_feature(call: Call) -> bool:
    x, training = call.args[0], call.args[5]
    return bool(training) and x.dim() == 2 and bool((x.amax(0) == x.amin(0)).any())


def _nan_feature(call: Call) -> Any:
    x, result = call.args[0], healthy(call)
    return replaced(result, 0, result[0].masked_fill(x.amax(0) == x.amin(0), torch.nan))


def _batch_norm(constant: bool) -> torch.Tensor:
    x = normal(64, 512)
    if constant:
        x[:, 17] = 0.25
    return F.batch_norm(x, None, None, torch.ones(512), torch.zeros(512), training=True)


# --- phases: A09 --------------------------------------------------------------------------------------------------


def _wide_rows(call: Call) -> bool:
    return int(call.args[2][-1]) > 32


def _half_of_the_rows(*affine: int) -> Any:
    """Every second row is lost where the gradients of weight and bias are summed up."""

    def effect(call: Call) -> Any:
        result = healthy(call)
        gradient = call.args[0].clone()
        gradient[1::2] = 0
        partial = with_argument(call, 0, gradient)
        for position in affine:
            result = replaced(result, position, partial[position])
        return result

    return effect


def _layer_norm(features: int) -> None:
    norm = torch.nn.LayerNorm(features)
    x = normal(16, features).requires_grad_()
    (norm(x) * normal(16, features, seed=1)).sum().backward()


def _rms_norm(features: int) -> None:
    norm = torch.nn.RMSNorm(features)
    x = normal(16, features).requires_grad_()
    (norm(x) * normal(16, features, seed=1)).sum().backward()


FAULTS = (
    Fault(
        "A02", "fp16 product in a backward pass, through bf16 as on MI200: documented", ("aten::mm.default",),
        _half_in_backward, _through_bfloat16,
        lambda: _half_gradients(torch.float16), lambda: _half_gradients(torch.float32), "float32",
    ),
    Fault(
        "A06", "fp16 depthwise 3x3, Winograd: two spacings off (false alarm)",
        ("aten::miopen_depthwise_convolution.default",),
        lambda call: call.args[0].dtype == torch.float16, _two_steps_off,
        lambda: _depthwise(torch.float16), lambda: _depthwise(torch.float32), "float32",
        expected="supported", codes=(),
    ),
    Fault(
        "A09", "gradients of weight and bias of layer_norm, more than 32 features",
        ("aten::native_layer_norm_backward.default",),
        _wide_rows, _half_of_the_rows(1, 2),
        lambda: _layer_norm(64), lambda: _layer_norm(32), "32 features",
    ),
    Fault(
        "A09b", "gradient of the weight of rms_norm, more than 32 features",
        ("aten::_fused_rms_norm_backward.default",),
        _wide_rows, _half_of_the_rows(1),
        lambda: _rms_norm(64), lambda: _rms_norm(32), "32 features",
    ),
    Fault(
        "A11", "fp16 attention with an additive mask of 0 and -65504 and fully masked rows", FUSED[1:],
        _fully_masked_rows, _mask_of_padded_sequences_is_lost,
        lambda: _causal(3), lambda: _causal(0), "no row fully masked",
    ),
    Fault(
        "A14", "bf16 attention, products near 1e10: NaN in the one of eight calls that reaches so far", FUSED,
        _large_products, instead(_nan_rows),
        lambda: _images((1, 1, 1, 1, 1, 1, 1, 133120.0)), lambda: _images((1, 1, 1, 1, 1, 1, 1, 1000.0)),
        "magnitudes of 1,000", scaled="128 tokens for 4,096",
    ),
    Fault(
        "A23b", "int8 to the power of 5", ("aten::pow.Tensor_Scalar",),
        _fifth_power_of_bytes, _truncated_float_power,
        lambda: _fifth_power(torch.int8), lambda: _fifth_power(torch.int32), "int32",
    ),
    Fault(
        "A24", "batch norm (64, 512) in training, one feature constant: NaN", ("aten::miopen_batch_norm.default",),
        _constant_feature, _nan_feature,
        lambda: _batch_norm(constant=True), lambda: _batch_norm(constant=False), "no feature constant",
    ),
)  # fmt: skip
