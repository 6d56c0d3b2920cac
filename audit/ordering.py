"""Which cases cost the model most, guessed from shapes: what a limited audit replays first."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from audit.codec import tensors_of
from audit.schema import Case, TensorSpec

#: Multiply-adds that a GPU does in the time that it moves one byte (MI300X: about 700 TFLOP/s achievable in bf16
#: against 4 TB/s, https://rocm.docs.amd.com MI300X tuning guide). Only the order of magnitude matters here.
FLOPS_PER_BYTE = 175
_CONTRACTIONS = ("mm", "bmm", "addmm", "baddbmm", "_scaled_mm", "linear", "matmul")
#: A backward pass does the work of about two forward passes (one product per operand).
_BACKWARD_FACTOR = 3


def costliest_first(cases: Iterable[Case]) -> list[Case]:
    """The cases by falling guessed cost (calls times bytes moved or arithmetic done), ties by key."""
    return sorted(cases, key=lambda case: (-guessed_cost(case), case.key))


def guessed_cost(case: Case) -> float:
    """Calls times the larger of bytes touched and arithmetic over ``FLOPS_PER_BYTE``; no unit, only an order."""
    tensors = tensors_of(case.args, case.kwargs, case.grads)
    n_bytes = sum(prod(spec.sizes) * _itemsize(spec.dtype) for spec in tensors)
    work = max(float(n_bytes), _flops(case.op, tensors) / FLOPS_PER_BYTE)
    return case.n_calls * work * (_BACKWARD_FACTOR if case.grads is not None else 1)


def _itemsize(dtype: str) -> int:
    digits = "".join(c for c in dtype.split("_")[0] if c.isdigit())
    return max(int(digits or "8") // 8, 1)


def _flops(op: str, tensors: list[TensorSpec]) -> float:
    name = op.split("::")[-1].split(".")[0]
    if name in _CONTRACTIONS and len(tensors) >= 2:
        left, right = tensors[-2:]
        return 2.0 * prod(left.sizes) * (right.sizes[-1] if right.sizes else 1)
    if name.startswith("scaled_dot_product") and len(tensors) >= 2:
        query, key = tensors[:2]
        return 4.0 * prod(query.sizes) * (key.sizes[-2] if len(key.sizes) > 1 else 1)
    if name.startswith("convolution") and len(tensors) >= 2:
        # Every input element meets every filter tap of its group about once; strides make it less, padding more.
        weight = max(tensors[:3], key=lambda spec: len(spec.sizes) * 1000 - prod(spec.sizes))
        return (
            2.0 * prod(tensors[0].sizes) * prod(weight.sizes) / max(weight.sizes[1] if len(weight.sizes) > 1 else 1, 1)
        )
    if name in ("lstm", "gru", "rnn_tanh", "rnn_relu") and tensors:
        steps = prod(tensors[0].sizes[:2])
        return 2.0 * steps * sum(prod(spec.sizes) for spec in tensors[1:] if len(spec.sizes) == 2)
    return 0.0
