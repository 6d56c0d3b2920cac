"""What of an output's memory and strides an op promises, and what is written beside a view."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from audit.device.guarded import address
from audit.replay.compare import fact_of
from audit.replay.inputs import storages_of
from audit.replay.layout import promised_layout, with_alias
from audit.replay.overload import resolve
from audit.replay.stray_writes import may_stray, strayed
from tests.replay.conftest import Build

IMAGE = torch.zeros(2, 3, 4, 4).contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize(
    ("op", "run", "operand", "layout"),
    [
        ("aten::transpose.int", lambda x: x.transpose(0, 1), torch.zeros(3, 4), "view"),
        ("aten::avg_pool2d.default", lambda x: torch.nn.functional.avg_pool2d(x, 2), torch.zeros(1, 2, 4, 4), "own"),
        ("aten::empty_strided.default", lambda x: torch.empty_strided((3, 4), (1, 3)), torch.zeros(3, 4), "strides"),
        ("aten::split.Tensor", lambda x: x.split(2)[1], torch.zeros(4, 4), "view"),
        ("aten::clone.default", lambda x: x.clone(), IMAGE, "strides"),
        ("aten::_to_copy.default", lambda x: x.double(), IMAGE, "strides"),
        ("aten::sigmoid.default", lambda x: x.sigmoid(), IMAGE, "strides"),
        ("aten::sum.default", lambda x: x.sum(), IMAGE, "own"),
        ("aten::_softmax.default", lambda x: x.softmax(1), IMAGE, "own"),
        ("aten::reshape.default", lambda x: x.reshape(-1), torch.zeros(3, 4), "view"),
        ("aten::dropout.default", lambda x: x, torch.zeros(3, 4), ""),  # a composite may give its argument back
        ("aten::_conj.default", lambda x: x.conj(), torch.zeros(3, dtype=torch.complex64), ""),
    ],
)
def test_what_an_op_promises(
    build: Build, op: str, run: Callable[[torch.Tensor], torch.Tensor], operand: torch.Tensor, layout: str
) -> None:
    case = build.case(op, build.tensor(tuple(operand.shape)))
    assert promised_layout(case, resolve(op), [operand], run(operand)) == layout


def test_an_alias_is_told_by_the_operand_and_the_bytes_to_it(build: Build) -> None:
    case = build.case("aten::select.int", build.tensor((4, 5)), 0, 2)
    whole = torch.zeros(4, 5)
    fact = with_alias(fact_of(whole[2]), whole[2], case, [whole], address)
    assert (fact.alias, fact.alias_bytes) == ("self", 40)
    assert with_alias(fact_of(whole[2].clone()), whole[2].clone(), case, [whole], address).alias == ""


def test_writes_between_the_elements_of_a_view_stray(build: Build) -> None:
    every_second = build.tensor((3,), strides=(2,), offset=1, extent=8)
    [storage] = storages_of(build.case("aten::add_.Scalar", every_second, 1))
    before = torch.zeros(32, dtype=torch.uint8)
    inside, gap = before.clone(), before.clone()
    inside.view(torch.float32)[[1, 3, 5]] = 1.0
    gap.view(torch.float32)[[1, 2]] = 1.0
    assert may_stray(storage, [0])
    assert not strayed(storage, [0], before, inside)
    assert strayed(storage, [0], before, gap)


def test_a_tensor_that_fills_its_storage_leaves_no_place_to_stray(build: Build) -> None:
    [storage] = storages_of(build.case("aten::add_.Scalar", build.tensor((3, 4), strides=(1, 3)), 1))
    assert not may_stray(storage, [0])
