"""Values of operands with more elements than are drawn: those drawn over and over, made in the dtype wanted."""

from __future__ import annotations

import pytest
import torch

from audit.replay import domains, synthesis
from audit.replay.operand import Operand
from audit.replay.stream import Stream, repeated
from audit.schema import Values

SIZES = (600, 7)


@pytest.mark.parametrize("start", [0, 3, 10, 23])
def test_repeated_goes_on_where_it_is_told(start):
    row = torch.arange(10).repeat(6)
    for n in (0, 4, 10, 31):
        assert torch.equal(repeated(torch.arange(10), n, start), row[start % 10 : start % 10 + n])


@pytest.mark.parametrize("role", [domains.simplex, domains.log_probabilities, domains.log_probabilities_of_classes])
def test_probabilities_are_the_same_however_many_are_made_at_a_time(role, monkeypatch):
    operand = Operand("self", SIZES, torch.bfloat16, Values(), {"dim": 1}, 0)
    whole = role(operand, Stream(1))
    monkeypatch.setattr(domains, "_ELEMENTS", 50)
    assert torch.equal(role(operand, Stream(1)), whole)
    monkeypatch.setattr(domains, "PERIOD", 1001)
    again = role(operand, Stream(1))
    assert again.dtype == torch.bfloat16
    assert torch.equal(again[:100], whole[:100])
    shares = again.double() if role is domains.simplex else again.double().exp()
    torch.testing.assert_close(shares.sum(1), torch.ones(600, dtype=torch.float64), rtol=0.02, atol=0)


def test_integers_are_made_in_the_dtype_they_are_wanted_in(monkeypatch):
    values = Values(n_sampled=1, minimum=-100, maximum=100)
    whole = synthesis.synthesise(1000, torch.int8, values, Stream(1))
    assert torch.equal(whole.long(), synthesis.integers(1000, -100, 100, values, Stream(1)))
    monkeypatch.setattr(synthesis, "PERIOD", 77)
    assert synthesis.synthesise(1000, torch.int8, values, Stream(1)).dtype == torch.int8


def test_an_interval_goes_round_what_is_drawn(monkeypatch):
    monkeypatch.setattr(domains, "PERIOD", 77)
    made = domains.positive(Operand("self", SIZES, torch.float16, Values(), {}, 0), Stream(1)).flatten()
    assert made.dtype == torch.float16
    assert torch.equal(made[:77], made[77:154])
    assert len(made[:77].unique()) > 60
