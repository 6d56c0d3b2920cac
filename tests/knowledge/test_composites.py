"""Composites that a tracer keeps whole are the same in a recording that another tool made."""

from __future__ import annotations

from audit.knowledge.dispatch import WHOLE_COMPOSITES, is_taken_apart, qualified
from audit.tracer.composites import COMPOSITES

#: Kept whole for one dtype alone, which a recording does not tell.
BY_DTYPE = {"softmax", "log_softmax"}


def test_what_the_tracer_keeps_whole_an_importer_keeps_whole() -> None:
    assert {
        f"aten::{name.partition('.')[0]}" for name in COMPOSITES if name.partition(".")[0] not in BY_DTYPE
    } == WHOLE_COMPOSITES


def test_only_what_is_made_of_other_ops_is_taken_apart() -> None:
    assert [
        name for name in ("linear", "matmul", "conv2d", "reshape", "to") if not is_taken_apart(f"aten::{name}")
    ] == []
    kept = ("mm", "convolution", "clone", "copy_", "layer_norm", "scaled_dot_product_attention", "no_such_op")
    assert [name for name in kept if is_taken_apart(f"aten::{name}")] == []


def test_an_overload_is_named_where_there_is_only_one() -> None:
    assert qualified("aten::bmm") == "aten::bmm.default"  # bmm.dtype has been there since 2.8, and is not what is meant
    assert qualified("aten::add") == "aten::add"
    assert qualified("mine::op") == "mine::op"
