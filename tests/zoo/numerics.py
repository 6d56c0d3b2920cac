"""Numbers beyond plain floats: quantised weights, fp8, complex and FFT, linear algebra."""

from __future__ import annotations

import copy
import warnings

import torch
from torch import nn

from tests.zoo.program import device, train


def _network() -> nn.Sequential:
    return nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 16)).to(device())


def quantised_dynamic_int8() -> list[torch.Tensor]:
    """torch's own quantised tensors, whose kernels exist for the CPU alone."""
    from torch.ao.quantization import quantize_dynamic

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        model = quantize_dynamic(_network().cpu(), {nn.Linear}, dtype=torch.qint8)
    quantised = torch.quantize_per_tensor(torch.randn(4, 32), 0.05, 0, torch.quint8)
    return [model(quantised.dequantize())]


def quantised_int8_matmul() -> list[torch.Tensor]:
    """Integer products written by hand: what W8A8 inference code does."""
    x, weight = torch.randn(24, 32, device=device()), torch.randn(16, 32, device=device())
    x_scale, w_scale = x.abs().amax(-1, keepdim=True) / 127, weight.abs().amax(-1, keepdim=True) / 127
    x_int = (x / x_scale).round().clamp(-128, 127).to(torch.int8)
    w_int = (weight / w_scale).round().clamp(-128, 127).to(torch.int8)
    product = torch._int_mm(x_int, w_int.t())
    return [product, product.float() * x_scale * w_scale.t()]


def quantised_fake_training() -> list[torch.Tensor]:
    model, x = _network(), torch.randn(4, 32, device=device())
    scale, zero = torch.tensor(0.02, device=device()), torch.tensor(0, dtype=torch.int32, device=device())

    def forward() -> torch.Tensor:
        hidden = torch.fake_quantize_per_tensor_affine(model[0](x), scale, zero, -128, 127)
        return model[2](torch.relu(hidden)).square().mean()

    return train(model, forward)


def _torchao(config: object) -> list[torch.Tensor]:
    from torchao.quantization import quantize_

    model = _network().to(torch.bfloat16)
    quantize_(model, config)
    with torch.no_grad():
        return [model(torch.randn(4, 32, dtype=torch.bfloat16, device=device()))]


def torchao_int8_weight_only() -> list[torch.Tensor]:
    from torchao.quantization import Int8WeightOnlyConfig

    return _torchao(Int8WeightOnlyConfig())


def torchao_int8_dynamic() -> list[torch.Tensor]:
    from torchao.quantization import Int8DynamicActivationInt8WeightConfig

    return _torchao(Int8DynamicActivationInt8WeightConfig())


