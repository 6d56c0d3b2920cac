"""Gradients of fp16 convolutions, which the CPU itself would take an hour for, come from fp32 and are fp16 again."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from audit.codec import case_key
from audit.replay import whole
from audit.replay.on_cpu import cpu_op
from audit.replay.overload import resolve
from audit.replay.reference import Reference
from audit.schema import Arg, Case, Named, TensorSpec

OP = "aten::convolution_backward.default"


def conv_backward(dtype: str, mask: tuple[bool, bool, bool] = (True, True, True)) -> Case:
    """Gradients of a 3x3 convolution of [2, 3, 6, 6], channels last, to four channels."""
    grad = TensorSpec((2, 4, 6, 6), (144, 1, 24, 4), dtype, extent=288, storage=0)
    source = TensorSpec((2, 3, 6, 6), (108, 1, 18, 3), dtype, extent=216, storage=1)
    weight = TensorSpec((4, 3, 3, 3), (27, 9, 3, 1), dtype, extent=108, storage=2)
    args: tuple[Arg, ...] = (grad, source, weight, (4,), (1, 1), (1, 1), (1, 1), False, (0, 0), 1, mask)
    return Case(case_key(OP, args, (), "backward", None), OP, args, phase="backward")


class Seen(TorchDispatchMode):
    """The dtypes that an op was called with."""

    def __init__(self) -> None:
        super().__init__()
        self.dtypes: set[torch.dtype] = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is resolve(OP):
            self.dtypes |= {arg.dtype for arg in args if isinstance(arg, torch.Tensor)}
        return func(*args, **(kwargs or {}))


def operands(dtype: torch.dtype) -> list[torch.Tensor]:
    torch.manual_seed(0)
    return [torch.randn(sizes).to(dtype) for sizes in ((2, 4, 6, 6), (2, 3, 6, 6), (4, 3, 3, 3))]


def run(op, case: Case, tensors: list[torch.Tensor]):
    return op(*tensors, *case.args[3:])


def test_fp16_is_computed_in_fp32_and_rounded():
    case = conv_backward("float16")
    tensors = operands(torch.float16)
    with Seen() as seen:
        results = run(cpu_op(case), case, tensors)
    exact = run(resolve(OP), case, [tensor.double() for tensor in tensors])
    assert seen.dtypes == {torch.float32}
    for result, expected in zip(results, exact, strict=True):
        assert result.dtype == torch.float16
        torch.testing.assert_close(result.double(), expected, rtol=2**-11, atol=2**-14)


def test_what_is_not_asked_for_is_not_there():
    case = conv_backward("float16", (False, True, False))
    results = run(cpu_op(case), case, operands(torch.float16))
    assert [result is None for result in results] == [True, False, True]


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_other_dtypes_run_as_they_are(dtype: str):
    assert cpu_op(conv_backward(dtype)) is resolve(OP)


def test_the_measurement_says_so(tmp_path: Path):
    side = Reference(None, tmp_path, seed=0, n_threads=1)
    note = "the CPU computed it in float32 and converted it to float16, whose own kernel is a hundred times slower"
    assert note in side.prepare(conv_backward("float16"))["notes"]
    assert side.prepare(conv_backward("bfloat16"))["notes"] == []


def test_its_noise_is_that_of_moved_inputs_even_where_fp64_is_slow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(whole, "PERTURB_LIMIT_CPU_S", -1.0)
    side = Reference(None, tmp_path, seed=0, n_threads=1)
    case = conv_backward("float16")
    assert not any("own error alone" in note for note in side.prepare(case)["notes"])
    assert all(kept.noise > kept.cpu_max_abs_error for kept in side._prepared[case.key].expected.values())


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_large_image_is_sampled_where_the_grid_points(dtype: str):
    """In half precision the CPU ends with SIGSEGV, or gives NaN."""
    size, op = 352, "aten::grid_sampler_2d.default"
    image = TensorSpec((1, 1, size, size), (size * size, size * size, size, 1), dtype, extent=size * size, storage=0)
    grid = TensorSpec((1, size, size, 2), (2 * size * size, 2 * size, 2, 1), dtype, extent=2 * size * size, storage=1)
    case = Case("x", op, (image, grid, 0, 0, False))
    torch.manual_seed(0)
    values = torch.rand(1, 1, size, size).to(getattr(torch, dtype))
    places = (torch.rand(1, size, size, 2) * 2 - 1).to(getattr(torch, dtype))
    result = cpu_op(case)(values, places, 0, 0, False)
    expected = torch.nn.functional.grid_sample(values.double(), places.double(), align_corners=False)
    assert result.dtype == values.dtype
    torch.testing.assert_close(result.double(), expected, rtol=2**-8, atol=2**-8)


def test_the_gradient_of_a_softmax_from_half_to_float_is_half():
    op = "aten::_softmax_backward_data.default"
    specs = tuple(TensorSpec((4, 6), (6, 1), "float32", extent=24, storage=storage) for storage in (0, 1))
    case = Case("x", op, (*specs, -1, Named("dtype", "float16")), phase="backward")
    grad, output = torch.randn(4, 6), torch.randn(4, 6).softmax(-1)
    result = cpu_op(case)(grad, output, -1, torch.float16)
    assert torch.equal(result, (output * (grad - (grad * output).sum(-1, keepdim=True))).half())
