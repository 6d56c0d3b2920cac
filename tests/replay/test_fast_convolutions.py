"""Devices that compute convolutions by Winograd's or Fourier's transforms are healthy; faults in them are found.

An MI300X has MIOpen's Winograd kernels, F(2, 3) to F(6, 3), in float32, and F(2, 3) with transforms in float16.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from audit.codec import decode, encode
from audit.comparison import Comparison
from audit.replay.compare import fact_of, flat
from audit.replay.inputs import bind
from audit.replay.operands import narrow_operands
from audit.replay.overload import named_arguments
from audit.replay.reference import Reference
from audit.replay.sampled import fast_convolutions, plan
from audit.replay.sampled.convolution_calls import forward_of
from audit.replay.sampled.linear_output import prepared
from audit.replay.spool import read_spool, write_spool
from audit.replay.stream import Stream
from audit.schema import Case
from tests.replay.conftest import Build
from tests.replay.fast_devices import fourier, halves, winograd
from tests.replay.test_sampled_blocks import NOTHING_ELSE
from tests.sensitivity.trials import codes, compared

#: An algorithm, from image and weight.
Device = Callable[..., Tensor]
DEVICES: dict[str, Device] = {
    **{f"F({tile}, 3)": partial(winograd, tile=tile) for tile in (2, 4, 6)},
    "Fourier": fourier,
}
IMAGE, WEIGHT = (2, 24, 29, 26), (40, 24, 3, 3)


def case_of(op: str, image=IMAGE, weight=WEIGHT, dtype="float32", stride=1, padding=1, groups=1) -> Case:
    """A call of ``op`` with two spatial dimensions, or as many as the weight has."""
    n = len(weight) - 2
    steps, pads, ones, none = (stride,) * n, (padding,) * n, (1,) * n, (0,) * n
    first, second = Build.tensor(image, dtype, 0), Build.tensor(weight, dtype, 1)
    rest = {
        "convolution": (None, steps, pads, ones, False, none, groups),
        "miopen_convolution": (None, pads, steps, ones, groups, False, False),
        "miopen_depthwise_convolution": (None, pads, steps, ones, groups, False, False),
        "cudnn_convolution": (pads, steps, ones, groups, False, False, False),
        "miopen_convolution_transpose": (None, pads, none, steps, ones, groups, False, False),
        "cudnn_convolution_transpose": (pads, none, steps, ones, groups, False, False, False),
    }[op]
    return Build.case(f"aten::{op}.default", first, second, *rest)


def judged(case: Case, folder: Path, device: Callable[[dict[str, Any]], dict[str, Tensor]]) -> dict[str, Comparison]:
    """Comparisons by output of what ``device`` makes of the arguments."""
    reference = Reference(None, folder, 0, 1)
    assert reference.prepare(case)["device_may_run"]
    contents = read_spool(folder / f"{case.key}.inputs", reference._prepared[case.key].index)
    bound = bind(case, narrow_operands(case, contents), torch.device("cpu"), 0)
    outputs = device(named_arguments(case.op, bound.args, bound.kwargs))
    index = write_spool(folder / "outputs", {name: flat(t).view(torch.uint8) for name, t in outputs.items()})
    told = {
        name: {"fact": encode(fact_of(t)), "stored_dtype": str(t.dtype).removeprefix("torch."), **NOTHING_ELSE}
        for name, t in outputs.items()
    }
    found = (decode(Comparison, item) for item in reference.compare(case.key, told, folder / "outputs", index))
    return {comparison.name: comparison for comparison in found}


def forward(algorithm: Device, **more: Any) -> Callable[[dict[str, Any]], dict[str, Tensor]]:
    return lambda a: {"output": algorithm(a.get("self", a.get("input")), a["weight"], groups=a["groups"], **more)}


def found_in(case: Case, folder: Path, device: Callable[[dict[str, Any]], dict[str, Tensor]]) -> tuple[str, ...]:
    return tuple(code for comparison in judged(case, folder, device).values() for code in codes(comparison))


@pytest.fixture
def in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "_BYTES_LIMIT", 1)
    monkeypatch.setattr(plan, "FLOPS_LIMIT", 1.0)


# --- the devices are what they say -------------------------------------------------------------------------------


@pytest.mark.parametrize("groups", [1, 4])
@pytest.mark.parametrize("name", DEVICES)
def test_a_device_computes_the_convolution(name: str, groups: int):
    generator = torch.Generator().manual_seed(0)
    image, weight = (
        torch.randn(2, 8, 11, 7, generator=generator),
        torch.randn(12, 8 // groups, 3, 3, generator=generator),
    )
    out = DEVICES[name](image, weight, groups=groups)
    torch.testing.assert_close(out, F.conv2d(image, weight, padding=1, groups=groups), rtol=1e-4, atol=2e-4)
    strided = halves(image, weight, groups=groups)
    torch.testing.assert_close(
        strided, F.conv2d(image, weight, padding=1, stride=2, groups=groups), rtol=1e-4, atol=2e-4
    )


# --- whole, and in parts -----------------------------------------------------------------------------------------

BOTH = [*itertools.product(("convolution", "miopen_convolution", "cudnn_convolution"), DEVICES)]


@pytest.mark.parametrize(("op", "name"), BOTH)
def test_a_small_convolution_by_a_fast_algorithm_passes(op: str, name: str, tmp_path: Path):
    assert found_in(case_of(op), tmp_path, forward(DEVICES[name])) == ()


@pytest.mark.usefixtures("in_parts")
@pytest.mark.parametrize(("op", "name"), BOTH)
def test_a_convolution_by_a_fast_algorithm_passes_in_parts(op: str, name: str, tmp_path: Path):
    found = judged(case_of(op), tmp_path, forward(DEVICES[name]))["output"]
    assert found.sketch is not None
    assert codes(found) == ()


@pytest.mark.usefixtures("in_parts")
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_with_transforms_in_it_passes_in_parts(dtype: str, tmp_path: Path):
    device = forward(winograd, tile=2, kept=getattr(torch, dtype))
    assert found_in(case_of("miopen_convolution", dtype=dtype), tmp_path, device) == ()


@pytest.mark.parametrize("parts", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_a_depthwise_convolution_passes(parts: bool, dtype: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    if parts:
        monkeypatch.setattr(plan, "_BYTES_LIMIT", 1)
        monkeypatch.setattr(plan, "FLOPS_LIMIT", 1.0)
    case = case_of("miopen_depthwise_convolution", (2, 16, 29, 26), (32, 1, 3, 3), dtype, groups=16)
    tile, kept = (4, None) if dtype == "float32" else (2, torch.float16)
    assert found_in(case, tmp_path, forward(winograd, tile=tile, kept=kept)) == ()


@pytest.mark.parametrize("parts", [False, True])
@pytest.mark.parametrize("op", ["miopen_convolution_transpose", "cudnn_convolution_transpose"])
def test_a_transposed_convolution_passes(parts: bool, op: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    if parts:
        monkeypatch.setattr(plan, "_BYTES_LIMIT", 1)
        monkeypatch.setattr(plan, "FLOPS_LIMIT", 1.0)
    case = case_of(op, (2, 24, 29, 26), (24, 20, 3, 3), groups=2)

    def device(a: dict[str, Any]) -> dict[str, Tensor]:
        return {"output": winograd(a["self"], turned(a["weight"], 2), 1, 2, 4)}

    assert found_in(case, tmp_path, device) == ()


def turned(weight: Tensor, groups: int) -> Tensor:
    return torch.cat([part.transpose(0, 1) for part in weight.chunk(groups)]).flip(2, 3)


@pytest.mark.usefixtures("in_parts")
@pytest.mark.parametrize(("kernel", "dims"), [(5, 2), (3, 3), (7, 1)])
def test_other_kernels_by_fourier_pass_in_parts(kernel: int, dims: int, tmp_path: Path):
    sizes = {1: (900,), 2: (29, 26), 3: (9, 10, 11)}[dims]
    case = case_of("convolution", (2, 12, *sizes), (20, 6, *(kernel,) * dims), padding=kernel // 2, groups=2)
    assert found_in(case, tmp_path, forward(fourier, padding=kernel // 2)) == ()


@pytest.mark.usefixtures("in_parts")
def test_a_strided_convolution_by_four_fast_ones_passes_in_parts(tmp_path: Path):
    assert found_in(case_of("miopen_convolution", stride=2), tmp_path, forward(halves)) == ()


@pytest.mark.parametrize("parts", [False, True])
def test_gradients_by_winograd_pass(parts: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    if parts:
        monkeypatch.setattr(plan, "_BYTES_LIMIT", 1)
        monkeypatch.setattr(plan, "FLOPS_LIMIT", 1.0)
    found = judged(backward_case(), tmp_path, gradients)
    assert set(found) == {"output 0", "output 1"}
    assert [codes(comparison) for comparison in found.values()] == [(), ()]


def backward_case() -> Case:
    given = ((2, 40, 29, 26), IMAGE, WEIGHT)
    tensors = [Build.tensor(sizes, "float32", storage) for storage, sizes in enumerate(given)]
    rest = (None, (1, 1), (1, 1), (1, 1), False, (0, 0), 1, (True, True, False))
    return Build.case("aten::convolution_backward.default", *tensors, *rest)


def gradients(a: dict[str, Any]) -> dict[str, Tensor]:
    """By differentiating F(4, 3), whose transposed algorithms are those of the gradients."""
    leaves = [a[name].detach().requires_grad_() for name in ("input", "weight")]
    with torch.enable_grad():
        found = torch.autograd.grad(winograd(*leaves), leaves, a["grad_output"])
    return {f"output {number}": gradient.contiguous() for number, gradient in enumerate(found)}


# --- data that are loud in places ------------------------------------------------------------------------------------


def spotted(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """An image that is zero in its lower half and a thousand times as loud in one spot, and a weight."""
    generator = torch.Generator().manual_seed(3)
    image, weight = (torch.randn(sizes, generator=generator).to(dtype) for sizes in (IMAGE, WEIGHT))
    image[:, :, 15:] = 0
    image[:, :, 13:15, 9:13] *= 1000
    return image, weight


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("name", DEVICES)
def test_a_quiet_place_has_the_noise_of_a_loud_one_in_its_tile(name: str, dtype: torch.dtype):
    image, weight = spotted(dtype)
    out = DEVICES[name](image, weight)
    assert codes(compared(parts_of(image, weight, out), out)) == ()


def parts_of(image: Tensor, weight: Tensor, out: Tensor) -> Any:
    geometry = {"stride": [1, 1], "padding": [1, 1], "dilation": [1, 1], "groups": 1, "transposed": False}
    form = forward_of("convolution", {"input": image, "weight": weight, **geometry}, out)
    assert form is not None
    return prepared(form, Stream(1, "fast"))


def test_what_winograd_loses_of_white_data_is_near_the_constant():
    generator = torch.Generator().manual_seed(4)
    for channels in (1, 24, 200):
        image = torch.randn(2, channels, 30, 30, generator=generator)
        weight = torch.randn(20, channels, 3, 3, generator=generator)
        form, stream = parts_of(image, weight, torch.empty(2, 20, 30, 30)).form, Stream(2, "gain")
        left, right = form.row_fourths().sqrt(), form.fourth_norms(form.right.double())
        gain = fast_convolutions._measured(form, left, right, torch.arange(20), stream) ** 0.5 / 2.0**-24
        assert fast_convolutions.WINOGRAD / 4 < gain < fast_convolutions.WINOGRAD * 4


# --- faults ----------------------------------------------------------------------------------------------------------


def wrong_tile(out: Tensor) -> None:
    out[1, 8:24, 12:16, 8:12] = out[1, 8:24, 12:16, 4:8].clone()


def wrong_channel(out: Tensor) -> None:
    out[:, 17] *= 1.001


def wrong_border(out: Tensor) -> None:
    out[:, :, -1] = out[:, :, -2].clone()


FAULTS: dict[str, Callable[[Tensor], None]] = {
    "tile": wrong_tile, "channel": wrong_channel, "border": wrong_border,
    "last element": lambda out: out[-1, -1, -1].__setitem__(-1, 0.0),
    "NaN": lambda out: out[0, 5, 11].__setitem__(3, torch.nan),
}  # fmt: skip


@pytest.mark.usefixtures("in_parts")
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_a_fast_device_is_found_in_parts(fault: str, tmp_path: Path):
    def device(a: dict[str, Any]) -> dict[str, Tensor]:
        out = winograd(a["self"], a["weight"], tile=4)
        FAULTS[fault](out)
        return {"output": out}

    assert found_in(case_of("miopen_convolution"), tmp_path, device) != ()


@pytest.mark.usefixtures("in_parts")
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_channels_that_were_left_out_of_the_sum_are_found_in_parts(dtype: str, tmp_path: Path):
    def device(a: dict[str, Any]) -> dict[str, Tensor]:
        return {"output": winograd(a["self"][:, :-1], a["weight"][:, :-1], tile=2)}

    assert found_in(case_of("miopen_convolution", dtype=dtype), tmp_path, device) != ()
