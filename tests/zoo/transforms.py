"""Programs that change how they are run: torch.func, torch.compile, higher-order ops, custom ops, checkpointing."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

from tests.zoo.program import device, gradients, train


def _network() -> nn.Sequential:
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 3)).to(device())


def activation_checkpointing() -> list[torch.Tensor]:
    """Reentrant, not reentrant with dropout, and selective."""
    blocks = nn.ModuleList([nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Dropout(0.2)) for _ in range(3)]).to(device())
    x = torch.randn(4, 8, device=device(), requires_grad=True)

    def contexts() -> Any:
        return create_selective_checkpoint_contexts(
            lambda ctx, op, *args, **kwargs: (
                CheckpointPolicy.MUST_SAVE if op is torch.ops.aten.addmm.default else CheckpointPolicy.PREFER_RECOMPUTE
            )
        )

    def forward() -> torch.Tensor:
        hidden = checkpoint(blocks[0], x, use_reentrant=True)
        hidden = checkpoint(blocks[1], hidden, use_reentrant=False)
        return checkpoint(blocks[2], hidden, use_reentrant=False, context_fn=contexts).square().mean()

    return [*train(blocks, forward), x.grad.clone()]


def func_grad_and_vmap() -> list[torch.Tensor]:
    """Gradients per sample, a Jacobian, a Hessian, an ensemble: torch.func as its tutorials have it."""
    model = _network()
    parameters = {name: p.detach() for name, p in model.named_parameters()}
    x, y = torch.randn(5, 8, device=device()), torch.randint(0, 3, (5,), device=device())

    def loss(parameters: dict[str, torch.Tensor], x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        logits = torch.func.functional_call(model, parameters, (x.unsqueeze(0),))
        return nn.functional.cross_entropy(logits, y.unsqueeze(0))

    per_sample = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))(parameters, x, y)
    jacobian = torch.func.jacrev(lambda x: torch.func.functional_call(model, parameters, (x,)))(x[0])
    hessian = torch.func.hessian(lambda x: torch.tanh(x).pow(2).sum())(x[0])
    ensemble, buffers = torch.func.stack_module_state([_network() for _ in range(3)])

    def one(parameters: Any, buffers: Any, x: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(model, (parameters, buffers), (x,))

    outputs = torch.func.vmap(one, in_dims=(0, 0, None))(ensemble, buffers, x)
    return [*(grad.detach() for grad in per_sample.values()), jacobian.detach(), hessian, outputs.detach()]


def func_forward_mode() -> list[torch.Tensor]:
    model = _network()
    x, direction = torch.randn(4, 8, device=device()), torch.randn(4, 8, device=device())
    value, tangent = torch.func.jvp(lambda x: model(x).softmax(-1), (x,), (direction,))
    forward = torch.func.jacfwd(lambda x: x.sin().cumsum(0))(x[0])
    _, pull = torch.func.vjp(lambda x: x.exp().sum(-1), x)
    return [value.detach(), tangent.detach(), forward, *pull(torch.ones(4, device=device()))]


def func_vmap_of_composites() -> list[torch.Tensor]:
    """Composites under vmap: attention, batch norm without statistics, dropout, embedding."""
    q, k, v = (torch.randn(3, 2, 4, 8, device=device()) for _ in range(3))
    attended = torch.func.vmap(nn.functional.scaled_dot_product_attention)(q, k, v)
    normed = torch.func.vmap(lambda x: nn.functional.layer_norm(x, (8,)))(q)
    dropped = torch.func.vmap(lambda x: nn.functional.dropout(x, 0.3), randomness="different")(q)
    batch = torch.func.vmap(lambda x: nn.functional.batch_norm(x, None, None, training=True))(q)
    return [attended, normed, dropped, batch]


def compiled_training() -> list[torch.Tensor]:
    model = _network()
    compiled = torch.compile(model)
    x = torch.randn(4, 8, device=device())
    return train(model, lambda: compiled(x).square().mean())


def flex_attention_inference() -> list[torch.Tensor]:
    """Forward alone: on the CPU torch has no backward of it."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    q, k, v = (torch.randn(1, 2, 128, 16, device=device()) for _ in range(3))
    mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, 128, 128, device=device())
    with torch.no_grad():
        return [flex_attention(q, k, v, score_mod=lambda s, b, h, i, j: s + 0.1 * (i - j), block_mask=mask)]


def control_flow_ops() -> list[torch.Tensor]:
    from torch._higher_order_ops import associative_scan, while_loop

    x = torch.randn(4, 3, device=device())
    chosen = torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (x,))
    count, grown = while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x * 2), (torch.tensor(0, device=device()), x))
    scanned = associative_scan(lambda a, b: a + b, x, 0, combine_mode="generic")
    return [chosen, count, grown, scanned]


@torch.library.custom_op("zoo::scaled_sine", mutates_args=())
def scaled_sine(x: torch.Tensor, scale: float) -> torch.Tensor:
    return x.sin() * scale


@scaled_sine.register_fake
def _(x: torch.Tensor, scale: float) -> torch.Tensor:
    return torch.empty_like(x)


def _keep(ctx: Any, inputs: tuple[torch.Tensor, float], output: torch.Tensor) -> None:
    ctx.save_for_backward(inputs[0])
    ctx.scale = inputs[1]


scaled_sine.register_autograd(
    lambda ctx, grad: (grad * ctx.saved_tensors[0].cos() * ctx.scale, None), setup_context=_keep
)


def custom_library_op() -> list[torch.Tensor]:
    model, x = _network(), torch.randn(4, 8, device=device())
    return train(model, lambda: scaled_sine(model(x), 0.5).square().mean())


class StraightThrough(torch.autograd.Function):
    """Rounds forward, passes the gradient on where it was not clipped."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x.clamp(-1, 1).mul(8).round().div(8)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        (x,) = ctx.saved_tensors
        return grad * (x.abs() <= 1)


def custom_autograd_function() -> list[torch.Tensor]:
    model, x = _network(), torch.randn(4, 8, device=device())
    return train(model, lambda: StraightThrough.apply(model(x)).square().mean())


def double_backward() -> list[torch.Tensor]:
    """A gradient penalty, and hooks on tensors and modules."""
    model = _network()
    seen: list[torch.Tensor] = []
    model[1].register_forward_hook(lambda module, args, output: seen.append(output.detach().clone()))
    x = torch.randn(4, 8, device=device(), requires_grad=True)
    out = model(x)
    out.register_hook(lambda grad: grad * 2)
    [slope] = torch.autograd.grad(out.sum(), x, create_graph=True)
    (slope.norm(2, dim=1) - 1).square().mean().backward()
    return [*seen, slope.detach(), *gradients(model)]
