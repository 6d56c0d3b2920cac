"""Faults that nobody reported, of ops that sort, index, scatter, and of losses, embeddings and optimizers."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from audit.device.sim.faults import Call
from tests.detection.fault import Fault, healthy, normal, with_argument

TIES = torch.tensor([3, 1, 3, 1, 3, 2, 2, 1])


def _last_of_equals(call: Call) -> Any:
    """Equal elements in reverse order: wrong where a stable sort was asked for."""
    x = call.args[0]
    values, indices = x.flip(-1).sort(dim=-1, stable=True)
    return values, x.size(-1) - 1 - indices


def _shifted_index(call: Call) -> Any:
    values, indices = healthy(call)
    return values, (indices + 1) % call.args[0].size(-1)


def _unsorted(call: Call) -> Any:
    values, indices = healthy(call)
    return values.flip(-1), indices.flip(-1)


def _last_largest(call: Call) -> Any:
    x = call.args[0]
    return x.numel() - 1 - x.flatten().flip(0).argmax()


def _lost_duplicates(call: Call) -> Any:
    """Atomics lost: of several additions to one place the last one counts."""
    target, dim, index, source = call.args[:4]
    return (
        target.index_add(dim, index, source)
        if index.unique().numel() == index.numel()
        else target.index_copy(dim, index, target.index_select(dim, index) + source)
    )


def _scattered_once(call: Call) -> Any:
    target, dim, index, source = call.args[:4]
    return target.scatter(dim, index, target.gather(dim, index) + source)


def _clamped(call: Call) -> Any:
    """Negative indices are taken for 0."""
    indices = [None if index is None else index.clamp(min=0) for index in call.args[1]]
    return with_argument(call, 1, indices)


def _ignores_nothing(call: Call) -> Any:
    loss, weight = healthy(call)
    n = call.args[1].numel()
    return loss * weight / n, torch.full_like(weight, n)


def _padding_too(call: Call) -> Any:
    return with_argument(call, 3, -1)


def _without_decay(call: Call) -> Any:
    return call.run(*call.args, **{**call.kwargs, "weight_decay": 0.0})


def _only_thirty(call: Call) -> Any:
    """A fused op over a list forgets the tensors beyond its first launch."""
    before = [x.clone() for x in call.args[0]]
    healthy(call)
    for x, old in list(zip(call.args[0], before, strict=True))[30:]:
        x.copy_(old)
    return None


def _nearest_corners(call: Call) -> Any:
    return with_argument(call, 2, not call.args[2])


def _right_for_left(call: Call) -> Any:
    return call.run(*call.args, **{**call.kwargs, "right": not call.kwargs.get("right", False)})


def _upper_median(call: Call) -> Any:
    x = call.args[0]
    values, indices = x.sort(-1)
    return values[..., x.size(-1) // 2], indices[..., x.size(-1) // 2]


def _adam(decay: float) -> None:
    weight = torch.nn.Parameter(normal(40))
    optimizer = torch.optim.AdamW([weight], lr=0.1, weight_decay=decay, fused=True)
    weight.square().sum().backward()
    optimizer.step()


def _add_lists(n: int) -> None:
    torch._foreach_add_([normal(5, seed=i) for i in range(n)], 1.0)


def _embedded(padding: int | None) -> None:
    weight = normal(10, 4).requires_grad_()
    F.embedding(torch.tensor([1, 3, 3, 7]), weight, padding_idx=padding).square().sum().backward()


def _nll(ignored: bool) -> torch.Tensor:
    target = torch.tensor([0, 2, 1, -100 if ignored else 1])
    return F.nll_loss(normal(4, 3).log_softmax(-1), target)


FAULTS = (
    Fault(
        "sort-not-stable", "a stable sort reverses equal elements", ("aten::sort.stable",),
        lambda call: call.kwargs.get("stable") is True, _last_of_equals,
        lambda: TIES.sort(stable=True), lambda: torch.arange(8).sort(stable=True), "no equal elements",
    ),
    Fault(
        "sort-reverses-ties", "a sort that need not be stable reverses equal elements (allowed)",
        ("aten::sort.default",), lambda call: True, _last_of_equals,
        lambda: TIES.sort(), lambda: torch.arange(8).sort(), "no equal elements", expected="supported", codes=(),
    ),
    Fault(
        "argmax-of-the-last", "argmax gives the last of equal elements (allowed)", ("aten::argmax.default",),
        lambda call: True, _last_largest,
        lambda: TIES.argmax(), lambda: torch.arange(8).argmax(), "no equal elements", expected="supported", codes=(),
    ),
    Fault(
        "topk-wrong-index", "topk gives right values and the neighbours' places", ("aten::topk.default",),
        lambda call: call.args[0].size(-1) > 64, _shifted_index,
        lambda: normal(4, 100).topk(5), lambda: normal(4, 50).topk(5), "up to 64",
    ),
    Fault(
        "topk-unsorted", "topk is asked for sorted values and gives them in reverse", ("aten::topk.default",),
        lambda call: call.args[1] == 3, _unsorted,
        lambda: normal(4, 30).topk(3), lambda: normal(4, 30).topk(4), "another k",
    ),
    Fault(
        "atomics-lost", "index_add_ loses additions to one place", ("aten::index_add_.default",),
        lambda call: call.args[2].numel() < 100, _lost_duplicates,
        lambda: torch.zeros(5, 3).index_add_(0, torch.tensor([1, 1, 4, 1]), normal(4, 3)),
        lambda: torch.zeros(5, 3).index_add_(0, torch.tensor([1, 2, 4, 0]), normal(4, 3)), "each place once",
    ),
    Fault(
        "scatter-add-once", "scatter_add keeps one of several additions", ("aten::scatter_add.default",),
        lambda call: True, _scattered_once,
        lambda: torch.zeros(9).scatter_add(0, torch.tensor([1, 1, 8, 1]), normal(4)),
        lambda: torch.zeros(9).scatter_add(0, torch.tensor([1, 2, 8, 0]), normal(4)), "each place once",
    ),
    Fault(
        "negative-index", "negative indices are taken for 0", ("aten::index.Tensor",),
        lambda call: any(i is not None and bool((i < 0).any()) for i in call.args[1]), _clamped,
        lambda: normal(6, 3)[torch.tensor([0, -1, 2])], lambda: normal(6, 3)[torch.tensor([0, 5, 2])], "none negative",
    ),
    Fault(
        "mask-ignored", "masked_fill leaves the last row of a broadcast mask out", ("aten::masked_fill.Scalar",),
        lambda call: call.args[1].dim() < call.args[0].dim(),
        lambda call: torch.cat([healthy(call)[:-1], call.args[0][-1:]]),
        lambda: normal(4, 6).masked_fill(torch.arange(6) > 3, 0.0),
        lambda: normal(4, 6).masked_fill((torch.arange(6) > 3).expand(4, 6), 0.0), "an expanded one",
    ),
    Fault(
        "bucket-side", "bucketize confuses left and right", ("aten::bucketize.Tensor",),
        lambda call: True, _right_for_left,
        lambda: torch.bucketize(torch.tensor([1.0, 2.5, 3.0]), torch.tensor([1.0, 2.0, 3.0])),
        lambda: torch.bucketize(torch.tensor([1.5, 2.5, 3.5]), torch.tensor([1.0, 2.0, 3.0])), "nothing on an edge",
    ),
    Fault(
        "median-upper", "the median of an even number is the upper one", ("aten::median.dim",),
        lambda call: True, _upper_median,
        lambda: normal(3, 8).median(-1), lambda: normal(3, 7).median(-1), "an odd number",
    ),
    Fault(
        "ignored-class-counts", "nll_loss divides by all targets", ("aten::nll_loss_forward.default",),
        lambda call: bool((call.args[1] == call.args[4]).any()), _ignores_nothing,
        lambda: _nll(ignored=True), lambda: _nll(ignored=False), "none ignored",
    ),
    Fault(
        "padding-gradient", "the gradient of the padding row is not 0", ("aten::embedding_dense_backward.default",),
        lambda call: call.args[3] >= 0, _padding_too,
        lambda: _embedded(3), lambda: _embedded(None), "no padding",
    ),
    Fault(
        "decay-ignored", "a fused AdamW step leaves weight decay out", ("aten::_fused_adamw_.default",),
        lambda call: call.kwargs.get("weight_decay", 0) > 0.05, _without_decay,
        lambda: _adam(0.1), lambda: _adam(0.0), "no decay",
    ),
    Fault(
        "list-tail-forgotten", "an op over a list forgets the tensors beyond 30", ("aten::_foreach_add_.Scalar",),
        lambda call: len(call.args[0]) > 30, _only_thirty,
        lambda: _add_lists(33), lambda: _add_lists(30), "30 tensors",
    ),
    Fault(
        "align-corners", "bicubic resizing takes align_corners for its opposite", ("aten::upsample_bicubic2d.default",),
        lambda call: True, _nearest_corners,
        lambda: F.interpolate(normal(1, 2, 6, 6), size=(9, 9), mode="bicubic"),
        lambda: F.interpolate(normal(1, 2, 6, 6), size=(6, 6), mode="bicubic"), "the same size",
    ),
)  # fmt: skip
