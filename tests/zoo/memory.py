"""Odd tensors: views written in place, nothing in them, shapes that depend on data, pinned, on the host, random."""

from __future__ import annotations

import torch
from torch import nn

from tests.zoo.program import device, train


def views_written_in_place() -> list[torch.Tensor]:
    base = torch.zeros(6, 8, device=device())
    base[1:3].add_(1)
    base[:, ::2].mul_(3)
    base.t()[2].copy_(torch.arange(6.0, device=device()))
    base.view(-1)[::5].exp_()
    base.diagonal().fill_(7)
    base[base > 5] = -1
    base[torch.tensor([0, 2], device=device())] += 1
    part = base.unfold(1, 4, 2)
    grown = torch.zeros(3, 1, device=device()).expand(3, 4)
    leaf = torch.randn(4, 4, device=device(), requires_grad=True)
    work = leaf.clone()
    work[0].mul_(3)
    work[:, 1:3] *= 2
    work.transpose(0, 1).narrow(0, 1, 2).sub_(1)
    work.sum().backward()
    resized = torch.empty(0, device=device()).resize_(4).fill_(2.0)
    out = torch.empty(4, 4, device=device())
    torch.add(leaf.detach(), 1, out=out)
    base.unsqueeze_(0).squeeze_(0).transpose_(0, 1)
    overlapping = torch.arange(10.0, device=device()).as_strided((4, 4), (2, 1))
    return [base, part.clone(), grown.sum(1), work.detach(), leaf.grad, resized, out, overlapping.cumsum(1)]


def empty_and_scalar_tensors() -> list[torch.Tensor]:
    nothing = torch.empty(0, 4, device=device(), requires_grad=True)
    linear = nn.Linear(4, 3).to(device())
    out = linear(nothing)
    scalar = torch.tensor(2.0, device=device(), requires_grad=True)
    loss = out.sum() + scalar.exp() * scalar + nn.functional.softmax(nothing, -1).sum()
    loss.backward()
    joined = torch.cat([nothing.detach(), torch.ones(2, 4, device=device())])
    product = torch.empty(3, 0, device=device()) @ torch.empty(0, 5, device=device())
    nan = torch.empty(0, device=device()).mean()
    best = torch.tensor([3.0, 9.0], device=device()).max()
    return [
        loss.detach(), nothing.grad, scalar.grad, linear.weight.grad, joined, product, nan, best,
        torch.zeros(2, 0, 3, device=device()).permute(2, 0, 1), torch.stack([scalar.detach(), best]).prod(),
    ]  # fmt: skip


def data_dependent_shapes() -> list[torch.Tensor]:
    x = torch.randint(0, 6, (4, 5), device=device())
    values, inverse, counts = torch.unique(x, return_inverse=True, return_counts=True)
    rows, repeats = torch.unique_consecutive(x.flatten().sort().values, return_counts=True)
    boxes = torch.rand(6, device=device())
    kept = torch.nonzero(boxes > boxes.median()).squeeze(1)
    order = boxes[kept].argsort(descending=True)
    return [
        x.nonzero(), values, inverse, counts, rows, repeats, x[x > 2], kept[order], torch.where(x > 3)[0],
        torch.masked_select(x, x.bool()), torch.repeat_interleave(rows, repeats), torch.histc(boxes, 4),
        torch.bincount(x.flatten()), boxes.topk(2).values, torch.searchsorted(boxes.sort().values, 0.5),
        torch.argwhere(x == 1), torch.combinations(rows[:3]), boxes.new_tensor(x.max().item()),
    ]  # fmt: skip


def pinned_memory_copies() -> list[torch.Tensor]:
    host = torch.randn(16, 4)
    if torch.cuda.is_available():
        host = host.pin_memory()
    on_device = host.to(device(), non_blocking=True)
    back = torch.empty(16, 4, pin_memory=torch.cuda.is_available())
    back.copy_(on_device * 2, non_blocking=True)
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return [on_device.sum(0).cpu(), back.clone()]


def generators() -> list[torch.Tensor]:
    own = torch.Generator(device()).manual_seed(11)
    x = torch.rand(50, generator=own, device=device())
    state = own.get_state()
    drawn = [
        torch.randn(4, 3, generator=own, device=device()), torch.randint(0, 9, (6,), generator=own, device=device()),
        torch.randperm(7, generator=own, device=device()), torch.multinomial(x, 5, generator=own),
        torch.bernoulli(x, generator=own), torch.normal(0.0, x + 0.1, generator=own),
        torch.empty(5, device=device()).uniform_(-1, 1, generator=own), torch.poisson(x * 3, generator=own),
        torch.empty(5, device=device()).exponential_(generator=own),
        torch.empty(5, device=device()).cauchy_(generator=own), torch.empty(5, device=device()).log_normal_(),
        torch.empty(5, device=device()).geometric_(0.3), torch.empty(4, device=device()).random_(0, 10),
        torch.nn.init.trunc_normal_(torch.empty(4, 4, device=device())),
    ]  # fmt: skip
    return [x, *drawn, own.get_state(), state]


def scalars_on_the_host() -> list[torch.Tensor]:
    """0-dim CPU tensors beside device tensors: allowed, and they stay on the host."""
    x = torch.randn(3, 4, device=device())
    scale, shift = torch.tensor(0.5), torch.tensor(2, dtype=torch.int64)
    filled = x.masked_fill(x > 0, torch.tensor(-1.0))
    x[0, 0] = torch.tensor(9.0)
    return [x * scale + shift, filled, torch.where(x > 0, x, torch.tensor(0.0)), x.clone().fill_(scale), x / shift]


def random_losses() -> list[torch.Tensor]:
    """Losses and activations that a plain network does not use."""
    model, x = nn.Linear(8, 6).to(device()), torch.randn(5, 8, device=device())
    labels = torch.randint(0, 6, (5,), device=device())
    slope = torch.tensor([0.2], device=device())
    f = nn.functional

    def forward() -> torch.Tensor:
        logits = model(x)
        target = torch.rand_like(logits)
        signs = torch.where(torch.arange(5, device=device()) % 2 == 0, 1.0, -1.0)
        return (
            f.binary_cross_entropy_with_logits(logits, target) + f.smooth_l1_loss(logits, target)
            + f.huber_loss(logits, target) + f.kl_div(logits.log_softmax(-1), target.softmax(-1), reduction="batchmean")
            + f.nll_loss(logits.log_softmax(-1), labels) + f.multi_margin_loss(logits, labels)
            + f.cosine_embedding_loss(logits, target, signs) + f.triplet_margin_loss(logits, target, logits.flip(0))
            + f.gumbel_softmax(logits, hard=True).mean() + f.softplus(logits).mean() + f.mish(logits).mean()
            + f.glu(logits).mean() + f.hardswish(logits).mean() + f.prelu(logits, slope).mean()
            + f.logsigmoid(logits).mean() + f.rrelu(logits, training=True).mean() + f.celu(logits).mean()
            + f.hardtanh(logits).mean() + f.local_response_norm(logits[:, None], 2).mean()
        )  # fmt: skip

    return train(model, forward)