def fp8_scaled_mm() -> list[torch.Tensor]:
    x, weight = torch.randn(32, 64, device=device()), torch.randn(48, 64, device=device())

    def quantise(tensor: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        scale = tensor.abs().amax().float() / torch.finfo(torch.float8_e4m3fn).max
        return (tensor / scale).to(torch.float8_e4m3fn), scale

    (x8, x_scale), (w8, w_scale) = quantise(x), quantise(weight)
    product = torch._scaled_mm(x8, w8.t(), scale_a=x_scale, scale_b=w_scale, out_dtype=torch.bfloat16)
    return [product, x8.to(torch.float32), w8.to(torch.bfloat16)]


class SpectralConvolution(nn.Module):
    """The layer of a Fourier neural operator: a learned complex product of the lowest modes."""

    def __init__(self, channels: int, modes: int) -> None:
        super().__init__()
        self.modes = modes
        self.weight = nn.Parameter(torch.randn(channels, channels, modes, modes, dtype=torch.cfloat) / channels**2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        spectrum = torch.fft.rfft2(x)
        low = torch.einsum("bixy,ioxy->boxy", spectrum[:, :, : self.modes, : self.modes], self.weight)
        out = torch.zeros_like(spectrum)
        out[:, :, : self.modes, : self.modes] = low
        return torch.fft.irfft2(out, s=x.shape[-2:])


def complex_fourier_operator_training() -> list[torch.Tensor]:
    model = nn.Sequential(nn.Conv2d(1, 4, 1), SpectralConvolution(4, 3), nn.GELU(), nn.Conv2d(4, 1, 1)).to(device())
    x = torch.randn(2, 1, 12, 12, device=device())
    return train(model, lambda: (model(x) - x).square().mean())


def complex_and_fft() -> list[torch.Tensor]:
    sound = torch.randn(2, 256, device=device(), requires_grad=True)
    window = torch.hann_window(64, device=device())
    spectrum = torch.stft(sound, 64, 16, window=window, return_complex=True)
    phase = torch.polar(torch.ones_like(spectrum.real), spectrum.angle())
    z = (spectrum * phase.conj()).resolve_conj()
    back = torch.istft(spectrum, 64, 16, window=window, length=256)
    loss = z.abs().sum() + torch.view_as_real(z).mean() + back.square().mean() + torch.fft.fftshift(spectrum.real).sum()
    loss.backward()
    other = torch.fft.ifft(torch.fft.fft(torch.arange(8.0, device=device())) * 1j).imag
    return [loss.detach(), sound.grad, back.detach(), other, torch.linalg.vector_norm(z.detach()), z.detach().exp()]


def linear_algebra() -> list[torch.Tensor]:
    a = torch.randn(3, 6, 6, device=device(), requires_grad=True)
    spd = a @ a.mT + 6 * torch.eye(6, device=device())
    b = torch.randn(3, 6, 2, device=device())
    factor = torch.linalg.cholesky(spd)
    q, r = torch.linalg.qr(a)
    values, vectors = torch.linalg.eigh(spd)
    results = [
        torch.linalg.solve(spd, b), torch.cholesky_solve(b, factor), torch.linalg.inv(spd), q @ r, values,
        (vectors * values[:, None]) @ vectors.mT, torch.linalg.svdvals(a), torch.linalg.slogdet(spd)[1],
        torch.linalg.det(a), torch.linalg.matrix_exp(a / 10), torch.linalg.solve_triangular(factor, b, upper=False),
        torch.linalg.matrix_norm(a), torch.linalg.pinv(a.detach()),
        torch.linalg.matrix_power(a, 3), torch.trapezoid(torch.linalg.vector_norm(a, dim=-1)),
    ]  # fmt: skip
    loss = sum(result.square().mean() for result in results)
    loss.backward()
    lu, pivots = torch.linalg.lu_factor(a.detach())
    eigenvalues = torch.linalg.eigvals(a.detach())
    # LAPACK's least squares differ in the last bits by where the memory lies.
    fitted = torch.linalg.lstsq(spd.detach(), b).solution.round(decimals=3)
    return [loss.detach(), a.grad, *(result.detach() for result in results), lu, pivots, eigenvalues, fitted]


def optimizers_foreach_and_fused() -> list[torch.Tensor]:
    made = [
        lambda p: torch.optim.AdamW(p, lr=1e-3, fused=True),
        lambda p: torch.optim.Adam(p, lr=1e-3, foreach=True, amsgrad=True),
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, fused=True),
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, foreach=True),
        lambda p: torch.optim.RMSprop(p, lr=1e-3, foreach=True, momentum=0.1, centered=True),
        lambda p: torch.optim.Adagrad(p, lr=1e-2, fused=True),
        lambda p: torch.optim.NAdam(p, foreach=True),
        lambda p: torch.optim.Adafactor(p, foreach=True),
        lambda p: torch.optim.Adamax(p, foreach=True),
        lambda p: torch.optim.AdamW(p, lr=torch.tensor(1e-3), foreach=False, capturable=False),
    ]
    original, x = _network(), torch.randn(4, 32, device=device())
    results: list[torch.Tensor] = []
    for make in made:
        model = copy.deepcopy(original)
        optimizer = make(list(model.parameters()))
        for _ in range(2):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.5, foreach=True)
            optimizer.step()
        results += [parameter.detach().clone() for parameter in model.parameters()]
    average = torch.optim.swa_utils.AveragedModel(original, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn())
    average.update_parameters(model)
    average.update_parameters(original)
    return [*results, *(parameter.detach().clone() for parameter in average.parameters())]
