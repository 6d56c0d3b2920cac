"""Backward ops get what their forward left on the side that they run on, whatever was recorded for it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

from audit.replay.forwards import FORWARDS, with_own_forward
from audit.replay.inputs import Bound
from audit.replay.overload import resolve
from audit.schema import Case

A = torch.ops.aten


def known(op: str) -> bool:
    try:
        resolve(op)
    except AttributeError:
        return False
    return True


@pytest.mark.parametrize("op", [op for op in FORWARDS if known(op)])
def test_a_row_fits_the_schemas_of_this_torch(op: str):
    row = FORWARDS[op]
    backward = {argument.name for argument in resolve(op)._schema.arguments}
    forward = {argument.name: argument for argument in resolve(row.op)._schema.arguments}
    assert set(row.same.split()) | set(row.renamed.values()) | set(row.outputs) <= backward
    assert set(row.same.split()) | set(row.renamed) | set(row.fixed) <= set(forward)
    left = set(forward) - set(row.same.split()) - set(row.renamed) - set(row.fixed)
    assert [name for name in left if not forward[name].has_default_value()] == []
    assert max(row.outputs.values()) < len(resolve(row.op)._schema.returns)


def test_the_table_is_of_this_torch():
    assert sum(known(op) for op in FORWARDS) >= len(FORWARDS) - 2


# --- the gradient is that of autograd, though the private operands are wrong ------------------------------------------

torch.manual_seed(0)
X, W, B = torch.randn(4, 6, requires_grad=True), torch.rand(6) + 0.5, torch.randn(6)
IMAGE = torch.randn(2, 6, 3, 3, requires_grad=True)
QUERY = torch.randn(1, 2, 4, 8, requires_grad=True)
LOGITS = torch.randn(9, 2, 5, requires_grad=True)
LABELS, LENGTHS = torch.tensor([[1, 2, 3], [4, 1, 2]]), (torch.tensor([9, 8]), torch.tensor([3, 2]))
ALL = [True] * 3


def like(x: torch.Tensor) -> torch.Tensor:
    return torch.full_like(x, 99.0)


def ctc() -> torch.Tensor:
    return A._ctc_loss.Tensor(LOGITS, LABELS, *LENGTHS)[0]


BACKWARDS: dict[str, tuple[torch.Tensor, Callable[[], torch.Tensor], Callable[[torch.Tensor], list[object]]]] = {
    "native_layer_norm_backward.default": (
        X,
        lambda: F.layer_norm(X, [6], W, B),
        lambda grad: [grad, X, [6], torch.zeros(4, 1), torch.zeros(4, 1), W, B, ALL],
    ),
    "native_group_norm_backward.default": (
        IMAGE,
        lambda: F.group_norm(IMAGE, 3, W, B),
        lambda grad: [grad, IMAGE, torch.zeros(2, 3), torch.zeros(2, 3), W, 2, 6, 9, 3, ALL],
    ),
    "native_batch_norm_backward.default": (
        IMAGE,
        lambda: F.batch_norm(IMAGE, None, None, W, B, training=True),
        lambda grad: [grad, IMAGE, W, None, None, like(W), like(W), True, 1e-5, ALL],
    ),
    "_weight_norm_interface_backward.default": (
        X,
        lambda: A._weight_norm_interface(X, torch.ones(4, 1), 0)[0],
        lambda grad: [grad, X, torch.ones(4, 1), torch.full((4, 1), 99.0), 0],
    ),
    "_ctc_loss_backward.Tensor": (
        LOGITS,
        ctc,
        lambda grad: [grad, LOGITS, LABELS, *LENGTHS, like(grad), torch.zeros(2, 9, 7), 0, False],
    ),
    "log_sigmoid_backward.default": (X, lambda: F.logsigmoid(X), lambda grad: [grad, X, like(X)]),
    "_scaled_dot_product_flash_attention_for_cpu_backward.default": (
        QUERY,
        lambda: A._scaled_dot_product_flash_attention_for_cpu(QUERY, QUERY.detach(), QUERY.detach())[0],
        lambda grad: [grad, *[QUERY] * 3, like(QUERY), torch.zeros(1, 2, 4), 0.0, False],
    ),
}


@pytest.mark.parametrize("name", BACKWARDS)
def test_the_gradient_is_that_of_autograd_whatever_was_recorded(name: str):
    leaf, forward, arguments = BACKWARDS[name]
    output = forward()
    grad = torch.randn_like(output)
    [wanted] = torch.autograd.grad(output, leaf, grad)
    given = [arg.detach() if isinstance(arg, torch.Tensor) else arg for arg in arguments(grad)]
    op = f"aten::{name}"
    bound, note = with_own_forward(Case("k", op, ()), Bound(given, {}, [], []), resolve)
    assert note == ""
    result = resolve(op)(*bound.args)
    torch.testing.assert_close(result[0] if isinstance(result, tuple) else result, wanted)
    wrong = resolve(op)(*given)
    assert not torch.allclose(wrong[0] if isinstance(wrong, tuple) else wrong, wanted)


def test_running_statistics_stay_as_they_are():
    mean, var = torch.zeros(6), torch.ones(6)
    given = [IMAGE.detach(), IMAGE.detach(), W, mean, var, W, W, True, 1e-5, ALL]
    with_own_forward(Case("k", "aten::native_batch_norm_backward.default", ()), Bound(given, {}, [], []), resolve)
    assert mean.tolist() == [0.0] * 6
    assert var.tolist() == [1.0] * 6


def test_a_forward_that_raises_leaves_the_operands_and_a_note():
    def missing(name: str) -> Callable[..., object]:
        def forward(*_: object) -> None:
            raise NotImplementedError(f"no kernel for {name}\nand more")

        return forward

    given = BACKWARDS["log_sigmoid_backward.default"][2](X.detach())
    bound, note = with_own_forward(
        Case("k", "aten::log_sigmoid_backward.default", ()), Bound(given, {}, [], []), missing
    )
    assert bound.args == given
    assert note == (
        "its forward aten::log_sigmoid_forward.default gave no operands of its own: "
        "no kernel for aten::log_sigmoid_forward.default"
    )


# --- on a device ---------------------------------------------------------------------------------------------------

#: As a GPU does: the statistics of a bf16 norm are float32, and a backward given others raises.
GPU_STATISTICS = """
import torch

