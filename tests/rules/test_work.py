"""What calls cannot do without: operations beside torch's own counts, bytes by hand."""

from __future__ import annotations

import random
from typing import Any

import pytest

from audit.codec import contiguous_strides
from audit.comparison import Comparison, TensorFact
from audit.rules.work import FORMULAS, Work, work_of
from audit.schema import NOT_RECORDED, Arg, Case, Kernel, Measurement, Named, Outcome, Path, TensorSpec, Values


def spec(*sizes: int, dtype: str = "bfloat16", **known: Any) -> TensorSpec:
    return TensorSpec(sizes, known.pop("strides", contiguous_strides(sizes)), dtype, **known)


def ids(*sizes: int) -> TensorSpec:
    return spec(*sizes, dtype="int64")


def work(op: str, *args: Arg, measurement: Measurement | None = None, **more: Any) -> Work | None:
    kwargs = tuple(more.pop("kwargs", {}).items())
    return work_of(Case("k", f"aten::{op}", args, kwargs, **more), measurement)


def moved(found: Work | None) -> tuple[float, float] | None:
    return None if found is None else (found.read_bytes, found.written_bytes)


def seen(*facts: TensorFact, kernels: tuple[Kernel, ...] = ()) -> Measurement:
    compared = tuple(Comparison(f"output {n}", "numeric", fact, fact) for n, fact in enumerate(facts))
    return Measurement("k", Outcome("ok"), Outcome("ok"), compared, Path(kernels=kernels))


def fact(*sizes: int, dtype: str = "bfloat16") -> TensorFact:
    return TensorFact(sizes, contiguous_strides(sizes), dtype)


# --- operations, beside torch.utils.flop_counter -------------------------------------------------------------------


