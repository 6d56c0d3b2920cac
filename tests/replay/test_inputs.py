"""Inputs: exact sizes, strides, offsets, extents and sharing; stored values bit for bit; synthesis from statistics."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from audit.errors import UsageError
from audit.replay.inputs import InputError, ValueFile, bind, materialise, reach, storages_of
from audit.replay.operands import narrow_operands
from audit.replay.spool import read_spool, write_spool
from audit.replay.stream import PERIOD, Stream
from audit.replay.synthesis import synthesise
from audit.schema import Case, Named, TensorSpec, Values

NOTHING = ValueFile(None)
CPU = torch.device("cpu")


def bound(case: Case, stored: ValueFile = NOTHING):
    contents = materialise(case, stored, seed=0)
    return bind(case, narrow_operands(case, contents), CPU, 0)


layouts = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 9)), max_size=4)
dtypes = st.sampled_from(["float32", "bfloat16", "float16", "float64", "int64", "int32", "uint8", "bool", "complex64"])


@settings(max_examples=60, deadline=None)
@given(layout=layouts, offset=st.integers(0, 5), behind=st.integers(0, 5), dtype=dtypes)
def test_a_tensor_comes_back_with_its_exact_layout(layout, offset, behind, dtype):
    sizes, strides = tuple(n for n, _ in layout), tuple(step for _, step in layout)
    extent = offset + reach(sizes, strides) + behind
    spec = TensorSpec(sizes, strides, dtype, offset, extent)
    [tensor] = bound(Case("k", "aten::neg.default", (spec,))).operands
    assert (tuple(tensor.shape), tensor.stride(), tensor.storage_offset()) == (sizes, strides, offset)
    assert str(tensor.dtype) == f"torch.{dtype}"
    assert tensor.untyped_storage().nbytes() == extent * tensor.element_size()


@settings(max_examples=40, deadline=None)
@given(layout=layouts, offset=st.integers(0, 5), dtype=dtypes, seed=st.integers(0, 99))
def test_stored_values_come_back_bit_for_bit(tmp_path_factory, layout, offset, dtype, seed):
    sizes, strides = tuple(n for n, _ in layout), tuple(step for _, step in layout)
    n = reach(sizes, strides)
    span = torch.randint(0, 2, (n,), generator=torch.Generator().manual_seed(seed)).to(getattr(torch, dtype))
    path = tmp_path_factory.mktemp("values") / "values.safetensors"
    save_file({"k/0": span}, str(path))
    spec = TensorSpec(sizes, strides, dtype, offset, offset + n)
    case = Case("k", "aten::neg.default", (spec,), values={0: Values(stored=True)})
    [tensor] = bound(case, ValueFile(path)).operands
    expected = torch.zeros(offset + n, dtype=span.dtype)
    expected[offset:] = span
    assert torch.equal(tensor, expected.as_strided(sizes, strides, offset))


def test_a_stored_span_of_another_length_is_refused(tmp_path, build):
    save_file({"k/0": torch.zeros(5)}, str(tmp_path / "v.safetensors"))
    case = Case("k", "aten::neg.default", (build.tensor([2, 3]),), values={0: Values(stored=True)})
    with pytest.raises(InputError, match=r"20 bytes are stored for an operand that spans 24"):
        materialise(case, ValueFile(tmp_path / "v.safetensors"), 0)


def test_operands_with_one_storage_number_share_memory(build):
    whole = build.tensor([4, 6], storage=3)
    right = build.tensor([4, 3], storage=3, strides=(6, 1), offset=3, extent=24)
    apart = build.tensor([4, 3], storage=4)
    a, b, c = bound(Case("k", "aten::cat.default", ((whole, right, apart), 1))).operands
    assert a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr() != c.untyped_storage().data_ptr()
    a[2, 4] = 99.0
    assert b[2, 1] == 99.0


def test_operands_of_different_dtypes_may_share_memory(build):
    real = build.tensor([6], "float32", storage=1)
    pair = build.tensor([3], "complex64", storage=1)
    a, b = bound(Case("k", "aten::cat.default", ((real, pair),))).operands
    assert torch.equal(torch.view_as_real(b).reshape(-1), a)


def test_a_scalar_of_the_host_has_a_storage_of_its_own(build):
    case = Case("k", "aten::mul.Tensor", (build.tensor([3]), build.tensor([], host=True)))
    assert [(storage.name, storage.host) for storage in storages_of(case)] == [("0", False), ("0h", True)]


def test_conjugate_and_negative_bits_are_set_and_not_applied(build):
    plain = build.tensor([4], "complex64")
    flagged = build.tensor([4], "complex64", conj=True)
    negative = build.tensor([4], neg=True)
    [a] = bound(Case("k", "aten::abs.default", (plain,))).operands
    [b] = bound(Case("k", "aten::abs.default", (flagged,))).operands
    [c] = bound(Case("k", "aten::abs.default", (negative,))).operands
    assert b.is_conj()
    assert torch.equal(b.resolve_conj(), a.conj().resolve_conj())
    assert c.is_neg()


def test_named_constants_become_torch_objects(build):
    case = Case(
        "k",
        "aten::op.default",
        (Named("dtype", "bfloat16"), (None, build.tensor([2]), 1.5)),
        (
            ("device", Named("device", "device")),
            ("host", Named("device", "cpu")),
            ("memory_format", Named("memory_format", "channels_last")),
            ("layout", Named("layout", "strided")),
        ),
    )
    contents = materialise(case, NOTHING, 0)
    call = bind(case, narrow_operands(case, contents), torch.device("meta"), 0)
    assert call.args[0] is torch.bfloat16
    assert call.args[1][0] is None
    assert call.args[1][2] == 1.5
    assert call.kwargs == {
        "device": torch.device("meta"),
        "host": CPU,
        "memory_format": torch.channels_last,
        "layout": torch.strided,
    }


def test_a_generator_is_seeded(build):
    case = Case("k", "aten::rand.generator", ((3,),), (("generator", Named("generator", "cpu")),))
    first, second = (bind(case, lambda *_: None, CPU, 7).kwargs["generator"] for _ in range(2))
    assert torch.equal(torch.rand(3, generator=first), torch.rand(3, generator=second))


# --- the spool -----------------------------------------------------------------------------------------------------


def test_what_is_written_over_a_spooled_input_does_not_reach_the_next_reader(tmp_path):
    index = write_spool(
        tmp_path / "s", {"a": torch.arange(7, dtype=torch.uint8), "b": torch.arange(3, dtype=torch.uint8)}
    )
    first = read_spool(tmp_path / "s", index)
    first["b"].fill_(9)
    second = read_spool(tmp_path / "s", index)
    assert second["a"].tolist() == [0, 1, 2, 3, 4, 5, 6]
    assert second["b"].tolist() == [0, 1, 2]
    assert index["b"] == (64, 3)


def test_an_empty_spool_reads_back_empty(tmp_path):
    index = write_spool(tmp_path / "s", {"a": torch.empty(0, dtype=torch.uint8)})
    assert read_spool(tmp_path / "s", index)["a"].numel() == 0


# --- synthesis -----------------------------------------------------------------------------------------------------


def made(n: int, dtype: torch.dtype, values: Values, key: str = "k") -> torch.Tensor:
    return synthesise(n, dtype, values, Stream(0, key, 0))


def test_the_same_key_gives_the_same_values_and_another_key_others():
    assert torch.equal(made(50, torch.float32, Values()), made(50, torch.float32, Values()))
    assert not torch.equal(made(50, torch.float32, Values()), made(50, torch.float32, Values(), key="other"))


def test_floats_follow_mean_and_spread_within_their_range():
    values = Values(minimum=-1.0, maximum=5.0, mean=2.0, std=1.0)
    x = made(20_000, torch.float32, values)
    assert (x.min().item(), x.max().item()) == (-1.0, 5.0)
    assert x.mean().item() == pytest.approx(2.0, abs=0.05)
    assert x.std().item() == pytest.approx(1.0, abs=0.05)


def test_a_range_that_ends_at_zero_is_not_half_zeros():
    x = made(20_000, torch.float32, Values(minimum=0.0, maximum=5.0, mean=0.2, std=1.0, zero_fraction=0.1))
    assert x.min().item() == 0.0
    assert (x == 0).double().mean().item() == pytest.approx(0.1, abs=0.01)


@pytest.mark.parametrize(
    ("values", "count", "expected"),
    [
        (Values(n_nan=3), lambda x: torch.isnan(x).sum(), 3),
        (Values(n_posinf=2), lambda x: (x == torch.inf).sum(), 2),
        (Values(n_neginf=4), lambda x: (x == -torch.inf).sum(), 4),
    ],
)
def test_special_values_are_planted_in_number(values: Values, count: Callable, expected: int):
    assert count(made(1000, torch.float16, values)) == expected


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_zeros_and_subnormals_have_their_share(dtype):
    x = made(20_000, dtype, Values(zero_fraction=0.25, subnormal_fraction=0.5)).to(torch.float64).abs()
    tiny = torch.finfo(dtype).tiny
    assert (x == 0).double().mean().item() == pytest.approx(0.25, abs=0.02)
    assert ((x > 0) & (x < tiny)).double().mean().item() == pytest.approx(0.375, abs=0.02)  # half of what is not zero


def test_integers_stay_in_their_recorded_range():
    x = made(5000, torch.int64, Values(minimum=-2, maximum=3))
    assert x.unique().tolist() == [-2, -1, 0, 1, 2, 3]


def test_integers_have_the_recorded_number_of_values_and_the_recorded_favourite():
    x = made(1000, torch.int64, Values(minimum=0, maximum=9999, n_structured=1000, n_distinct=50, max_multiplicity=300))
    counts = x.unique(return_counts=True)[1]
    assert (len(counts), counts.max().item(), x.min().item(), x.max().item()) == (50, 300, 0, 9999)
    assert counts.sort().values[-2] <= 20
    assert not torch.equal(x, x.sort().values)


def test_a_permutation_is_one_again():
    x = made(64, torch.int32, Values(minimum=0, maximum=63, n_structured=64, n_distinct=64, max_multiplicity=1))
    assert x.sort().values.tolist() == list(range(64)) != x.tolist()


@pytest.mark.parametrize(("order", "rising"), [("ascending", True), ("descending", False)])
def test_integers_are_sorted_where_they_were(order: str, rising: bool):
    x = made(100, torch.int64, Values(minimum=3, maximum=90, n_structured=100, order=order))
    assert torch.equal(x, x.sort(descending=not rising).values)
    assert len(x.unique()) > 20


def test_structure_seen_in_a_part_goes_on_through_the_whole():
    part = Values(minimum=0, maximum=99, n_structured=100, n_distinct=100, max_multiplicity=1)
    assert made(300, torch.int64, part).unique(return_counts=True)[1].unique().tolist() == [3]
    rising = made(300, torch.int64, Values(minimum=0, maximum=99, n_structured=100, order="ascending"))
    assert torch.equal(rising, rising.sort().values)


def test_a_large_weight_is_made_in_passing():
    x = made(3 * PERIOD, torch.bfloat16, Values(minimum=-2.0, maximum=2.0, mean=0.0, std=0.5, n_nan=1))
    assert torch.equal(x[:1000], x[PERIOD : PERIOD + 1000])
    assert x.isnan().sum() == 1


def test_integers_without_a_range_are_zero_since_they_may_be_indices():
    assert made(10, torch.int32, Values()).tolist() == [0] * 10


def test_the_largest_integers_do_not_overflow():
    top = (1 << 63) - 1
    assert made(3, torch.int64, Values(minimum=top, maximum=top)).max().item() >= top - 1


def test_booleans_follow_their_mean():
    assert made(20_000, torch.bool, Values(mean=0.9)).double().mean().item() == pytest.approx(0.9, abs=0.02)


def test_a_damaged_value_file_is_one_sentence(tmp_path):
    (tmp_path / "values.safetensors").write_bytes(b"hello")
    with pytest.raises(UsageError, match=r"cannot be read: .* \[unreadable-values\]$"):
        ValueFile(tmp_path / "values.safetensors")


def test_operands_go_when_the_call_does(build):
    """Not when Python next looks for cycles, or the memory of some cases would pile up."""
    case = build.case("aten::cat.default", (build.tensor((4,)), build.tensor((3,), storage=1)))
    held = []

    def operand(position, spec):
        tensor = torch.zeros(spec.sizes)
        held.append(weakref.ref(tensor))
        return tensor

    gc.disable()
    try:
        call = bind(case, operand, CPU, 0)
        assert [reference() is not None for reference in held] == [True, True]
        del call
        assert [reference() for reference in held] == [None, None]
    finally:
        gc.enable()