def forward(call):
    output, mean, rstd = call.run(*call.args)
    wide = torch.nn.functional.layer_norm(call.args[0].float(), call.args[1])
    x = call.args[0].float()
    return output, x.mean(-1, keepdim=True), (x.var(-1, keepdim=True, unbiased=False) + call.args[4]).rsqrt()

def backward(call):
    grad, x, shape, mean, rstd, *rest = call.args
    if mean.dtype != torch.float32:
        raise RuntimeError("expected scalar type Float but found BFloat16")
    return call.run(grad, x, shape, mean.to(x.dtype), rstd.to(x.dtype), *rest)

def logarithms(call):
    return call.run(*call.args)[0], torch.empty(0)

FAULTS = {
    "aten::native_layer_norm.default": forward,
    "aten::native_layer_norm_backward.default": backward,
    "aten::log_sigmoid_forward.default": logarithms,
}
"""


@pytest.fixture(scope="module")
def layer_norm_cases(build):
    x, weight, bias = build.tensor([4, 64], "bfloat16"), *(build.tensor([64], "bfloat16", storage=n) for n in (1, 2))
    statistics = [build.tensor([4, 1], "bfloat16", storage=n) for n in (3, 4)]
    grad = build.tensor([4, 64], "bfloat16", storage=5)
    return {
        "forward": build.case("aten::native_layer_norm.default", x, (64,), weight, bias, 1e-5),
        "backward": build.case(
            "aten::native_layer_norm_backward.default", grad, x, (64,), *statistics, weight, bias, (True, True, True),
            phase="backward",
        ),
        "logsigmoid": build.case("aten::log_sigmoid_forward.default", build.tensor([4, 6])),
    }  # fmt: skip


@pytest.fixture(scope="module")
def run(layer_norm_cases, fault_file, replay):
    return replay(list(layer_norm_cases.values()), device=fault_file(GPU_STATISTICS))


def test_statistics_in_another_dtype_are_compared_by_value(run, layer_norm_cases):
    measured = run.of(layer_norm_cases["forward"])
    found = {c.name: c for c in measured.comparisons}
    assert list(found) == ["output 0", "output 1", "output 2"]
    assert {(c.expected.dtype, c.actual.dtype) for c in list(found.values())[1:]} == {("float32", "float32")}
    assert all(c.standard == "numeric" and c.worst_ratio < 8 for c in found.values())


def test_a_backward_gets_its_own_forwards_statistics_and_does_not_raise(run, layer_norm_cases):
    measured = run.of(layer_norm_cases["backward"])
    assert measured.device.kind == "ok", measured.device.message
    assert [c.n_elements for c in measured.comparisons] == [256, 64, 64]
    assert all(c.worst_ratio < 8 for c in measured.comparisons)


def test_a_buffer_that_only_one_device_fills_is_no_output(run, layer_norm_cases):
    found = {c.name: c for c in run.of(layer_norm_cases["logsigmoid"]).comparisons}
    assert found["output"].worst_ratio < 8
    assert (found["buffer"].standard, found["buffer"].expected) == ("metadata", None)


def test_attention_backward_without_values_has_a_reference(build, replay):
    heads = [build.tensor([1, 2, 16, 16], storage=n) for n in range(5)]
    lse = build.tensor([1, 2, 16], storage=5)
    seeds = [build.tensor([], "int64", storage=n) for n in (8, 9)]
    case = build.case(
        "aten::_scaled_dot_product_efficient_attention_backward.default", *heads[:4], None, heads[4], lse, *seeds, 0.0,
        (True, True, True, False), True, phase="backward",
    )  # fmt: skip
    measured = replay([case], device="sim").of(case)
    assert measured.device.kind == "ok", measured.device.message
    assert len(measured.comparisons) == 3
    assert all(c.reference == "fp64" and c.worst_ratio < 8 for c in measured.comparisons)
