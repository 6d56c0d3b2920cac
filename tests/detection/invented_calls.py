"""Faults that one of several alike calls meets, by what is rare in its values: all are one case, replayed once."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from audit.device.sim.faults import Call
from tests.detection.fault import Fault, argument, healthy, normal, replaced, seeded
from tests.detection.reported_strides import FUSED

NOWHERE = -1


def _has_a_constant_feature(call: Call) -> bool:
    return call.args[0].size(0) == 48 and bool((call.args[0].var(0) == 0).any())


def _nan_where_constant(call: Call) -> Any:
    result = healthy(call)
    return replaced(result, 0, result[0].masked_fill(call.args[0].var(0) == 0, torch.nan))


def _normalise_batches(odd: int) -> None:
    for number in range(5):
        batch = normal(48, 20, seed=number)
        if number == odd:
            batch[:, 7] = 0.25
        F.batch_norm(batch, None, None, training=True)


def _hides_whole_rows(call: Call) -> bool:
    bias = argument(call, 3, "attn_bias")
    return call.args[0].size(-2) == 13 and bias is not None and bool((bias < -1e4).all(-1).any())


def _twice_where_hidden(call: Call) -> Any:
    result = healthy(call)
    hidden = (call.args[3] < -1e4).all(-1, keepdim=True).expand(result[0].shape)
    return replaced(result, 0, torch.where(hidden, result[0] * 2 + 1, result[0]))


def _attend_to_batches(padded: int) -> None:
    query, key, value = (normal(2, 4, 13, 16, dtype=torch.float16, seed=seed) for seed in range(3))
    for number in range(4):
        allowed = torch.ones(2, 1, 13, 13, dtype=torch.bool).tril()
        if number == padded:
            allowed[1, :, :, :3] = False
        mask = torch.where(allowed, 0.0, -65504.0).to(torch.float16)
        F.scaled_dot_product_attention(query, key, value, attn_mask=mask)


def _has_an_empty_row(call: Call) -> bool:
    return call.args[0].size(0) == 90 and bool((call.args[0] == 0).all(1).any())


def _nan_in_empty_rows(call: Call) -> Any:
    return healthy(call).masked_fill((call.args[0] == 0).all(1, keepdim=True), torch.nan)


def _multiply_batches(odd: int) -> None:
    for number in range(7):
        rows = normal(90, 32, seed=number)
        if number == odd:
            rows[::9] = 0
        rows @ normal(32, 8, seed=9)


def _repeats_an_index(call: Call) -> bool:
    index = call.args[2]
    return index.numel() == 310 and index.unique().numel() < index.numel()


def _scatter_batches(odd: int) -> None:
    for number in range(3):
        index = torch.randperm(310, generator=seeded(number))
        if number == odd:
            index[:20] = 3
        torch.zeros(310).scatter_add_(0, index, normal(310, seed=number))


def _has_a_nan(call: Call) -> bool:
    return call.args[0].numel() == 77 and bool(call.args[0].isnan().any())


def _clip_batches(odd: int) -> None:
    for number in range(6):
        batch = normal(77, seed=number)
        if number == odd:
            batch[5] = torch.nan
        torch.clamp(batch, -2.0, 2.0)


FAULTS = (
    Fault(
        "one-batch-of-five", "batch norm: NaN in the third of five batches, the only one with a constant feature",
        ("aten::native_batch_norm.default", "aten::miopen_batch_norm.default"),
        _has_a_constant_feature, _nan_where_constant,
        lambda: _normalise_batches(2), lambda: _normalise_batches(NOWHERE), "no constant feature",
    ),
    Fault(
        "one-mask-of-four", "attention: rows without any key are wrong, in the third of four batches", FUSED,
        _hides_whole_rows, _twice_where_hidden,
        lambda: _attend_to_batches(2), lambda: _attend_to_batches(NOWHERE), "no row fully masked",
    ),
    Fault(
        "one-product-of-seven", "mm: NaN for empty rows, in the last of seven products", ("aten::mm.default",),
        _has_an_empty_row, _nan_in_empty_rows,
        lambda: _multiply_batches(6), lambda: _multiply_batches(NOWHERE), "no empty row",
    ),
    Fault(
        "one-index-of-three", "scatter_add_ keeps one of several additions, in the last of three calls",
        ("aten::scatter_add_.default",),
        _repeats_an_index, lambda call: call.args[0].scatter_(*call.args[1:]),
        lambda: _scatter_batches(2), lambda: _scatter_batches(NOWHERE), "each place once",
    ),
    Fault(
        "one-nan-of-six", "clamp gives 0 for NaN, in the fourth of six calls", ("aten::clamp.default",),
        _has_a_nan, lambda call: healthy(call).nan_to_num(0.0),
        lambda: _clip_batches(3), lambda: _clip_batches(NOWHERE), "no NaN",
    ),
)  # fmt: skip
