"""Operands that no memory here can hold are refused with a sentence, and nothing is asked of the allocator."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from audit.replay import host_memory
from audit.replay.reference import Reference


@pytest.fixture
def outcome(build, tmp_path: Path):
    def prepare(sizes: tuple[int, ...], **layout: Any) -> dict[str, Any]:
        case = build.case("aten::neg.default", build.tensor(sizes, **layout))
        answer = Reference(None, tmp_path, seed=0).prepare(case)
        return {**answer["outcome"], "device_may_run": answer["device_may_run"]}

    return prepare


@pytest.mark.parametrize(
    ("sizes", "layout", "needs"),
    [
        ((1 << 40,), {}, "4,096.0"),
        ((4,), {"offset": 1 << 40}, "4,096.0"),
        ((4,), {"extent": 1 << 42}, "16,384.0"),
        ((2, 2), {"strides": (1 << 40, 1)}, "4,096.0"),
    ],
)
def test_operands_of_terabytes_are_refused(outcome, sizes, layout, needs, monkeypatch) -> None:
    monkeypatch.setattr(torch, "zeros", lambda *_, **__: pytest.fail("memory was asked for"))
    answer = outcome(sizes, **layout)
    assert answer["kind"] == "out_of_memory"
    assert answer["message"].startswith(f"its operands take {needs} GiB, and this machine has ")
    assert not answer["device_may_run"]


def test_one_element_that_is_expanded_to_terabytes_is_one_element(build) -> None:
    assert host_memory.refusal(build.case("aten::neg.default", build.tensor((1 << 40,), strides=(0,)))) == ""


def test_a_container_has_the_memory_that_it_was_given(monkeypatch, tmp_path: Path) -> None:
    whole = host_memory.host_memory_bytes.__wrapped__()
    assert whole >= 1 << 28
    for limit, expected in (("1048576\n", 1 << 20), ("max\n", None)):
        (tmp_path / "memory.max").write_text(limit)
        monkeypatch.setattr(host_memory, "_CONTAINER", tmp_path / "memory.max")
        there = host_memory.host_memory_bytes.__wrapped__()
        assert there == expected if expected is not None else there >= whole


def test_what_fits_is_replayed(outcome) -> None:
    assert outcome((4,)) == {"kind": "ok", "device_may_run": True}
