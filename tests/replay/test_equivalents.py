"""CPU equivalents against independent implementations of the same formulas in torch, in double precision."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from audit.replay.equivalents import EQUIVALENTS, equivalent_of


def rand(*sizes: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(sizes, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def heads() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return rand(2, 3, 5, 8, seed=1), rand(2, 3, 7, 8, seed=2), rand(2, 3, 7, 8, seed=3)


def close(actual, expected) -> None:
    torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-12)


def run(name: str, *args, **kwargs):
    function = equivalent_of(f"aten::{name}.default")
    assert function is not None
    return function(*args, **kwargs)


def test_every_equivalent_stands_for_an_op_of_this_torch():
    assert [name for name in EQUIVALENTS if not hasattr(torch.ops.aten, name.split("::")[1])] == []


def test_an_op_without_an_equivalent_has_none():
    assert equivalent_of("aten::mm.default") is None


def test_flash_attention_is_softmax_attention():
    q, k, v = heads()
    output, lse, *_ = run("_scaled_dot_product_flash_attention", q, k, v, 0.0, False, scale=0.3)
    close(output, F.scaled_dot_product_attention(q, k, v, scale=0.3))
    close(lse, torch.logsumexp(q @ k.transpose(-2, -1) * 0.3, -1))


def test_efficient_attention_takes_a_bias_and_a_causal_mask():
    q, k, v = heads()
    bias = rand(2, 3, 5, 7, seed=4)
    output, lse, *_ = run("_scaled_dot_product_efficient_attention", q, k, v, bias, True)
    close(output, F.scaled_dot_product_attention(q, k, v, attn_mask=bias))
    assert lse is not None
    causal, none, *_ = run("_scaled_dot_product_efficient_attention", q, k, v, None, False, 0.0, True)
    close(causal, F.scaled_dot_product_attention(q, k, v, is_causal=True))
    assert none is None


def test_fewer_key_heads_are_shared_by_groups_of_query_heads():
    q, k, v = rand(1, 4, 5, 8), rand(1, 2, 5, 8, seed=1), rand(1, 2, 5, 8, seed=2)
    output, *_ = run("_scaled_dot_product_flash_attention", q, k, v)
    close(output, F.scaled_dot_product_attention(q, k, v, enable_gqa=True))


def test_flash_attention_forward_has_length_before_heads():
    q, k, v = heads()
    swapped = [t.transpose(1, 2) for t in (q, k, v)]
    output, *_ = run("_flash_attention_forward", *swapped, None, None, 5, 7, 0.0, False, False)
    close(output.transpose(1, 2), F.scaled_dot_product_attention(q, k, v))


def test_attention_backward_is_the_gradient_of_the_forward():
    q, k, v = (t.requires_grad_() for t in heads())
    grad = rand(2, 3, 5, 8, seed=9)
    expected = torch.autograd.grad(F.scaled_dot_product_attention(q, k, v), (q, k, v), grad)
    flash = run(
        "_scaled_dot_product_flash_attention_backward", grad, q, k, v, *[None] * 4, 5, 7, 0.0, False, None, None
    )
    close(flash, expected)
    efficient = run(
        "_scaled_dot_product_efficient_attention_backward", grad, q, k, v, *[None] * 5, 0.0, [True, True, False, False]
    )
    close(efficient[:2], expected[:2])
    assert efficient[2:] == (None, None)


def test_miopen_convolution_is_a_convolution():
    x, w, b = rand(2, 4, 9, 9), rand(6, 2, 3, 3, seed=1), rand(6, seed=2)
    close(
        run("miopen_convolution", x, w, b, [1, 2], [2, 1], [1, 1], 2, False, False),
        F.conv2d(x, w, b, stride=(2, 1), padding=(1, 2), groups=2),
    )
    close(
        run("cudnn_convolution", x, w, [1, 1], [1, 1], [2, 2], 2, False, False, True),
        F.conv2d(x, w, padding=1, dilation=2, groups=2),
    )
    close(run("miopen_convolution_relu", x, w, b, [1, 1], [0, 0], [1, 1], 2), F.relu(F.conv2d(x, w, b, groups=2)))


def test_miopen_transposed_convolution_is_one():
    x, w, b = rand(2, 4, 5, 5), rand(4, 3, 3, 3, seed=1), rand(3, seed=2)
    close(
        run("miopen_convolution_transpose", x, w, b, [1, 1], [1, 1], [2, 2], [1, 1], 1, False, False),
        F.conv_transpose2d(x, w, b, stride=2, padding=1, output_padding=1),
    )


def test_miopen_batch_norm_updates_its_statistics():
    x, weight, bias = rand(4, 3, 5), rand(3, seed=1), rand(3, seed=2)
    means = [torch.zeros(3, dtype=torch.float64) for _ in range(2)]
    variances = [torch.ones(3, dtype=torch.float64) for _ in range(2)]
    output, *_ = run("miopen_batch_norm", x, weight, bias, means[0], variances[0], True, 0.1, 1e-5)
    close(output, F.batch_norm(x, means[1], variances[1], weight, bias, True, 0.1, 1e-5))
    close(means[0], means[1])
    close(variances[0], variances[1])


def test_fused_cells_are_the_cells_of_torch():
    x, h, c = rand(2, 5), rand(2, 4, seed=1), rand(2, 4, seed=2)
    for gates, name in ((4, "lstm"), (3, "gru")):
        wi, wh = rand(gates * 4, 5, seed=3), rand(gates * 4, 4, seed=4)
        bi, bh = rand(gates * 4, seed=5), rand(gates * 4, seed=6)
        if name == "lstm":
            hy, cy, _ = run("_thnn_fused_lstm_cell", x @ wi.t(), h @ wh.t(), c, bi, bh)
            close((hy, cy), torch.lstm_cell(x, (h, c), wi, wh, bi, bh))
        else:
            hy, _ = run("_thnn_fused_gru_cell", x @ wi.t(), h @ wh.t(), h, bi, bh)
            close(hy, torch.gru_cell(x, h, wi, wh, bi, bh))


def test_miopen_rnn_is_a_recurrent_net():
    net = torch.nn.LSTM(5, 4, num_layers=2, bidirectional=True).double()
    x, h, c = rand(6, 2, 5), rand(4, 2, 4, seed=1), rand(4, 2, 4, seed=2)
    weights = [w.detach() for w in net._flat_weights]
    output, hy, cy, *private = run("miopen_rnn", x, weights, 4, h, c, 2, 4, 2, False, 0.0, False, True, [], None)
    close((output, (hy, cy)), net(x, (h, c)))
    assert private == [None, None]


def test_fused_adam_is_adam():
    for decoupled, name in ((False, "_fused_adam_"), (True, "_fused_adamw_")):
        start, grad = rand(7), rand(7, seed=1)
        param = torch.nn.Parameter(start.clone())
        cls = torch.optim.AdamW if decoupled else torch.optim.Adam
        optimizer = cls([param], lr=0.01, weight_decay=0.1, amsgrad=True, foreach=False)
        ours = [start.clone(), *(torch.zeros(7, dtype=torch.float64) for _ in range(3))]
        for step in (1.0, 2.0):
            param.grad = grad.clone()
            optimizer.step()
            lists = [[ours[0]], [grad], [ours[1]], [ours[2]], [ours[3]], [torch.tensor(step, dtype=torch.float64)]]
            run(name, *lists, lr=0.01, beta1=0.9, beta2=0.999, weight_decay=0.1, eps=1e-8, amsgrad=True, maximize=False)
        close(ours[0], param.detach())


def test_the_backward_of_fused_cells_is_that_of_their_formulas():
    input_gates, hidden_gates, cx, hx = (rand(2, n, seed=n) for n in (12, 13, 3, 4))
    hidden_gates, hx = hidden_gates[:, :12], hx[:, :3]
    grad_hy, grad_cy = rand(2, 3, seed=5), rand(2, 3, seed=6)
    leaf, cell = input_gates.clone().requires_grad_(), cx.clone().requires_grad_()
    hy, cy, _ = run("_thnn_fused_lstm_cell", leaf, hidden_gates, cell)
    gates = (input_gates + hidden_gates).chunk(4, 1)
    workspace = torch.cat([gates[2].tanh() if place == 2 else gate.sigmoid() for place, gate in enumerate(gates)], 1)
    found = run("_thnn_fused_lstm_cell_backward_impl", grad_hy, grad_cy, cx, cy.detach(), workspace, True)
    wanted = torch.autograd.grad((hy, cy), (leaf, cell), (grad_hy, grad_cy))
    close(found, (*wanted, wanted[0].sum(0)))

    x, h, state = (t[:, :n].clone().requires_grad_() for t, n in ((input_gates, 9), (hidden_gates, 9), (hx, 3)))
    hy, _ = run("_thnn_fused_gru_cell", x, h, state)
    (xr, xz, xn), (hr, hz, hn) = x.detach().chunk(3, 1), h.detach().chunk(3, 1)
    r, z = (xr + hr).sigmoid(), (xz + hz).sigmoid()
    workspace = torch.cat([r, z, (xn + r * hn).tanh(), state.detach(), hn], 1)
    found = run("_thnn_fused_gru_cell_backward", grad_hy, workspace, False)
    close(found[:3], torch.autograd.grad(hy, (x, h, state), grad_hy))
    assert found[3:] == (None, None)


def test_the_backward_of_a_recurrent_net_is_that_of_torchs_own():
    lstm = torch.nn.LSTM(4, 3, num_layers=2, bidirectional=True).double()
    x, hx, cx = rand(5, 2, 4), rand(4, 2, 3, seed=1), rand(4, 2, 3, seed=2)
    leaves = [t.clone().requires_grad_() for t in (x, hx, cx)]
    output, (hy, cy) = lstm(leaves[0], (leaves[1], leaves[2]))
    grads = torch.randn_like(output), torch.randn_like(hy), torch.randn_like(cy)
    weights = list(lstm.parameters())
    wanted = torch.autograd.grad((output, hy, cy), (*leaves, *weights), grads)
    found = run(
        "miopen_rnn_backward", x, weights, 4, None, hx, cx, None, *grads, 2, 3, 2, False, 0.0, True, True, [], None,
        None, [True] * 4,
    )  # fmt: skip
    close((*found[:3], *found[3]), wanted)
    found = run(
        "_cudnn_rnn_backward", x, weights, 4, None, hx, cx, None, *grads, 2, 3, 0, 2, False, 0.0, True, True, [], None,
        None, [False, False, False, True],
    )  # fmt: skip
    assert found[:3] == (None, None, None)
    close(tuple(found[3]), wanted[3:])


def test_softmax_from_half_to_float_is_softmax():
    x = rand(4, 6)
    close(run("_softmax", x, -1, True), x.exp() / x.exp().sum(-1, keepdim=True))
    close(run("_log_softmax", x, 0, True), x - x.exp().sum(0).log())
