"""A healthy simulated device computes what the CPU does, picks ops as HIP does, and keeps the device contract."""

from __future__ import annotations

import ctypes
import itertools
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from audit.device import hostmemory
from audit.device.failure import NotSimulatedError, classify
from audit.device.fused_attention import result_strides, with_strides
from audit.device.sim.backend import SimTensor
from audit.device.sim.device import SimDevice
from audit.schema import Copy
from tests.device.healthy_calls import ARITHMETIC, EXACT, HealthyCall

pytestmark = pytest.mark.usefixtures("simulated_device")

aten = torch.ops.aten

#: Rounding units of the coarsest dtype in a call that forward and backward may differ by in these small cases.
_UNITS = 64


@pytest.fixture
def device() -> SimDevice:
    return SimDevice()


def on_sim(tensor: torch.Tensor) -> torch.Tensor:
    return SimTensor(tensor.clone())


def _first(result: Any) -> torch.Tensor:
    first: torch.Tensor = result[0] if isinstance(result, tuple) else result
    return first


def _with_gradients(call: HealthyCall, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    """The first result and the gradients of its weighted sum."""
    leaves = [t.requires_grad_(t.is_floating_point()) for t in tensors]
    out = _first(call.function(*leaves))
    if not out.requires_grad:
        return [out]
    weights = torch.linspace(-1, 1, out.numel(), dtype=torch.float64).reshape(out.shape).to(out.dtype).to(out.device)
    grads = torch.autograd.grad(out, leaves, weights, allow_unused=True)
    return [out, *(grad for grad in grads if grad is not None)]


@pytest.mark.parametrize("call", [*ARITHMETIC, *EXACT], ids=lambda call: call.name)
def test_a_healthy_call_agrees_with_the_cpu_forward_and_backward(call: HealthyCall, device: SimDevice) -> None:
    expected = _with_gradients(call, [t.clone() for t in call.tensors])
    actual = _with_gradients(call, [on_sim(t) for t in call.tensors])
    assert len(actual) == len(expected)
    unit = _UNITS * max(torch.finfo(t.dtype).eps for t in call.tensors)
    for ours, theirs in zip(actual, expected, strict=True):
        assert ours.device.type == "sim"
        torch.testing.assert_close(
            device.to_host(ours), theirs.detach(), rtol=unit, atol=unit * max(1.0, float(theirs.detach().abs().max()))
        )


@pytest.mark.parametrize("call", [*ARITHMETIC, *EXACT], ids=lambda call: call.name)
def test_a_healthy_result_has_the_strides_and_dtype_of_the_cpu_result(call: HealthyCall, device: SimDevice) -> None:
    with torch.no_grad():
        expected, actual = _first(call.function(*call.tensors)), _first(call.function(*map(on_sim, call.tensors)))
    # Memory-efficient attention has a layout of its own on a GPU.
    if call.name in ("attention fp32", "attention masked", "attention causal"):
        expected = with_strides(expected, result_strides("efficient", expected.size(), expected))
    assert (actual.stride(), actual.dtype) == (expected.stride(), expected.dtype)
    assert device.to_host(actual).stride() == expected.stride()


# --- the ops that HIP picks ------------------------------------------------------------------------------------


def _attention(dtype: torch.dtype, **options: Any) -> Any:
    return lambda: F.scaled_dot_product_attention(
        *(on_sim(torch.randn(1, 2, 4, 8, dtype=dtype)) for _ in range(3)), **options
    )


def _conv(dtype: torch.dtype, groups: int = 1) -> Any:
    x, w = torch.randn(1, 4, 5, 5, dtype=dtype), torch.randn(4, 4 // groups, 3, 3, dtype=dtype)
    return lambda: F.conv2d(on_sim(x), on_sim(w), groups=groups)


def _batch_norm(dtype: torch.dtype, affine: bool) -> Any:
    def run() -> torch.Tensor:
        ones = on_sim(torch.ones(4, dtype=dtype)) if affine else None
        return F.batch_norm(on_sim(torch.randn(3, 4, dtype=dtype)), None, None, ones, ones, True)

    return run


@pytest.mark.parametrize(
    ("run", "op"),
    [
        (_attention(torch.bfloat16), "aten::_scaled_dot_product_flash_attention.default"),
        (_attention(torch.float16, is_causal=True), "aten::_scaled_dot_product_flash_attention.default"),
        (_attention(torch.float32), "aten::_scaled_dot_product_efficient_attention.default"),
        (_attention(torch.float64), "aten::_scaled_dot_product_attention_math.default"),
        (_conv(torch.float32), "aten::miopen_convolution.default"),
        (_conv(torch.float32, groups=4), "aten::miopen_depthwise_convolution.default"),
        (_batch_norm(torch.float32, affine=True), "aten::miopen_batch_norm.default"),
        (_batch_norm(torch.float32, affine=False), "aten::native_batch_norm.default"),
        (lambda: F.rms_norm(on_sim(torch.ones(2, 4)), (4,)), "aten::_fused_rms_norm.default"),
        (lambda: F.dropout(on_sim(torch.ones(8)), 0.5), "aten::native_dropout.default"),
        (lambda: F.layer_norm(on_sim(torch.ones(2, 4)), (4,)), "aten::native_layer_norm.default"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_composite_runs_as_the_op_that_hip_picks(run: Any, op: str, device: SimDevice) -> None:
    _, path = device.observe(run)
    assert op in path.chosen_ops


def test_a_mask_in_another_dtype_sends_attention_to_math(device: SimDevice) -> None:
    mask = on_sim(torch.zeros(4, 4, dtype=torch.float64))
    q = on_sim(torch.randn(1, 2, 4, 8, dtype=torch.float64))
    _, path = device.observe(lambda: F.scaled_dot_product_attention(q, q, q, mask))
    assert "aten::_scaled_dot_product_attention_math.default" in path.chosen_ops
    assert "aten::_scaled_dot_product_efficient_attention.default" not in path.chosen_ops


def test_double_convolution_does_not_go_to_miopen(device: SimDevice) -> None:
    _, path = device.observe(_conv(torch.float64))
    assert path.chosen_ops == ("aten::convolution.default",)


def test_an_lstm_with_projections_warns_and_goes_cell_by_cell(device: SimDevice) -> None:
    lstm = torch.nn.LSTM(4, 5, proj_size=3)
    weights = [on_sim(w.detach()) for w in lstm._flat_weights]  # type: ignore[union-attr]  # never None here
    hidden = [on_sim(torch.zeros(1, 2, 3)), on_sim(torch.zeros(1, 2, 5))]
    with pytest.warns(UserWarning, match="LSTM with projections is not supported with MIOpen"):
        _, path = device.observe(
            lambda: torch.lstm(on_sim(torch.randn(3, 2, 4)), hidden, weights, True, 1, 0.0, True, False, False)
        )
    assert "aten::miopen_rnn.default" not in path.chosen_ops
    assert "aten::addmm.default" in path.chosen_ops


@pytest.mark.parametrize("grad", [True, False])
def test_routes_hold_in_inference_mode_too(grad: bool, device: SimDevice) -> None:
    with torch.inference_mode(not grad):
        _, path = device.observe(_attention(torch.float32))
    assert "aten::_scaled_dot_product_efficient_attention.default" in path.chosen_ops


def test_an_encoder_layer_takes_its_fast_path(device: SimDevice) -> None:
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    parts = (layer.self_attn.in_proj_weight, layer.self_attn.in_proj_bias, *layer.self_attn.out_proj.parameters())
    attention = [p.detach() for p in parts]
    rest = [p.detach() for m in (layer.norm1, layer.norm2, layer.linear1, layer.linear2) for p in (m.weight, m.bias)]
    x = torch.randn(2, 5, 8)

    def run(*tensors: torch.Tensor) -> Any:
        return aten._transformer_encoder_layer_fwd.default(
            tensors[0], 8, 2, *tensors[1:5], False, False, 1e-5, *tensors[5:]
        )

    actual = run(*map(on_sim, (x, *attention, *rest)))
    torch.testing.assert_close(device.to_host(actual), run(x, *attention, *rest))


# --- missing kernels -------------------------------------------------------------------------------------------


def test_an_op_without_a_hip_kernel_says_so_as_a_rocm_build_does(device: SimDevice) -> None:
    with pytest.raises(NotImplementedError, match=r"Could not run 'aten::histogram.bin_ct' with arguments from the"):
        torch.histogram(on_sim(torch.ones(4)), 2)


def test_an_integer_matmul_is_refused_as_blas_refuses_it(device: SimDevice) -> None:
    a = on_sim(torch.ones(2, 2, dtype=torch.int64))
    with pytest.raises(NotImplementedError, match="\"addmm_cuda\" not implemented for 'Long'"):
        aten.mm.default(a, a)


def test_a_cudnn_op_is_refused(device: SimDevice) -> None:
    x = on_sim(torch.ones(1, 1, 3, 3))
    with pytest.raises(RuntimeError, match="ATen not compiled with cuDNN support"):
        aten.cudnn_convolution.default(x, x, [0, 0], [1, 1], [1, 1], 1, False, False, False)


# --- the device contract ---------------------------------------------------------------------------------------


def test_views_of_one_buffer_share_its_memory(device: SimDevice) -> None:
    buffer = device.buffer(torch.zeros(64, dtype=torch.uint8))
    whole, part = buffer.view(torch.float32, (16,), (1,), 0), buffer.view(torch.float32, (2, 2), (8, 2), 3)
    aten.add_.Scalar(part, 1.0)
    assert device.to_host(whole).nonzero().flatten().tolist() == [3, 5, 11, 13]
    assert buffer.read().view(torch.float32).nonzero().flatten().tolist() == [3, 5, 11, 13]
    assert (part.stride(), part.storage_offset()) == ((8, 2), 3)


def test_guards_stay_intact_until_something_writes_past_the_operand(device: SimDevice) -> None:
    buffer = device.buffer(torch.zeros(64, dtype=torch.uint8))
    view = buffer.view(torch.uint8, (64,), (1,), 0)
    aten.fill_.Scalar(view, 7)
    assert buffer.guards_intact()
    ctypes.memset(view.elem.data_ptr() + 64, 0, 1)  # type: ignore[attr-defined]  # SimTensor
    assert not buffer.guards_intact()


@pytest.mark.parametrize("strides", [(1, 3), (7, 2), (0, 1), (5, 0)])
def test_to_host_keeps_sizes_strides_and_values(strides: tuple[int, int], device: SimDevice) -> None:
    buffer = device.buffer(torch.arange(40, dtype=torch.float32).view(torch.uint8))
    host = device.to_host(buffer.view(torch.float32, (3, 4), strides, 2))
    expected = torch.arange(40, dtype=torch.float32).as_strided((3, 4), strides, 2)
    assert (type(host), host.stride()) == (torch.Tensor, strides)
    assert torch.equal(host, expected)


@pytest.mark.skipif(not hostmemory.fill_available(), reason="the C library is not glibc")
@pytest.mark.parametrize(("byte", "n"), list(itertools.product([0x00, 0xFF, 0x7B], [8, 1000, 1 << 20])))
def test_fresh_memory_holds_the_fill_byte(byte: int, n: int, device: SimDevice) -> None:
    device.fill_fresh_memory(byte, [n])
    # A thread keeps up to seven small blocks of a size that were freed before, and hands them out as they are.
    blocks = [torch.empty(n, dtype=torch.uint8) for _ in range(8)]
    assert (blocks[-1] == byte).all()


@pytest.mark.parametrize(
    ("run", "copies"),
    [
        (lambda x: x.to("cpu"), (Copy("DtoH", 32),)),
        (lambda x: torch.ones(5).to("sim"), (Copy("HtoD", 20),)),
        (lambda x: x.sum().item(), (Copy("DtoH", 4),)),
        (lambda x: x.nonzero(), (Copy("DtoH", 8),)),
        (lambda x: x.exp() + 1, ()),
    ],
)
def test_copies_between_device_and_host_are_observed(run: Any, copies: tuple[Copy, ...], device: SimDevice) -> None:
    x = on_sim(torch.ones(8))
    _, path = device.observe(lambda: run(x))
    assert path.copies == copies


def test_factories_make_tensors_on_the_device(device: SimDevice) -> None:
    at = device.torch_device
    made = [torch.zeros(3, device=at), torch.arange(4, device=at), torch.full((2,), 7.0, device=at)]
    made += [torch.eye(3, device=at)]
    made += [torch.tensor([1.0, 2.0], device=at), torch.randn(3, device=at), torch.empty(2, device=at)]
    assert all(isinstance(tensor, SimTensor) for tensor in made)
    assert device.to_host(made[1]).tolist() == [0, 1, 2, 3]
    assert device.to_host(made[4]).tolist() == [1.0, 2.0]


@pytest.mark.parametrize("change", [lambda t: t.t_(), lambda t: t.unsqueeze_(0), lambda t: t.squeeze_(0)])
def test_an_op_that_changes_metadata_in_place_changes_the_wrapper(change: Any, device: SimDevice) -> None:
    plain, ours = torch.randn(1, 3), on_sim(torch.randn(1, 3))
    change(plain)
    change(ours)
    assert (ours.size(), ours.stride()) == (plain.size(), plain.stride())
    assert device.to_host(ours).size() == plain.size()


def test_conjugated_input_computes_as_on_the_cpu(device: SimDevice) -> None:
    z = torch.randn(4, 4, dtype=torch.complex64)
    torch.testing.assert_close(device.to_host(on_sim(z).conj() @ on_sim(z)), z.conj() @ z)


def test_timing_reports_a_median_of_at_least_five_runs(device: SimDevice) -> None:
    x, n = on_sim(torch.ones(4)), [0]

    def call() -> None:
        n[0] += 1
        x.exp()

    timing = device.time(call, 0.01)
    assert timing.n >= 5
    assert n[0] == timing.n + 1
    assert timing.median_us > 0


def test_info_says_that_it_is_simulated(device: SimDevice) -> None:
    assert (device.info().backend, device.info().arch) == ("sim", "sim")


def test_layer_norm_of_bf16_keeps_fp32_statistics_as_a_gpu_does(device: SimDevice) -> None:
    x, w = torch.randn(4, 64, dtype=torch.bfloat16), torch.ones(64, dtype=torch.bfloat16)
    out, mean, rstd = aten.native_layer_norm.default(on_sim(x), [64], on_sim(w), on_sim(w), 1e-5)
    assert (out.dtype, mean.dtype, rstd.dtype) == (torch.bfloat16, torch.float32, torch.float32)
    torch.testing.assert_close(device.to_host(mean).flatten(), x.float().mean(-1))


def test_layer_norm_of_bf16_has_a_backward(device: SimDevice) -> None:
    tensors = [torch.randn(4, 64), torch.randn(64), torch.randn(64)]
    leaves = [on_sim(t.bfloat16()).requires_grad_() for t in tensors]
    plain = [t.bfloat16().requires_grad_() for t in tensors]
    actual = torch.autograd.grad(F.layer_norm(leaves[0], (64,), *leaves[1:]).square().sum(), leaves)
    expected = torch.autograd.grad(F.layer_norm(plain[0], (64,), *plain[1:]).square().sum(), plain)
    for ours, theirs in zip(actual, expected, strict=True):
        assert ours.dtype == torch.bfloat16
        torch.testing.assert_close(device.to_host(ours), theirs, rtol=0.05, atol=0.2)


def test_a_gpu_op_that_cannot_be_simulated_is_not_called_missing_on_hip(device: SimDevice) -> None:
    x = on_sim(torch.ones(2, 3))
    with pytest.raises(NotSimulatedError, match="cannot compute aten::batch_norm_stats") as raised:
        aten.batch_norm_stats.default(x, 1e-5)
    assert classify(raised.value) == "not_simulated"


@pytest.mark.filterwarnings("ignore:ComplexHalf")
def test_a_dtype_that_the_cpu_does_not_compute_in_is_no_finding_about_the_device(device: SimDevice) -> None:
    x = on_sim(torch.ones(2, 4, dtype=torch.complex32))
    with pytest.raises(NotSimulatedError, match="cannot compute aten::_fft_c2c"):
        aten._fft_c2c.default(x, [1], 0, True)


def test_fused_convolutions_of_miopen_are_convolution_and_relu(device: SimDevice) -> None:
    x, w = torch.randn(1, 4, 6, 6), torch.randn(5, 4, 3, 3)
    expected = F.conv2d(x, w)
    actual = aten.miopen_convolution_relu.default(on_sim(x), on_sim(w), None, [1, 1], [0, 0], [1, 1], 1)
    torch.testing.assert_close(device.to_host(actual), expected.relu())
    added = aten.miopen_convolution_add_relu.default(
        on_sim(x), on_sim(w), on_sim(expected), 2.0, None, [1, 1], [0, 0], [1, 1], 1
    )
    torch.testing.assert_close(device.to_host(added), (expected * 3.0).relu())


def test_a_depthwise_convolution_by_atens_own_kernel_is_a_grouped_convolution(device: SimDevice) -> None:
    x, w = torch.randn(1, 4, 6, 6), torch.randn(4, 1, 3, 3)
    actual = aten._conv_depthwise2d.default(on_sim(x), on_sim(w), [3, 3], None, [1, 1], [0, 0], [1, 1])
    torch.testing.assert_close(device.to_host(actual), F.conv2d(x, w, groups=4))


@pytest.mark.parametrize("fused", [True, False])
def test_adamw_steps_as_on_the_cpu(fused: bool, device: SimDevice) -> None:
    torch.manual_seed(1)
    start = [torch.randn(4, 3), torch.randn(7)]
    grads = [torch.randn(4, 3), torch.randn(7)]
    moments = [[t.square() for t in grads] for _ in range(2)]
    steps = [torch.tensor(3.0), torch.tensor(3.0)]
    options = {"lr": 0.1, "beta1": 0.9, "beta2": 0.99, "weight_decay": 0.1, "eps": 1e-8}

    def step(place: Any) -> list[torch.Tensor]:
        parameters, gradients, first, second = ([place(t) for t in group] for group in (start, grads, *moments))
        if fused:
            state = [place(t) for t in steps]
            aten._fused_adamw_.default(
                parameters, gradients, first, second, [], state, **options, amsgrad=False, maximize=False
            )
        else:
            aten._foreach_lerp_.Scalar(first, gradients, 0.1)
            aten._foreach_addcdiv_.Scalar(parameters, first, aten._foreach_sqrt.default(second), -0.1)
        return parameters

    for ours, theirs in zip(step(on_sim), step(torch.clone), strict=True):
        torch.testing.assert_close(device.to_host(ours), theirs)


def _lstm_with_dropout(x: torch.Tensor) -> torch.Tensor:
    generator = torch.Generator().manual_seed(3)
    shapes = [(20, 6), (20, 5), (20,), (20,), (20, 5), (20, 5), (20,), (20,)]
    weights = [on_sim(torch.randn(*shape, generator=generator)) for shape in shapes]
    h = on_sim(torch.zeros(2, 2, 5))
    return torch.lstm(x, [h, h], weights, True, 2, 0.5, True, False, False)[0]


def _attention_with_dropout(x: torch.Tensor) -> torch.Tensor:
    return F.scaled_dot_product_attention(x[None], x[None], x[None], dropout_p=0.5)


@pytest.mark.parametrize("function", [_lstm_with_dropout, _attention_with_dropout])
def test_the_backward_of_a_fused_op_uses_the_dropout_mask_of_its_forward(function: Any, device: SimDevice) -> None:
    torch.manual_seed(0)
    x, direction, step = torch.randn(4, 2, 6), torch.randn(4, 2, 6), 1e-2

    def total(at: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(11)
        return function(at).square().sum()

    leaf = on_sim(x).requires_grad_()
    (grad,) = torch.autograd.grad(total(leaf), leaf)
    ahead, behind = (float(device.to_host(total(on_sim(x + s * step * direction)))) for s in (1, -1))
    assert float((device.to_host(grad) * direction).sum()) == pytest.approx(
        (ahead - behind) / (2 * step), rel=0.05, abs=0.02
    )
