"""A real call for each row of the table of roles, and what must hold of the operand that is made for it.

Each is traced with no values kept, so that its inputs have to be made from the op and its arguments alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

A = torch.ops.aten


@dataclass(frozen=True)
class RoleCall:
    """``call`` runs ``op`` among others; ``holds`` is asked about the values made for its argument ``operand``."""

    op: str
    operand: str
    call: Callable[[], object]
    holds: Callable[[Tensor], Any]

    @property
    def name(self) -> str:
        return f"{self.op} {self.operand}"


# --- what may hold -----------------------------------------------------------------------------------------------


def within(low: float, high: float) -> Callable[[Tensor], bool]:
    """Several values, all from ``low`` to ``high``."""
    return lambda x: low <= x.min() <= x.max() <= high and len(x.unique()) > 1


def is_(*values: float) -> Callable[[Tensor], bool]:
    return lambda x: x.flatten().tolist() == list(values)


def above(floor: float) -> Callable[[Tensor], bool]:
    return lambda x: bool((x > floor).all())


def rises(x: Tensor) -> bool:
    return torch.equal(x, x.sort(-1).values) and len(x.unique()) > 1


def sums_to_one(x: Tensor) -> bool:
    return torch.allclose(x.sum(-1), torch.ones(())) and bool((x > 0).all())


def logs_sum_to_one(x: Tensor) -> bool:
    return torch.allclose(x.exp().sum(-1), torch.ones(()), atol=1e-4)


def all_different(x: Tensor) -> bool:
    return len(x.unique()) == x.numel()


def definite(x: Tensor) -> bool:
    return torch.equal(x, x.mT) and bool((torch.linalg.eigvalsh(x) > 0.1).all())


def regular(x: Tensor) -> bool:
    return bool((torch.linalg.cond(x) < 100).all())


def lower(x: Tensor) -> bool:
    return torch.equal(x, x.tril()) and regular(x)


# --- operands of the program ---------------------------------------------------------------------------------------


def n(*sizes: int) -> Tensor:
    return torch.randn(sizes)


def p(*sizes: int) -> Tensor:
    return torch.rand(sizes) * 0.8 + 0.1


def i(high: int, *sizes: int) -> Tensor:
    return torch.randint(high, sizes)


def spd(size: int) -> Tensor:
    x = torch.randn(size, size)
    return x @ x.T + torch.eye(size)


def _adam() -> None:
    params, *states = ([p(6)] for _ in range(5))
    A._fused_adam_(params, *states, [torch.tensor(3.0)], lr=0.1, beta1=0.9, beta2=0.9, weight_decay=0.0, eps=1e-8,
                   amsgrad=True, maximize=False, grad_scale=torch.tensor(2.0), found_inf=torch.tensor(0.0))  # fmt: skip


def _embedding_bag_backward(mode: int) -> Callable[[], object]:
    def call() -> None:
        indices, starts = i(9, 12), torch.tensor([0, 4, 8])
        _, bags, sizes, largest = A._embedding_bag(n(9, 4), indices, starts, False, mode)
        A._embedding_bag_dense_backward(n(3, 4), indices, bags, sizes, largest, 9, False, mode, None)

    return call


def _ctc(op: str) -> Callable[[], object]:
    log_probs, labels = n(12, 2, 5).log_softmax(-1), i(4, 2, 3) + 1
    lengths = torch.tensor([12, 10]), torch.tensor([3, 2])
    return lambda: getattr(A, op)(log_probs, labels, *lengths)


def _packed_gru() -> None:
    data, sizes = A._pack_padded_sequence(n(5, 3, 4), torch.tensor([5, 3, 2]), False)
    A.gru.data(data, sizes, n(1, 3, 6), [n(18, 4), n(18, 6)], False, 1, 0.0, False, False)


def _pool3d_backward() -> None:
    x = n(1, 2, 6, 6, 6)
    y, places = A.max_pool3d_with_indices(x, [3], [2], [1])
    A.max_pool3d_with_indices_backward(y, x, [3], [2], [1], [1], False, places)


def _pool2d_backward() -> None:
    x = n(2, 3, 8, 8)
    y, places = A.max_pool2d_with_indices(x, [3, 3], [2, 2], [1, 1])
    A.max_pool2d_with_indices_backward(y, x, [3, 3], [2, 2], [1, 1], [1, 1], False, places)


def _fractional(dims: int) -> Callable[[], object]:
    x, samples = n(1, 2, *[8] * dims), p(1, 2, dims)
    forward, backward = (getattr(A, f"fractional_max_pool{dims}d{end}") for end in ("", "_backward"))

    def call() -> None:
        y, places = forward(x, [2] * dims, [4] * dims, samples)
        backward(y, x, [2] * dims, [4] * dims, places)

    return call


ROLE_CALLS: tuple[RoleCall, ...] = (
    RoleCall("embedding", "indices", lambda: A.embedding(n(20, 4), i(20, 3, 7)), within(0, 19)),
    RoleCall(
        "embedding_dense_backward",
        "indices",
        lambda: A.embedding_dense_backward(n(30, 4), i(20, 30), 20, -1, False),
        within(0, 19),
    ),
    RoleCall("_embedding_bag_dense_backward", "indices", _embedding_bag_backward(1), within(0, 8)),
    RoleCall(
        "_embedding_bag_dense_backward",
        "offset2bag",
        _embedding_bag_backward(1),
        is_(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2),
    ),
    RoleCall("_embedding_bag_dense_backward", "bag_size", _embedding_bag_backward(1), is_(4, 4, 4)),
    RoleCall("_embedding_bag_dense_backward", "maximum_indices", _embedding_bag_backward(2), within(0, 8)),
    RoleCall(
        "_embedding_bag",
        "offsets",
        lambda: A._embedding_bag(n(9, 4), i(9, 12), torch.tensor([0, 4, 8, 12]), False, 0, False, None, True),
        is_(0, 4, 8, 12),
    ),
    RoleCall("index", "indices[0]", lambda: n(9, 4)[i(9, 30)], within(0, 8)),
    RoleCall("index", "indices[1]", lambda: n(5, 9)[i(5, 40), i(9, 40)], within(0, 8)),
    RoleCall("index", "indices[0]", lambda: n(4, 6)[n(4, 6) > 0], lambda x: x.sum() == 12),
    RoleCall(
        "index_put_",
        "indices[0]",
        lambda: A.index_put_(n(9, 4), [torch.arange(9) > 5], n(3, 4)),
        lambda x: x.sum() == 3,
    ),
    RoleCall("index_copy", "index", lambda: A.index_copy(n(9, 4), 0, torch.arange(6), n(6, 4)), all_different),
    RoleCall(
        "scatter", "index", lambda: A.scatter(n(3, 9), 1, i(9, 3, 9), n(3, 9)), lambda x: all(map(all_different, x))
    ),
    RoleCall("index_select", "index", lambda: A.index_select(n(3, 9), 1, i(9, 20)), within(0, 8)),
    RoleCall("scatter_add", "index", lambda: A.scatter_add(n(9, 4), 0, i(9, 20, 4), n(20, 4)), within(0, 8)),
    RoleCall("gather", "index", lambda: A.gather(n(9, 4), 0, i(9, 20, 4)), within(0, 8)),
    RoleCall("take", "index", lambda: A.take(n(9, 4), i(36, 50)), within(0, 35)),
    RoleCall("bincount", "self", lambda: A.bincount(i(7, 30)), within(0, 15)),
    RoleCall("max_pool2d_with_indices_backward", "indices", _pool2d_backward, within(0, 63)),
    RoleCall("max_pool3d_with_indices_backward", "indices", _pool3d_backward, within(0, 215)),
    RoleCall("fractional_max_pool2d_backward", "indices", _fractional(2), within(0, 63)),
    RoleCall("fractional_max_pool3d_backward", "indices", _fractional(3), within(0, 511)),
    RoleCall(
        "max_unpool2d",
        "indices",
        lambda: A.max_unpool2d(n(1, 1, 3, 3), torch.arange(9).reshape(1, 1, 3, 3), [6, 6]),
        lambda x: all_different(x) and x.max() < 36,
    ),
    RoleCall(
        "max_unpool3d",
        "indices",
        lambda: A.max_unpool3d(n(1, 1, 2, 2, 2), torch.arange(8).reshape(1, 1, 2, 2, 2), [4] * 3, [2] * 3, [0] * 3),
        lambda x: all_different(x) and x.max() < 64,
    ),
    RoleCall(
        "multilabel_margin_loss_forward",
        "target",
        lambda: A.multilabel_margin_loss_forward(n(3, 4), torch.tensor([[1, 3, -1, 0]] * 3), 1),
        within(-1, 3),
    ),
    RoleCall("nll_loss_forward", "target", lambda: A.nll_loss_forward(n(30, 5), i(5, 30), None, 1, -100), within(0, 4)),
    RoleCall(
        "nll_loss2d_forward",
        "self",
        lambda: A.nll_loss2d_forward(n(2, 5, 3, 3), i(5, 2, 3, 3), p(5), 1, -100),
        lambda x: torch.allclose(x.exp().sum(1), torch.ones(()), atol=1e-4),
    ),
    RoleCall("nll_loss_forward", "weight", lambda: A.nll_loss_forward(n(30, 5), i(5, 30), p(5), 1, -100), above(0)),
    RoleCall(
        "nll_loss_backward",
        "total_weight",
        lambda: A.nll_loss_backward(torch.ones(()), n(3, 5), i(5, 3), None, 1, -100, torch.tensor(3.0)),
        is_(8.0),
    ),
    RoleCall("binary_cross_entropy", "self", lambda: A.binary_cross_entropy(p(9), p(9)), within(0, 1)),
    RoleCall(
        "_ctc_loss",
        "log_probs",
        _ctc("_ctc_loss"),
        logs_sum_to_one,
    ),
    RoleCall("_ctc_loss", "targets", _ctc("_ctc_loss"), within(1, 4)),
    RoleCall("ctc_loss", "input_lengths", _ctc("ctc_loss"), is_(12, 12)),
    RoleCall("ctc_loss", "target_lengths", _ctc("ctc_loss"), lambda x: x.min() >= 1 and x.max() <= 3),
    RoleCall("multinomial", "self", lambda: A.multinomial(p(3, 9), 4), sums_to_one),
    RoleCall(
        "_softmax_backward_data",
        "output",
        lambda: A._softmax_backward_data(n(3, 9), n(3, 9).softmax(-1), -1, torch.float32),
        sums_to_one,
    ),
    RoleCall(
        "_log_softmax_backward_data",
        "output",
        lambda: A._log_softmax_backward_data(n(3, 9), n(3, 9).log_softmax(-1), -1, torch.float32),
        logs_sum_to_one,
    ),
    RoleCall("bernoulli", "self", lambda: A.bernoulli(p(9)), within(0, 1)),
    RoleCall("binomial", "prob", lambda: A.binomial(torch.full((9,), 5.0), p(9)), within(0, 1)),
    RoleCall("binomial", "count", lambda: A.binomial(torch.full((2,), 5.0), p(2)), is_(10, 10)),
    RoleCall("poisson", "self", lambda: A.poisson(p(9)), above(0)),
    RoleCall("normal", "std", lambda: A.normal.float_Tensor(0.0, p(9)), above(0)),
    RoleCall(
        "_pack_padded_sequence",
        "lengths",
        lambda: A._pack_padded_sequence(n(5, 3, 4), torch.tensor([5, 4, 2]), False),
        lambda x: x.tolist() == sorted(x.tolist(), reverse=True) and x[0] == 5 and x[-1] >= 1,
    ),
    RoleCall("gru", "batch_sizes", _packed_gru, lambda x: x.sum() == 10 and x[0] == 3 and bool((x.diff() <= 0).all())),
    RoleCall(
        "repeat_interleave",
        "repeats",
        lambda: A.repeat_interleave.Tensor(torch.tensor([1, 2, 3, 0]), output_size=6),
        lambda x: x.sum() == 6,
    ),
    RoleCall(
        "segment_reduce",
        "lengths",
        lambda: A.segment_reduce(n(9, 2), "sum", lengths=torch.tensor([4, 3, 2]), axis=0),
        is_(3, 3, 3),
    ),
    RoleCall(
        "segment_reduce",
        "offsets",
        lambda: A.segment_reduce(n(9, 2), "sum", offsets=torch.tensor([0, 3, 7, 9]), axis=0),
        is_(0, 3, 6, 9),
    ),
    RoleCall(
        "_padded_dense_to_jagged_forward",
        "offsets[0]",
        lambda: A._padded_dense_to_jagged_forward(n(2, 5, 3), [torch.tensor([0, 3, 7])], 7),
        is_(0, 3, 7),
    ),
    RoleCall(
        "_jagged_to_padded_dense_forward",
        "offsets[0]",
        lambda: A._jagged_to_padded_dense_forward(n(8, 3), [torch.tensor([0, 3, 8])], [5]),
        is_(0, 4, 8),
    ),
    RoleCall(
        "_grouped_mm",
        "offs",
        lambda: A._grouped_mm(
            n(32, 16).bfloat16(), n(4, 16, 8).bfloat16(), torch.tensor([8, 16, 24, 32], dtype=torch.int32)
        ),
        is_(8, 16, 24, 32),
    ),
    RoleCall(
        "scaled_dot_product_attention",
        "attn_mask",
        lambda: A.scaled_dot_product_attention(n(1, 1, 4, 8), n(1, 1, 4, 8), n(1, 1, 4, 8), p(4, 4) > 0.2),
        lambda x: torch.equal(x, torch.ones(4, 4, dtype=torch.bool).tril()),
    ),
    RoleCall(
        "_masked_softmax",
        "mask",
        lambda: A._masked_softmax(n(2, 2, 4, 4), torch.zeros(4, 4, dtype=torch.bool), 3, 0),
        lambda x: torch.equal(x, torch.ones(4, 4, dtype=torch.bool).triu(1)),
    ),
    RoleCall(
        "masked_scatter",
        "mask",
        lambda: A.masked_scatter(n(10), torch.arange(10) < 3, n(3)),
        lambda x: x.sum() == 3,
    ),
    RoleCall("searchsorted", "sorted_sequence", lambda: A.searchsorted(n(3, 9).sort().values, n(3, 4)), rises),
    RoleCall("bucketize", "boundaries", lambda: A.bucketize(n(3, 4), n(9).sort().values), rises),
    RoleCall("histogram", "bins", lambda: A.histogram(n(30), n(5).sort().values), rises),
    RoleCall("log", "self", lambda: A.log(p(9)), above(0)),
    RoleCall("_foreach_sqrt", "self[1]", lambda: A._foreach_sqrt([p(9), p(3)]), above(0)),
    RoleCall("erfinv", "self", lambda: A.erfinv(p(9)), within(-1, 1)),
    RoleCall("special_ndtri", "self", lambda: A.special_ndtri(p(9)), within(0, 1)),
    RoleCall("log1p", "self", lambda: A.log1p(p(9)), above(-1)),
    RoleCall("acosh", "self", lambda: A.acosh(p(9) + 1), above(1)),
    RoleCall("mvlgamma", "self", lambda: A.mvlgamma(p(9) + 2, 3), above(1)),
    RoleCall("igamma", "other", lambda: A.igamma(p(9), p(9)), above(0)),
    RoleCall("xlogy", "other", lambda: A.xlogy(p(9), p(9)), above(0)),
    RoleCall("sigmoid_backward", "output", lambda: A.sigmoid_backward(n(9), p(9)), within(0, 1)),
    RoleCall(
        "grid_sampler_2d", "grid", lambda: A.grid_sampler_2d(n(1, 2, 8, 8), p(1, 4, 4, 2), 0, 0, False), within(-1, 1)
    ),
    RoleCall("tanh_backward", "output", lambda: A.tanh_backward(n(9), p(9)), within(-1, 1)),
    RoleCall("pow", "self", lambda: A.pow(p(9), 0.5), above(0)),
    RoleCall("pow", "exponent", lambda: A.pow(i(5, 9), i(3, 9)), within(0, 3)),
    RoleCall("remainder", "other", lambda: A.remainder(i(9, 9), i(4, 9) + 1), above(0)),
    RoleCall("bitwise_left_shift", "other", lambda: A.bitwise_left_shift(i(9, 9), i(4, 9)), within(0, 62)),
    RoleCall("lerp", "weight", lambda: A.lerp(n(9), n(9), p(9)), within(0, 1)),
    RoleCall(
        "native_batch_norm",
        "running_var",
        lambda: A.native_batch_norm(n(2, 3, 4), p(3), n(3), n(3), p(3), False, 0.1, 1e-5),
        above(0),
    ),
    RoleCall(
        "native_layer_norm_backward",
        "rstd",
        lambda: A.native_layer_norm_backward(n(4, 6), n(4, 6), [6], n(4, 1), p(4, 1), n(6), n(6), [True] * 3),
        above(0),
    ),
    RoleCall(
        "_weight_norm_interface_backward",
        "saved_norms",
        lambda: A._weight_norm_interface_backward(n(4, 6), n(4, 6), n(4, 1), p(4, 1), 0),
        above(0),
    ),
    RoleCall("_fused_adam_", "exp_avg_sqs[0]", _adam, above(0)),
    RoleCall("_fused_adam_", "state_steps[0]", _adam, is_(2)),
    RoleCall("_fused_adam_", "grad_scale", _adam, above(0)),
    RoleCall("_fused_adam_", "found_inf", _adam, is_(0)),
    RoleCall(
        "_amp_foreach_non_finite_check_and_unscale_",
        "inv_scale",
        lambda: A._amp_foreach_non_finite_check_and_unscale_([n(9)], torch.zeros(1), p(1)),
        above(0),
    ),
    RoleCall(
        "_amp_update_scale_",
        "self",
        lambda: A._amp_update_scale_(p(1), torch.zeros(1, dtype=torch.int32), torch.zeros(1), 2.0, 0.5, 2000),
        is_(65536.0),
    ),
    RoleCall(
        "fake_quantize_per_channel_affine_cachemask",
        "scale",
        lambda: A.fake_quantize_per_channel_affine_cachemask(n(3, 4), p(3), i(3, 3).int(), 0, 0, 255),
        above(0),
    ),
    RoleCall("_assert_async", "self", lambda: A._assert_async(torch.ones(())), above(0)),
    RoleCall("linalg_cholesky_ex", "self", lambda: A.linalg_cholesky_ex(spd(5), check_errors=True), definite),
    RoleCall("cholesky_solve", "input2", lambda: A.cholesky_solve(n(5, 2), spd(5).tril()), lower),
    RoleCall("cholesky_inverse", "self", lambda: A.cholesky_inverse(spd(5).tril()), lower),
    RoleCall(
        "linalg_solve_triangular", "self", lambda: A.linalg_solve_triangular(spd(5).tril(), n(5, 2), upper=False), lower
    ),
    RoleCall("triangular_solve", "A", lambda: A.triangular_solve(n(5, 2), spd(5).tril(), False), lower),
    RoleCall("_linalg_eigh", "A", lambda: A._linalg_eigh(spd(5)), lambda x: torch.equal(x, x.mT)),
    RoleCall("linalg_ldl_factor_ex", "self", lambda: A.linalg_ldl_factor_ex(spd(5)), lambda x: torch.equal(x, x.mT)),
    RoleCall("linalg_inv_ex", "A", lambda: A.linalg_inv_ex(spd(30)), regular),
    RoleCall("linalg_lstsq", "self", lambda: A.linalg_lstsq(spd(30), n(30, 2), driver="gels"), regular),
    RoleCall("lu_unpack", "LU_data", lambda: A.lu_unpack(*A.linalg_lu_factor_ex(spd(30))[:2]), regular),
    RoleCall(
        "linalg_lu_solve",
        "pivots",
        lambda: A.linalg_lu_solve(*A.linalg_lu_factor_ex(spd(9))[:2], n(9, 2)),
        lambda x: bool((x > torch.arange(9)).all()) and x.max() <= 9,
    ),
    RoleCall("lu_unpack", "LU_pivots", lambda: A.lu_unpack(*A.linalg_lu_factor_ex(spd(9))[:2]), within(1, 9)),
    RoleCall(
        "_fft_c2r",
        "self",
        lambda: A._fft_c2r(torch.fft.rfft2(n(4, 6)), [0, 1], 2, 6),
        lambda x: torch.equal(x[:, 0], x[[0, 3, 2, 1], 0].conj()) and torch.equal(x[:, 3], x[[0, 3, 2, 1], 3].conj()),
    ),
)
