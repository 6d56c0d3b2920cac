"""Argument values: what is kept exactly, which call they come from, and what a distribution says otherwise."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open

from audit.errors import UnfinishedError
from audit.schema import Source, Values
from audit.tracer.recorder import Recorder
from audit.tracer.values import FIRST_CALLS, FIRST_ELEMENTS, ValueRecorder


def capture(
    tmp_path: Path, work: Callable[[], object], **budget: int
) -> tuple[dict[str, dict[int, Values]], dict[str, torch.Tensor]]:
    """Values by op, and kept spans by ``op/position``."""
    values = ValueRecorder(**budget)
    recorder = Recorder(values)
    recorder.start()
    try:
        work()
    finally:
        recorder.stop()
    trace, spans = recorder.build(Source("script", "test"), {})
    names = {case.key: case.op for case in trace.cases}
    kept: dict[str, torch.Tensor] = {}
    if values.write(tmp_path / "v.safetensors", spans):
        with safe_open(tmp_path / "v.safetensors", "pt") as file:
            for name in file.keys():  # noqa: SIM118
                key, position = name.split("/")
                kept[f"{names[key]}/{position}"] = file.get_tensor(name)
    values.close()
    return {case.op: dict(case.values) for case in trace.cases}, kept


def test_integers_booleans_and_masks_are_kept_exactly(tmp_path: Path) -> None:
    index, flags = torch.tensor([3, 1, 2]), torch.tensor([True, False, True])
    _, kept = capture(tmp_path, lambda: (torch.randn(5).index_select(0, index), torch.logical_not(flags)))
    assert kept["aten::index_select.default/1"].tolist() == [3, 1, 2]
    assert kept["aten::logical_not.default/0"].tolist() == [True, False, True]


def test_integers_are_kept_where_floats_have_no_budget_left(tmp_path: Path) -> None:
    index = torch.tensor([3, 1, 2])
    values, kept = capture(tmp_path, lambda: torch.randn(5).index_select(0, index), tensor_bytes=0)
    assert list(kept) == ["aten::index_select.default/1"]
    assert values["aten::index_select.default"][0].stored is False


def test_floats_come_from_the_call_with_the_largest_finite_magnitude(tmp_path: Path) -> None:
    calls = [torch.full((2,), magnitude) for magnitude in (1.0, 9.0, 100.0, 4.0)]
    _, kept = capture(tmp_path, lambda: [call.exp() for call in calls])
    assert kept["aten::exp.default/0"].tolist() == [100.0, 100.0]


def test_of_many_calls_only_the_first_and_every_power_of_two_are_looked_at(tmp_path: Path) -> None:
    calls = [torch.full((2,), 100.0 if n == FIRST_CALLS else 1.0 + (n == 2 * FIRST_CALLS - 1)) for n in range(80)]
    values, kept = capture(tmp_path, lambda: [call.exp() for call in calls])
    assert kept["aten::exp.default/0"].tolist() == [2.0, 2.0]
    assert values["aten::exp.default"][0].n_sampled == FIRST_CALLS + 1


def test_of_large_tensors_only_every_power_of_two_is_looked_at(tmp_path: Path) -> None:
    x = torch.ones(FIRST_ELEMENTS // 2)
    values, _ = capture(tmp_path, lambda: [x.neg() for _ in range(7)])
    assert values["aten::neg.default"][0].n_sampled == 3  # 1 and 2, which are all that fit, and 4


ORDINARY = torch.tensor([[1.0, -2.0, 3.0], [-4.0, 5.0, -6.0], [7.0, -8.0, 9.0]])


@pytest.mark.parametrize(
    "rare",
    [
        torch.tensor([[1.0, -2.0, 3.0], [0.0, 0.0, 0.0], [4.0, -5.0, 6.0]]),  # an empty row
        torch.tensor([[1.0, 2.0, -3.0], [-4.0, 2.0, 5.0], [6.0, 2.0, 1.0]]),  # a feature without variance
        torch.tensor([[1.0, -2.0, 3.0], [-0.0, 4.0, -5.0], [6.0, -7.0, 8.0]]),
        torch.tensor([[1.0, -2.0, 3.0], [1e-40, 4.0, -5.0], [6.0, -7.0, 8.0]]),
    ],
)
def test_of_calls_of_like_magnitude_the_one_with_rare_values_is_kept(tmp_path: Path, rare: torch.Tensor) -> None:
    _, kept = capture(tmp_path, lambda: [x @ x for x in (ORDINARY, ORDINARY + 0.5, rare, ORDINARY)])
    assert torch.equal(kept["aten::mm.default/0"], rare.flatten())


def test_nan_is_rare_only_where_it_hides_nothing(tmp_path: Path) -> None:
    few = torch.linspace(-3, 3, 64)
    few[5] = float("nan")
    for op, kept_one in ((torch.relu, few), (torch.sum, torch.linspace(-3, 3, 64))):
        _, kept = capture(tmp_path, lambda op=op: [op(x) for x in (torch.linspace(-3, 3, 64), few)])
        [stored] = [value for name, value in kept.items() if value.numel() == 64]
        assert torch.equal(stored.isnan(), kept_one.isnan())


def test_an_index_does_not_outweigh_rare_numbers(tmp_path: Path) -> None:
    table, plain, repeated = torch.randn(200, 2), torch.arange(100, 104), torch.tensor([7, 7, 7, 7])
    _, kept = capture(tmp_path, lambda: [table.index_select(0, index) for index in (plain, repeated)])
    assert kept["aten::index_select.default/1"].tolist() == [7, 7, 7, 7]


def test_operands_of_one_case_are_kept_from_the_same_call(tmp_path: Path) -> None:
    _, kept = capture(
        tmp_path, lambda: [torch.full((2,), a) * torch.full((2,), b) for a, b in ((1.0, 50.0), (9.0, 2.0))]
    )
    assert kept["aten::mul.Tensor/0"].tolist() == [1.0, 1.0]
    assert kept["aten::mul.Tensor/1"].tolist() == [50.0, 50.0]


def test_inputs_are_copied_before_the_op_changes_them(tmp_path: Path) -> None:
    x = torch.tensor([1.0, 2.0])
    _, kept = capture(tmp_path, lambda: x.mul_(10))
    assert kept["aten::mul_.Tensor/0"].tolist() == [1.0, 2.0]


def test_a_strided_view_keeps_the_storage_between_its_ends(tmp_path: Path) -> None:
    base = torch.arange(12.0)
    _, kept = capture(tmp_path, lambda: base[1:8:3].neg())
    assert kept["aten::neg.default/0"].tolist() == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]


def test_what_is_over_the_budget_is_described(tmp_path: Path) -> None:
    x = torch.cat([torch.zeros(500), torch.full((250,), 2.0), torch.full((250,), 1e-41)])
    x[0], x[1], x[2] = float("nan"), float("inf"), -float("inf")
    values, kept = capture(tmp_path, lambda: x.exp(), tensor_bytes=8)
    [described] = values["aten::exp.default"].values()
    assert kept == {}
    assert (described.n_nan, described.n_posinf, described.n_neginf) == (1, 1, 1)
    assert (described.minimum, described.maximum) == (0.0, 2.0)
    assert described.zero_fraction == pytest.approx(0.497)
    assert described.subnormal_fraction == pytest.approx(0.25)
    assert described.mean == pytest.approx(500.0 / 997)


def test_copies_beyond_the_memory_budget_are_spilled_and_read_back(tmp_path: Path) -> None:
    tensors = [torch.randn(256 + i) for i in range(8)]
    values = ValueRecorder(memory_bytes=3000)
    recorder = Recorder(values)
    recorder.start()
    for t in tensors:
        t.sin()
    recorder.stop()
    trace, spans = recorder.build(Source("script", "test"), {})
    assert sum(span.spilled is not None for span in spans.values()) >= 5
    values.write(tmp_path / "all.safetensors", spans)
    with safe_open(tmp_path / "all.safetensors", "pt") as file:
        stored = {file.get_tensor(name).numel(): file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    assert len(trace.cases) == len(stored) == 8
    for t in tensors:
        assert torch.equal(stored[t.numel()], t)
    values.close()


def test_every_dtype_of_torch_that_is_kept_comes_back_the_same(tmp_path: Path) -> None:
    for dtype in (torch.float64, torch.float16, torch.bfloat16, torch.int32, torch.int16, torch.int8, torch.uint8):
        x = torch.arange(5).to(dtype)
        _, kept = capture(tmp_path, lambda x=x: torch.clone(x))
        assert kept["aten::clone.default/0"].dtype is dtype
        assert torch.equal(kept["aten::clone.default/0"], x)


def test_a_full_disk_is_one_sentence(tmp_path: Path) -> None:
    values = ValueRecorder()
    recorder = Recorder(values)
    recorder.start()
    torch.randn(4).sin()
    recorder.stop()
    _, spans = recorder.build(Source("script", "test"), {})
    with pytest.raises(UnfinishedError, match=r"No space left on device.*\[disk-full\]"):
        values.write(Path("/dev/full"), spans)


def test_a_subclass_of_tensor_is_kept_as_its_elements_and_not_asked_for_the_looks(tmp_path: Path) -> None:
    class Watched(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(func)
            return super().__torch_function__(func, types, args, kwargs)

    seen: list[object] = []
    x = torch.ones(3).as_subclass(Watched)
    _, kept = capture(tmp_path, lambda: torch.sin(x))
    assert kept["aten::sin.default/0"].tolist() == [1.0, 1.0, 1.0]
    assert seen == [torch.sin]


def test_gradients_of_two_forms_keep_values_of_their_own(tmp_path: Path) -> None:
    """One call of a signature gets an expanded gradient, the next one a dense one: two cases, and two spans."""
    recorder = Recorder(ValueRecorder())
    recorder.start()
    norm = torch.nn.LayerNorm(8)
    norm(norm(torch.randn(3, 8))).sum().backward()
    recorder.stop()
    trace, spans = recorder.build(Source("script", "test"), {})
    gradients = {}
    for case in trace.cases:
        if case.op == "aten::layer_norm.default" and case.grads is not None and case.grads[0] is not None:
            gradients[case.grads[0].strides] = spans[f"{case.key}/3"].n_bytes  # behind input, weight and bias
    assert gradients == {(0, 0): 4, (8, 1): 4 * 24}