def _calls(seed: int) -> dict[str, tuple[str, list[Any]]]:
    """Arguments of each registered op: a list of sizes stands for a tensor, in a tuple for numbers."""
    draw = random.Random(seed)

    def n() -> int:
        return draw.randint(3, 9)

    a, b, c, d, e = n(), n(), n(), n(), n()
    q, k, v = [a, 4, b, 16], [a, 2, c, 16], [a, 2, c, 8]
    lse, out, grad = [a, 4, b], [a, 4, b, 8], [a, 4, b, 8]
    same, few = [a, b, b, 16], [a, b, b]  # the count in torch takes heads for queries in these, and the other way
    window: list[Any] = [(2, 2), (1, 1), (1, 1)]
    return {
        "mm": ("mm", [[a, b], [b, c]]),
        "addmm": ("addmm", [[c], [a, b], [b, c]]),
        "bmm": ("bmm", [[d, a, b], [d, b, c]]),
        "baddbmm": ("baddbmm", [[d, a, c], [d, a, b], [d, b, c]]),
        "_scaled_mm": ("_scaled_mm", [[16, 32], [32, 16], [], []]),
        "convolution": ("convolution", [[a, b, 9, 9], [c, b, 3, 3], None, *window, False, (0, 0), 1]),
        "convolution transposed": ("convolution", [[a, b, 9, 9], [b, c, 3, 3], None, *window, True, (0, 0), 1]),
        "convolution grouped": ("convolution", [[a, 2 * b, 9, 9], [2 * c, b, 3, 3], None, *window, False, (0, 0), 2]),
        "_convolution": (
            "_convolution",
            [[a, b, 9, 9], [c, b, 3, 3], None, *window, False, (0, 0), 1, False, False, True, True],
        ),
        "convolution_overrideable": (
            "convolution_overrideable", [[a, b, 9, 9], [c, b, 3, 3], None, *window, False, (0, 0), 1]
        ),
        "_slow_conv2d_forward": ("_slow_conv2d_forward", [[a, b, 9, 9], [c, b, 3, 3], (3, 3), None, (2, 2), (1, 1)]),
        "cudnn_convolution": (
            "cudnn_convolution", [[a, b, 9, 9], [c, b, 3, 3], (1, 1), (2, 2), (1, 1), 1, False, False, True]
        ),
        "convolution_backward": (
            "convolution_backward",
            [[a, c, 5, 5], [a, b, 9, 9], [c, b, 3, 3], None, *window, False, (0, 0), 1, (True, True, False)],
        ),
        "convolution_backward transposed": (
            "convolution_backward",
            [[a, c, 17, 17], [a, b, 9, 9], [b, c, 3, 3], None, *window, True, (0, 0), 1, (True, True, False)],
        ),
        "convolution_backward of the weight": (
            "convolution_backward",
            [[a, c, 5, 5], [a, b, 9, 9], [c, b, 3, 3], None, *window, False, (0, 0), 1, (False, True, False)],
        ),
        "_scaled_dot_product_flash_attention": ("_scaled_dot_product_flash_attention", [q, k, v, 0.0, False]),
        "_scaled_dot_product_efficient_attention": (
            "_scaled_dot_product_efficient_attention", [q, k, v, None, False, 0.0, False]
        ),
        "_scaled_dot_product_cudnn_attention": (
            "_scaled_dot_product_cudnn_attention", [q, k, v, None, False, 0.0, False]
        ),
        "_scaled_dot_product_flash_attention_backward": (
            "_scaled_dot_product_flash_attention_backward",
            [grad, q, k, v, out, lse, None, None, b, c, 0.0, False, [], []],
        ),
        "_scaled_dot_product_efficient_attention_backward": (
            "_scaled_dot_product_efficient_attention_backward",
            [grad, q, k, v, None, out, lse, [], [], 0.0, (True, True, True, False), False],
        ),
        "_scaled_dot_product_cudnn_attention_backward": (
            "_scaled_dot_product_cudnn_attention_backward",
            [grad, q, k, v, out, lse, [], [], None, None, None, b, c, 0.0, False],
        ),
        "_flash_attention_forward": (
            "_flash_attention_forward", [same, same, same, None, None, b, b, 0.0, False, False]
        ),
        "_flash_attention_forward of sequences": (
            "_flash_attention_forward",
            [[d * b, e, 16], [d * c, e, 16], [d * c, e, 16], [d + 1], [d + 1], b, c, 0.0, False, False],
        ),
        "_efficient_attention_forward": (
            "_efficient_attention_forward", [same, same, same, None, None, None, b, b, 0.0, 0]
        ),
        "_flash_attention_backward": (
            "_flash_attention_backward",
            [same, same, same, same, same, few, None, None, b, b, 0.0, False, [], []],
        ),
        "_efficient_attention_backward": (
            "_efficient_attention_backward",
            [same, same, same, same, None, same, None, None, b, b, few, 0.0, [], [], 0, False],
        ),
    }  # fmt: skip


def _torch_count(name: str, op: str, args: list[Any]) -> float:
    """By the registry's own formula, on tensors without values; outputs by the op where it has a meta kernel."""
    import torch
    from torch.utils.flop_counter import flop_registry

    tensors = [torch.empty(arg, device="meta") if isinstance(arg, list) else arg for arg in args]
    packet = getattr(torch.ops.aten, op)
    out: Any = None
    if op == "convolution_backward":
        out = tuple(torch.empty(arg, device="meta") for arg in args[1:3])
    elif "conv" in op:
        is_transposed = "transposed" in name
        function = torch.nn.functional.conv_transpose2d if is_transposed else torch.nn.functional.conv2d
        out = function(*tensors[:2], stride=2, padding=1, groups=2 if "grouped" in name else 1)
    if op in ("cudnn_convolution", "_slow_conv2d_forward"):  # its formula reads the seventh argument as `transposed`
        return float(flop_registry[torch.ops.aten.convolution](*tensors[:2], None, 2, 1, 1, False, out_val=out))
    return float(flop_registry[packet](*tensors, out_val=out))


@pytest.mark.parametrize("name", list(_calls(0)))
@pytest.mark.parametrize("seed", [1, 2])
def test_operations_are_those_that_torch_counts(name: str, seed: int) -> None:
    torch = pytest.importorskip("torch")
    op, args = _calls(seed)[name]
    if not hasattr(torch.ops.aten, op):
        pytest.skip(f"this torch has no {op}")
    found = work(f"{op}.default", *(spec(*arg) if isinstance(arg, list) else arg for arg in args))
    assert found is not None
    assert found.flops == _torch_count(name, op, args)


