"""Ops that take plain tensors and give nested, sparse or quantised ones, which no replay can compare."""

from __future__ import annotations

import re

from audit.tracer.signature import Folded

_FORMS = (
    (re.compile(r"aten::_nested_(tensor_from_(mask|tensor_list|jagged)|view_from_buffer|from_padded)"), "nested"),
    (re.compile(r"aten::(_?sparse_(coo|csr|csc|bsr|bsc|compressed)_tensor|_?to_sparse)"), "sparse"),
    (re.compile(r"aten::(quantize_per_|_empty_(affine|per_channel_affine)_quantized|_make_per_)"), "quantised"),
)
#: Ops whose gradients are sparse where the argument at this place is true.
_SPARSE_GRADIENTS = {"aten::embedding_bag.default": 5, "aten::embedding_bag.padding_idx": 5}


def form_of_result(op: str, folded: Folded) -> str:
    """Why calls of ``op`` are no cases for what they give, or an empty string. ``folded`` is a whole call."""
    for pattern, form in _FORMS:
        if pattern.match(op) and not op.startswith("aten::_nested_tensor_from_mask_left_aligned"):
            return f"not strided result ({form})"
    place, args = _SPARSE_GRADIENTS.get(op), folded[0]
    return "not strided result (sparse gradients)" if place is not None and args[place : place + 1] == (True,) else ""
