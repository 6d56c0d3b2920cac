"""The rounding error of a convolution by Winograd's algorithm is noise, and no more than that is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from audit.replay.winograd import filtered, winograd_of
from tests.replay.conftest import Build, Replayed

IMAGE, FILTERS = (64, 8, 8, 8), (8, 2, 3, 3)


def plain(image: torch.Tensor, weight: torch.Tensor, padding: tuple[int, int], groups: int) -> torch.Tensor:
    return torch.ops.aten.convolution(image, weight, None, [1, 1], list(padding), [1, 1], False, [0, 0], groups)


def drawn(dtype: torch.dtype = torch.float64) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    image, weight = (torch.randn(sizes, generator=generator) for sizes in ((2, 8, 11, 7), FILTERS))
    return image.to(dtype), weight.to(dtype)


def test_in_double_precision_it_is_the_convolution() -> None:
    image, weight = drawn()
    assert torch.allclose(filtered(image, weight, (1, 2), 4), plain(image, weight, (1, 2), 4), rtol=0, atol=1e-12)


def test_in_single_precision_it_is_some_times_less_exact_than_a_direct_sum() -> None:
    image, weight = drawn(torch.float32)
    expected = plain(image.double(), weight.double(), (1, 1), 4)
    errors = [float((f(image, weight, (1, 1), 4) - expected).abs().max()) for f in (filtered, plain)]
    assert 3 * errors[1] < errors[0] < 100 * errors[1]


def test_its_gradients_are_those_of_the_convolution(build: Build) -> None:
    image, weight = drawn(torch.float32)
    grad = torch.randn(2, 8, 11, 7, generator=torch.Generator().manual_seed(1))
    case = backward_case(build, tuple(image.shape), FILTERS)
    more = ([8], [1, 1], [1, 1], [1, 1], False, [0, 0], 4, [True, True, True])
    by_winograd = winograd_of(case)
    assert by_winograd is not None
    expected = torch.ops.aten.convolution_backward(grad.double(), image.double(), weight.double(), *more)
    for ours, theirs in zip(by_winograd(grad, image, weight, *more), expected, strict=True):
        assert torch.allclose(ours.double(), theirs, rtol=0, atol=1e-3)


def backward_case(build: Build, image: tuple[int, ...], weight: tuple[int, ...]) -> Any:
    more = ((8,), (1, 1), (1, 1), (1, 1), False, (0, 0), 4, (True, True, True))
    return build.case("aten::convolution_backward.default", *map(build.tensor, (image, image, weight)), *more)


@pytest.mark.parametrize(
    ("weight", "dtype", "stride"),
    [
        ((8, 2, 5, 5), "float32", 1),
        ((8, 2, 3, 3), "bfloat16", 1),
        ((8, 2, 3, 3), "float32", 2),
        ((8, 2, 3), "float32", 1),
    ],
)
def test_no_library_has_it_for_other_filters(build: Build, weight: tuple[int, ...], dtype: str, stride: int) -> None:
    assert winograd_of(convolution(build, weight, dtype, stride)) is None


def convolution(build: Build, weight: tuple[int, ...], dtype: str = "float32", stride: int = 1) -> Any:
    n = len(weight) - 2
    rest = (None, (stride,) * n, (1,) * n, (1,) * n, False, (0,) * n, 4)
    image = build.tensor(IMAGE[: n + 2], dtype)
    return build.case("aten::convolution.default", image, build.tensor(weight, dtype), *rest)


@pytest.mark.usefixtures("simulated_device")
def test_a_grouped_convolution_by_winograd_is_not_accused(build: Build, replay: Callable[..., Replayed]) -> None:
    case = convolution(build, FILTERS)
    [found] = replay([case]).of(case).comparisons
    assert found.n_different > 0
    assert found.worst_ratio < 8.0