def test_every_op_that_torch_counts_has_a_formula() -> None:
    flop_counter = pytest.importorskip("torch.utils.flop_counter")
    names = {str(op).removeprefix("aten.") for op in flop_counter.flop_registry}
    # of higher order: what it computes is a program, and a trace lists it as not audited
    assert names - set(FORMULAS) <= {"flex_attention", "flex_attention_backward"}


Q = spec(2, 4, 128, 64)


@pytest.mark.parametrize(
    ("op", "args", "kwargs"),
    [
        ("scaled_dot_product_attention", (Q, Q, Q, None, 0.0, True), {}),
        ("scaled_dot_product_attention", (Q, Q, Q, None, 0.0, NOT_RECORDED), {}),  # nobody tells
        ("_scaled_dot_product_flash_attention", (Q, Q, Q, 0.0, True), {}),
        ("_scaled_dot_product_efficient_attention", (Q, Q, Q, None, False, 0.0), {"is_causal": True}),
    ],
)
def test_a_causal_mask_leaves_half_of_the_operations(op: str, args: tuple[Arg, ...], kwargs: dict[str, Arg]) -> None:
    found = work(op, *args, kwargs=kwargs)
    assert found is not None
    assert found.flops == 0.5 * 2 * 2 * (2 * 4 * 128 * 128 * 64)


def test_a_causal_mask_before_more_keys_than_queries_leaves_fewer() -> None:
    found = work(
        "scaled_dot_product_attention", spec(1, 1, 1, 64), spec(1, 1, 1000, 64), spec(1, 1, 1000, 64), None, 0.0, True
    )
    assert found is not None
    assert found.flops == 2 * 2 * 64


def test_attention_with_its_backward_has_seven_products_beside_two() -> None:
    forward = work("scaled_dot_product_attention", Q, Q, Q)
    both = work("scaled_dot_product_attention", Q, Q, Q, grads=(Q,))
    assert forward is not None
    assert both is not None
    assert both.flops == 3.5 * forward.flops


@pytest.mark.parametrize(
    ("op", "args", "flops"),
    [
        ("linear", (spec(8, 4, 16), spec(32, 16), spec(32)), 2 * 8 * 4 * 16 * 32),
        ("matmul", (spec(8, 1, 4, 16), spec(3, 16, 32)), 2 * 8 * 3 * 4 * 16 * 32),
        ("matmul", (spec(16), spec(16)), 2 * 16),
        ("addbmm", (spec(4, 8), spec(3, 4, 16), spec(3, 16, 8)), 2 * 3 * 4 * 16 * 8),
        ("mv", (spec(4, 16), spec(16)), 2 * 4 * 16),
        ("addmv", (spec(4), spec(4, 16), spec(16)), 2 * 4 * 16),
        ("dot", (spec(16), spec(16)), 32),
        ("outer", (spec(4), spec(16)), 64),
        ("einsum", ("bij, bjk -> bik", (spec(3, 4, 16), spec(3, 16, 8))), 2 * 3 * 4 * 16 * 8),
        ("_grouped_mm", (spec(96, 16), spec(3, 16, 8), ids(3)), 2 * 96 * 16 * 8),
        ("_int_mm", (spec(32, 16, dtype="int8"), spec(16, 8, dtype="int8")), 2 * 32 * 16 * 8),
        # 5 steps of 3 rows; four gates of 8 from 6 inputs and from 8 states
        ("lstm.input", (spec(5, 3, 6), (spec(1, 3, 8), spec(1, 3, 8)), (spec(32, 6), spec(32, 8), spec(32), spec(32)),
                        True, 1, 0.0, False, False, False), 2 * 5 * 3 * (32 * 6 + 32 * 8)),
        ("gru_cell", (spec(3, 6), spec(3, 8), spec(24, 6), spec(24, 8), None, None), 2 * 3 * (24 * 6 + 24 * 8)),
        ("_fft_c2c", (spec(4, 1024, dtype="complex64"), (1,), 0, True), 5 * 4 * 1024 * 10),
        ("_fft_r2c", (spec(4, 1024, dtype="float32"), (1,), 0, True), 2.5 * 4 * 1024 * 10),
        ("_fft_c2r", (spec(4, 513, dtype="complex64"), (-1,), 0, 1024), 2.5 * 4 * 1024 * 10),
        ("miopen_convolution", (spec(2, 3, 8, 8), spec(4, 3, 3, 3), None, (1, 1), (1, 1), (1, 1), 1, False, False),
         2 * 2 * 4 * 64 * 27),
        # a grouped convolution's gradients: each a product a group
        ("convolution_backward", (spec(2, 8, 8, 8), spec(2, 8, 8, 8), spec(8, 1, 3, 3), None, (1, 1), (1, 1), (1, 1),
                                  False, (0, 0), 8, (True, True, False)), 2 * 2 * 2 * 8 * 64 * 9),
    ],
)  # fmt: skip
def test_operations_by_hand(op: str, args: tuple[Arg, ...], flops: float) -> None:
    found = work(op, *args)
    assert found is not None
    assert found.flops == flops


