"""Attention with dropout is as far from attention without as dropout makes it, and on average not at all."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from audit.comparison import Distribution
from audit.replay.distributions import distribution_of

OP = "aten::scaled_dot_product_attention.default"
LIMIT = -10.5


def dropped(p: float, seed: int, factor: float = 1.0, given: float | None = None, **how: Any) -> Distribution:
    generator = torch.Generator().manual_seed(seed)
    q, k, v = (torch.randn(2, 4, 48, 32, generator=generator) for _ in range(3))
    torch.manual_seed(seed + 100)
    out = torch.nn.functional.scaled_dot_product_attention(q, k, v, dropout_p=p, **how) * factor
    arguments = {"query": q, "key": k, "value": v, "dropout_p": p if given is None else given, **how}
    found = distribution_of(OP, "output", {"output": out}, arguments)
    assert found is not None
    return found


def least(found: Distribution) -> float:
    return min(test.log10_chance for test in found.tests)


@pytest.mark.parametrize("how", [{}, {"is_causal": True}, {"scale": 0.5}], ids=["plain", "causal", "scaled"])
@pytest.mark.parametrize("p", [0.1, 0.5])
def test_right_dropout_passes(p: float, how: dict[str, Any]) -> None:
    for seed in range(10):
        assert least(dropped(p, seed, **how)) > -6


def test_a_mask_is_applied() -> None:
    mask = torch.ones(48, 48, dtype=torch.bool).tril(5)
    for seed in range(5):
        assert least(dropped(0.2, seed, attn_mask=mask)) > -6


def test_what_is_kept_must_be_scaled() -> None:
    assert least(dropped(0.25, 0, factor=1.3)) < LIMIT
    assert least(dropped(0.25, 0, factor=0.75)) < LIMIT


def test_something_must_be_dropped() -> None:
    assert least(dropped(0.0, 0, given=0.25)) < LIMIT


def test_other_shapes_say_nothing() -> None:
    q = torch.randn(4, 8, 16)
    assert distribution_of(OP, "output", {"output": q}, {"query": q, "key": q, "value": q, "dropout_p": 0.5}) is None
