"""What a change makes of a case: which operands it lays out anew, casts, or leaves as they are."""

from __future__ import annotations

import dataclasses

from audit.changed_case import changed_case
from audit.run_records import Change
from audit.schema import Case, Named, TensorSpec

HALF = TensorSpec((2, 3), (1, 2), "bfloat16", extent=6)
INDEX = TensorSpec((4,), (1,), "int64", extent=4, storage=1)
#: Query and key as two views of one packed product.
PACKED = tuple(TensorSpec((4, 8), (16, 1), "float32", offset=8 * n, extent=64) for n in range(2))


def case_of(*args: object, op: str = "aten::mm.default", **fields: object) -> Case:
    return Case("mm-0", op, args, **fields)  # type: ignore[arg-type]


def test_no_change_gives_the_very_case():
    case = case_of(HALF, INDEX)
    assert changed_case(case, Change()) == case
    assert changed_case(case_of(INDEX), Change(layout="contiguous", dtype="float32")) == case_of(INDEX)


def test_contiguous_gives_what_has_gaps_a_storage_of_its_own():
    changed = changed_case(case_of(HALF, INDEX), Change(layout="contiguous"))
    assert changed.args == (TensorSpec((2, 3), (3, 1), "bfloat16", extent=6, storage=2), INDEX)


def test_views_of_one_packed_tensor_part():
    changed = changed_case(case_of(*PACKED), Change(layout="contiguous"))
    assert [(spec.strides, spec.offset, spec.storage) for spec in changed.args] == [((8, 1), 0, 1), ((8, 1), 0, 2)]


def test_views_stay_together_where_the_op_writes_into_one():
    case = case_of(*PACKED, op="aten::add_.Tensor")
    assert changed_case(case, Change(layout="contiguous")) == case


def test_channels_last_has_the_channels_innermost_in_four_and_five_dimensions_only():
    image = TensorSpec((2, 3, 4, 5), (60, 20, 5, 1), "float32", extent=120)
    volume = TensorSpec((2, 3, 4, 5, 6), (360, 120, 30, 6, 1), "float32", extent=720, storage=1)
    bias = TensorSpec((3,), (1,), "float32", extent=3, storage=2)
    changed = changed_case(case_of(image, volume, bias), Change(layout="channels_last"))
    assert [spec.strides for spec in changed.args] == [(60, 1, 15, 3), (360, 1, 90, 18, 3), (1,)]
    assert changed_case(changed, Change(layout="channels_last")) == changed


def test_a_mask_that_is_expanded_over_gigabytes_stays_as_it_is():
    mask = TensorSpec((64, 64, 4096, 4096), (0, 0, 4096, 1), "float32", extent=1 << 24)
    assert changed_case(case_of(mask), Change(layout="contiguous")) == case_of(mask)


def test_float32_replaces_half_precision_and_what_asks_for_it():
    grad = dataclasses.replace(HALF, storage=3)
    case = case_of(HALF, INDEX, Named("dtype", "bfloat16"), grads=(grad, None))
    changed = changed_case(case, Change(dtype="float32"))
    wanted = dataclasses.replace(HALF, dtype="float32"), INDEX, Named("dtype", "float32")
    assert (changed.args, changed.grads) == (wanted, (dataclasses.replace(grad, dtype="float32"), None))


def test_a_softmax_in_float32_need_not_widen_its_result():
    changed = changed_case(case_of(HALF, -1, True, op="aten::_softmax.default"), Change(dtype="float32"))
    assert changed.args[1:] == (-1, False)


def test_a_storage_that_two_dtypes_share_keeps_both():
    case = case_of(HALF, dataclasses.replace(INDEX, storage=0))
    assert changed_case(case, Change(dtype="float32")) == case


def test_settings_take_the_place_of_all_that_the_case_has():
    case = case_of(HALF, settings=(("torch.backends.cudnn.enabled", False),))
    assert changed_case(case, Change(settings=())).settings == ()
    assert changed_case(case, Change()).settings == case.settings