def test_arithmetic_is_in_the_dtype_of_the_factors() -> None:
    fp8 = spec(32, 16, dtype="float8_e4m3fn"), spec(16, 32, dtype="float8_e4m3fn"), spec(dtype="float32")
    found = work("_scaled_mm.default", *fp8, spec(dtype="float32"), None, None, Named("dtype", "bfloat16"))
    assert found is not None
    assert (found.op_class, found.dtype, found.written_bytes) == ("gemm", "float8_e4m3fn", 32 * 32 * 2)


# --- bytes ---------------------------------------------------------------------------------------------------------

BIG = spec(1000, 64)
LIST = (spec(100), spec(28))


@pytest.mark.parametrize(
    ("op", "args", "expected"),
    [
        ("mm", (spec(8, 16), spec(16, 4)), ((8 * 16 + 16 * 4) * 2, 8 * 4 * 2)),
        ("mm.dtype", (spec(8, 16), spec(16, 4), Named("dtype", "float32")), ((8 * 16 + 16 * 4) * 2, 8 * 4 * 4)),
        ("add.Tensor", (spec(8, 16), spec(16)), ((128 + 16) * 2, 256)),
        ("add.Tensor", (spec(8, 16), spec(8, 16, strides=(0, 1))), ((128 + 16) * 2, 256)),  # expanded: in memory once
        ("add_.Tensor", (spec(8, 16), spec(8, 16)), (512, 256)),
        ("eq.Tensor", (spec(8, 16), spec(8, 16)), (512, 128)),
        ("copy_", (spec(8, 16, dtype="float32"), spec(8, 16)), (256, 512)),  # its target is written over
        ("fill_.Scalar", (spec(8, 16), 1), (0, 256)),
        ("zero_", (spec(8, 16),), (0, 256)),
        ("zeros_like", (spec(8, 16),), (0, 256)),
        ("new_zeros", (spec(8, 16), (4, 4)), (0, 32)),
        ("clone", (spec(8, 16, strides=(0, 1)),), (32, 256)),
        ("_to_copy", (spec(8, 16), 6, None, None, None, False, None), (256, 512)),  # a profiler's number of float32
        ("cat", ((spec(8, 16), spec(2, 16)), 0), (320, 320)),
        ("repeat", (spec(8, 16), (3, 1)), (256, 768)),
        ("constant_pad_nd", (spec(8, 16), (1, 1, 0, 2)), (256, 10 * 18 * 2)),
        ("constant_pad_nd", (spec(8, 16), (-1, -1)), (8 * 14 * 2, 8 * 14 * 2)),  # the border is not read
        ("slice_backward", (spec(4, 16), (8, 16), 0, 0, 4, 1), (128, 256)),
        ("sum.dim_IntList", (spec(8, 16), (1,)), (256, 0)),  # its result is not told of
        ("cumsum", (spec(8, 16), 1), (256, 256)),
        ("_softmax", (spec(8, 16), 1, False), (256, 256)),
        ("_softmax_backward_data", (spec(8, 16), spec(8, 16), 1, Named("dtype", "bfloat16")), (512, 256)),
        ("native_layer_norm", (spec(8, 16), (16,), spec(16), spec(16), 1e-5), (256 + 64, 256)),
        ("native_layer_norm_backward", (spec(8, 16), spec(8, 16), (16,), spec(8, 1, dtype="float32"),
          spec(8, 1, dtype="float32"), spec(16), spec(16), (False, True, True)), (512 + 64 + 64, 0)),
        # 5 of 1000 rows
        ("embedding", (BIG, ids(5)), (5 * 8 + 5 * 128, 5 * 128)),
        ("index_select", (BIG, 0, ids(5)), (5 * 8 + 5 * 128, 5 * 128)),
        ("index.Tensor", (BIG, (ids(5),)), (5 * 8 + 5 * 128, 5 * 128)),
        ("index.Tensor", (BIG, (None, ids(5))), (5 * 8 + 5 * 2000, 5 * 2000)),
        ("gather", (BIG, 1, ids(1000, 2)), (2000 * 8 + 4000, 4000)),
        ("_embedding_bag", (BIG, ids(5), ids(2), False, 0, False, None), (5 * 8 + 2 * 8 + 5 * 128, 2 * 128)),
        ("upsample_nearest2d", (spec(1, 2, 8, 8), (16, 16), None, None), (256, 1024)),
        ("upsample_nearest2d", (spec(1, 2, 8, 8), (4, 4), None, None), (64, 64)),  # passes over three quarters
        # more rows than there are
        ("embedding", (spec(2, 64), ids(500)), (500 * 8 + 256, 500 * 128)),
        ("index_add_", (BIG, 0, ids(5), spec(5, 64)), (40 + 640, 640)),
        ("index_add", (BIG, 0, ids(5), spec(5, 64)), (40 + 128000, 128000)),
        ("index_put_", (BIG, (ids(5),), spec(5, 64), True), (40 + 640, 640)),
        ("embedding_dense_backward", (spec(5, 64), ids(5), 1000, -1, False), (640 + 40, 128000)),
        ("nll_loss_forward", (spec(8, 1000), ids(8), None, 1, -100), (64 + 16, 0)),
        ("nll_loss_backward", (spec(), spec(8, 1000), ids(8), None, 1, -100, spec()), (64, 16000)),
        ("max_pool2d_with_indices", (spec(1, 1, 8, 8), (2, 2), (2, 2)), (128, 0)),
        ("max_pool2d_with_indices", (spec(1, 1, 8, 8), (1, 1), (2, 2)), (32, 0)),  # passes over three quarters
        ("max_pool2d_with_indices_backward", (spec(1, 1, 4, 4), spec(1, 1, 8, 8), (2, 2), (2, 2), (0, 0), (1, 1),
          False, ids(1, 1, 4, 4)), (32 + 128, 128)),
        # of a convolution of 1 x 1 in steps of 2, a quarter
        ("convolution", (spec(1, 4, 8, 8), spec(2, 4, 1, 1), None, (2, 2), (0, 0), (1, 1), False, (0, 0), 1),
         (128 + 16, 64)),
        ("_foreach_add_.List", (LIST, LIST), (512, 256)),
        ("_foreach_copy_", (LIST, LIST), (256, 256)),
        ("_foreach_zero_", (LIST,), (0, 256)),
        ("_foreach_norm.Scalar", (LIST,), (256, 0)),
        # parameters, gradients and two averages; the gradients stay
        ("_fused_adamw_", (LIST, LIST, LIST, LIST, (), (spec(dtype="float32"),)), (4 * 256 + 4, 3 * 256)),
        ("native_dropout", (spec(8, 16), 0.5, True), (256, 256 + 128)),
        ("uniform_", (spec(8, 16),), (0, 256)),
    ],
)  # fmt: skip
def test_bytes_by_hand(op: str, args: tuple[Arg, ...], expected: tuple[float, float]) -> None:
    assert moved(work(op, *args)) == expected


