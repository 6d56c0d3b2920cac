"""Which ops a trace may name: those that a tracer records, whatever else this process has."""

from __future__ import annotations

import pytest
import torch

from audit.replay.overload import resolve


@torch.library.custom_op("replay_test::touch", mutates_args=())
def touch(x: torch.Tensor) -> torch.Tensor:
    return x.clone()


@pytest.mark.parametrize(
    "name",
    [
        "replay_test::touch.default",
        "aten::from_file.default",
        "aten::from_file.out",
        "c10d::barrier.default",
        "prim::Print.default",
        "aten::__class__.default",
        "aten::no_such_op.default",
        "no_such_library::op.default",
    ],
)
def test_other_ops_are_not_run(name: str) -> None:
    with pytest.raises(AttributeError):
        resolve(name)


@pytest.mark.parametrize("name", ["aten::mm.default", "aten::add_.Tensor", "aten::relu", "aten::__and__.Tensor"])
def test_aten_ops_are(name: str) -> None:
    assert resolve(name).name().startswith(name.split(".")[0])
