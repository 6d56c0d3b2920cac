"""Only the products that a library gives to its matrix units are changed, forward and backward."""

from __future__ import annotations

import pytest
import torch

from audit.replay.inner_products import ChangedProducts, Keeps, one_row, one_step


def net(keeps: Keeps, n_sequences: int) -> dict[str, torch.Tensor]:
    """Of a recurrent net over four steps whose products give nothing, but for those that ``keeps``: what is left."""
    torch.manual_seed(0)
    layer = torch.nn.RNN(5, 6).double()
    inputs = torch.randn(4, n_sequences, 5, dtype=torch.float64, requires_grad=True)
    state = torch.randn(1, n_sequences, 6, dtype=torch.float64, requires_grad=True)
    with ChangedProducts(torch.zeros_like, keeps):
        out, _ = layer(inputs, state)
        out.sum().backward()
    nothing, _ = layer(torch.zeros_like(inputs), state)
    assert state.grad is not None
    assert inputs.grad is not None
    assert layer.weight_hh_l0.grad is not None
    return {
        "inputs": nothing - out,
        "states": out[0, 0] - torch.tanh(layer.bias_ih_l0 + layer.bias_hh_l0),
        "gradient of the state": state.grad,
        "gradient of the inputs": inputs.grad,
        "gradient of a weight": layer.weight_hh_l0.grad,
    }


@pytest.mark.parametrize(("keeps", "n_sequences"), [(one_step, 3), (one_step, 1), (one_row, 1)])
def test_steps_are_kept_and_what_covers_all_of_them_is_changed(keeps: Keeps, n_sequences: int) -> None:
    left = net(keeps, n_sequences)
    changed = {"inputs", "gradient of the inputs", "gradient of a weight"}
    assert {name for name, tensor in left.items() if not bool(tensor.any())} == changed


def test_a_step_of_several_sequences_is_a_product_like_others() -> None:
    left = net(one_row, 3)
    changed = {"states", "gradient of the state", "gradient of the inputs", "gradient of a weight"}
    assert {name for name, tensor in left.items() if not bool(tensor.any())} == changed


def test_single_precision_is_left_alone() -> None:
    left, right = torch.randn(2, 3), torch.randn(3, 4)
    with ChangedProducts(torch.zeros_like, one_row):
        assert torch.equal(left @ right, torch.mm(left, right))
        assert bool((left @ right).any())
        assert not bool((left.double() @ right.double()).any())