def test_outputs_that_were_seen_come_before_a_formula() -> None:
    assert moved(work("sum.dim_IntList", spec(8, 16), (1,), measurement=seen(fact(8)))) == (256, 16)
    assert moved(work("topk", spec(8, 16), 2, measurement=seen(fact(8, 2), fact(8, 2, dtype="int64")))) == (256, 160)


def test_an_operand_that_is_given_twice_is_read_once() -> None:
    one = spec(8, 16, extent=128, storage=0)
    assert moved(work("mul.Tensor", one, one)) == (256, 256)
    assert moved(work("mul.Tensor", one, spec(8, 16, extent=128, storage=1))) == (512, 256)


def test_indices_that_are_alike_name_one_row() -> None:
    alike = {1: Values(n_structured=500, n_distinct=1)}
    assert moved(work("embedding", BIG, ids(500), values=alike)) == (4000 + 128, 64000)
    unseen = {1: Values(n_structured=100, n_distinct=1)}
    assert moved(work("embedding", BIG, ids(500), values=unseen)) == (4000 + 64000, 64000)


@pytest.mark.parametrize(
    ("op", "args", "more"),
    [
        ("view", (spec(8, 16), (128,)), {}),
        ("empty.memory_format", ((8, 16),), {}),
        ("detach", (spec(8, 16),), {}),
        ("dropout", (spec(8, 16), 0.1, False), {}),  # gives back what it is given
        ("_local_scalar_dense", (spec(),), {}),  # the bus's
        ("_to_copy", (spec(8, 16, host=True),), {}),
        ("_to_copy", (spec(8, 16),), {"kwargs": {"device": Named("device", "cpu")}}),
        ("copy_", (spec(8, 16), spec(8, 16)), {"measurement": seen(kernels=(Kernel("Memcpy HtoD", 1.0),))}),
        ("cat", ((spec(8, 16, dtype="unknown"),), 0), {}),
        ("index.Tensor", (BIG, (spec(1000, dtype="bool"),)), {}),  # a mask leaves who knows how many
        ("add.Tensor", (spec(0, 16), spec(0, 16)), {}),
        ("mm", (spec(0, 16), spec(16, 0)), {}),
    ],
)  # fmt: skip
def test_what_does_nothing_on_the_device_or_is_not_known_has_no_work(
    op: str, args: tuple[Arg, ...], more: dict[str, Any]
) -> None:
    assert work(op, *args, **more) is None


HOSTILE: tuple[Arg, ...] = (
    None, True, -1, 10**400, float("nan"), 2j, "", "x" * 1000, NOT_RECORDED, (), (None,), ((),), (-1, 1 << 70),
    spec(), spec(0), spec(-3, 5), spec(1 << 62, 1 << 62), spec(4, 4, strides=(1,)), spec(4, 4, strides=(-1, 1 << 99)),
    spec(4, dtype=""), spec(4, dtype="float99999999"), spec(4, layout="sparse_coo"), (spec(4), (spec(4, 4),)),
    spec(2, 3, 4, 5), spec(4, 4), ids(4), Named("dtype", "nonsense"), Named("device", "cpu"),
)  # fmt: skip


def test_whatever_a_stranger_wrote_nothing_is_raised() -> None:
    from audit.knowledge.dispatch import load_dispatch

    draw = random.Random(7)
    ops = [*load_dispatch(), *(f"aten::{name}" for name in FORMULAS), "", "aten::", "::", "aten::mm..", "\0::\0"]
    bad = seen(TensorFact((1, -2), (1,), "bfloat16"))
    for op in ops * 3:
        args = tuple(draw.choice(HOSTILE) for _ in range(draw.randint(0, 12)))
        kwargs = tuple((name, draw.choice(HOSTILE)) for name in draw.sample(("dtype", "out", "is_causal", "beta"), 2))
        grads = draw.choice((None, (), (None,), (spec(-1),), (spec(4),)))
        found = work_of(Case("k", op, args, kwargs, grads=grads), draw.choice((None, bad, seen())))
        assert found is None or (found.flops >= 0 and found.moved_bytes >= 0)
