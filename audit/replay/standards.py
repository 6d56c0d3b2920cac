"""Which standard each output of an op is held to, and why: exact, numeric or metadata."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase

import torch

from audit.codec import tensors_of
from audit.comparison import Standard
from audit.replay.distributions import covered
from audit.replay.factors import FREE, free_outputs
from audit.replay.overload import arguments_of, base_of, resolve
from audit.schema import Arg, Case

#: Ops that only move, select, compare or count: another device has no freedom to differ in a bit.
EXACT = frozenset(
    """
    clone copy copy_ _to_copy contiguous cat stack split split_with_sizes chunk unbind index index_select gather take
    take_along_dim masked_select masked_fill masked_fill_ where embedding flip roll repeat repeat_interleave tril triu
    tril_ triu_ constant_pad_nd pixel_shuffle pixel_unshuffle channel_shuffle unfold nonzero eq ne lt le gt ge eq_ ne_
    lt_ le_ gt_ ge_ logical_and logical_or logical_not logical_xor bitwise_and bitwise_or bitwise_not bitwise_xor isnan
    isinf isfinite isposinf isneginf abs neg sign relu relu_ maximum minimum clamp clamp_ clamp_min clamp_max
    clamp_min_ clamp_max_ max min amax amin aminmax argmax argmin sort argsort topk msort floor ceil trunc fill fill_
    zeros ones full zeros_like ones_like full_like new_zeros new_ones new_full zero zero_ eye scalar_tensor
    _local_scalar_dense item equal threshold threshold_ threshold_backward max_pool1d max_pool2d max_pool3d
    max_pool2d_with_indices max_pool3d_with_indices adaptive_max_pool2d adaptive_max_pool3d bucketize searchsorted
    diagonal_copy slice_scatter select_scatter diagonal_scatter as_strided_scatter index_fill index_fill_ masked_scatter
    masked_scatter_ lift_fresh lift_fresh_copy detach alias resolve_conj resolve_neg conj_physical one_hot
    reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d replication_pad2d replication_pad3d
    slice_backward select_backward diagonal_backward _foreach_copy_ _foreach_zero_ _foreach_neg _foreach_neg_
    _foreach_abs _foreach_abs_ kthvalue median nanmedian mode cummax cummin upsample_nearest1d upsample_nearest2d
    upsample_nearest3d _upsample_nearest_exact1d _upsample_nearest_exact2d unique_consecutive _unique2
    unique_dim scatter scatter_ index_copy index_copy_ view_as_real view_as_complex frac sgn signbit copysign
    heaviside nextafter fmax fmin hardtanh relu6 nan_to_num
    """.split()
)
#: Ops that only move bits, or set or take a sign: the sign of zero is a bit too.
SIGNED_ZEROS = frozenset(
    """
    clone copy _to_copy contiguous cat stack index index_select gather take take_along_dim masked_select where embedding
    flip roll repeat repeat_interleave constant_pad_nd pixel_shuffle pixel_unshuffle channel_shuffle unfold neg copysign
    diagonal_copy slice_scatter select_scatter _foreach_copy _foreach_neg lift_fresh lift_fresh_copy full fill
    """.split()
)
#: Those of which one overload only is so: to the nearest even whole number, not to a number of decimals.
EXACT_OVERLOADS = frozenset({"aten::round.default", "aten::round_.default", "aten::round.out"})

#: Outputs hold whatever was in memory.
UNINITIALISED = (
    "empty",
    "empty_like",
    "empty_strided",
    "empty_permuted",
    "new_empty",
    "new_empty_strided",
    "resize_",
    "resize_as_",
)

#: Outputs that only the matching backward of the same device can read: (op glob, output glob).
PRIVATE = (
    ("_scaled_dot_product_*_attention", "rng_state"),
    ("_scaled_dot_product_*_attention", "unused"),
    ("_scaled_dot_product_*_attention", "philox_*"),
    ("_scaled_dot_product_*_attention", "debug_attn_mask"),
    ("_scaled_dot_product_*_attention", "cum_seq_*"),
    ("_scaled_dot_product_*_attention", "max_*"),
    ("_flash_attention_forward", "rng_state"),
    ("_flash_attention_forward", "unused"),
    ("_flash_attention_forward", "debug_attn_mask"),
    ("_efficient_attention_forward", "philox_*"),
    ("_efficient_attention_forward", "max_seqlen_*"),
    ("cudnn_batch_norm", "output 3"),
    ("_batch_norm_with_update*", "output 3"),
    ("_thnn_fused_lstm_cell", "output 2"),
    ("_thnn_fused_gru_cell", "output 1"),
    ("_cudnn_rnn", "output [34]"),
    ("miopen_rnn", "output [34]"),
    ("log_sigmoid_forward", "buffer"),
    ("*embedding_bag*", "output [123]"),
    ("_linalg_solve_ex", "LU"),  # pivots may be chosen by another norm; ``result`` is compared
    ("_linalg_solve_ex", "pivots"),
)

#: Outputs that a call does not ask for, by the argument that asks: an H200 gives them other shapes, or none.
ASKED_FOR = (
    ("_unique2", "return_inverse", "output 1"),
    ("_unique2", "return_counts", "output 2"),
    ("unique_dim", "return_inverse", "output 1"),
    ("unique_dim", "return_counts", "output 2"),
    ("unique_consecutive", "return_inverse", "output 1"),
    ("unique_consecutive", "return_counts", "output 2"),
    ("nll_loss_forward", "reduction", "total_weight"),
    ("nll_loss2d_forward", "reduction", "total_weight"),
    ("linalg_lstsq", "driver", "rank"),  # a GPU's own driver is gels, which gives neither
    ("linalg_lstsq", "driver", "singular_values"),
)

#: Outputs that a device may keep in another dtype than the CPU, since only a backward reads them: a GPU has the
#: statistics of a bf16 norm in fp32. Their values are compared.
OWN_DTYPE = (
    ("native_layer_norm", "output [12]"),
    ("native_group_norm", "output [12]"),
    ("*batch_norm*", "output [12]"),
    ("_fused_rms_norm", "output 1"),
    ("_weight_norm_interface", "output 1"),
)

_RANDOM = "a random op: its numbers may differ between devices"
#: Of complex numbers these are quotients and roots, which libraries round in their own ways.
_ROUNDED_IF_COMPLEX = frozenset({"abs", "sgn", "sign", "_foreach_abs"})
_PRIVATE = "private to the device that made it"


@dataclass(frozen=True)
class OpStandard:
    """The standard of an op. ``uninitialised`` outputs need not be written.

    ``signed_zeros``: -0.0 is not 0.0. ``random`` outputs need not repeat but where the op is ``tested``: its numbers
    have a known law, and the same seed gives the same.
    """

    standard: Standard
    why: str = ""
    random: bool = False
    uninitialised: bool = False
    private: tuple[str, ...] = ()
    own_dtype: tuple[str, ...] = ()
    factors: tuple[str, ...] = ()
    tested: bool = False
    signed_zeros: bool = False

    def of_output(self, name: str) -> tuple[Standard, str]:
        """The standard of one output by its name, and why it is not compared by value, if so."""
        if any(fnmatchcase(name, pattern) for pattern in self.private):
            return "metadata", _PRIVATE
        if name in self.factors:
            return "metadata", FREE
        return self.standard, self.why

    def is_private(self, name: str) -> bool:
        """Whether only the device that made it can read the output: its shape and dtype may be others too."""
        return self.of_output(name)[1] == _PRIVATE

    def keeps_dtype(self, name: str) -> bool:
        """Whether the output has the dtype that the CPU gives it."""
        return not any(fnmatchcase(name, pattern) for pattern in self.own_dtype)

    def must_be_written(self, name: str) -> bool:
        return not self.uninitialised and not self.is_private(name)

    def must_repeat(self, name: str) -> bool:
        return (self.tested or not self.random) and self.must_be_written(name)


def standard_of(case: Case) -> OpStandard:
    """The standard for ``case``; an op that this torch does not know is numeric."""
    base = case.op.split("::")[-1].split(".")[0]
    private, own_dtype = (
        tuple(output for op, output in table if fnmatchcase(base, op)) for table in (PRIVATE, OWN_DTYPE)
    )
    private += _not_asked_for(case, base)
    if base in UNINITIALISED:
        return OpStandard("metadata", "its content is not defined", uninitialised=True)
    try:
        op = resolve(case.op)
    except AttributeError:
        return OpStandard("numeric", private=private, own_dtype=own_dtype)
    if is_random(case, op):
        return OpStandard("metadata", _RANDOM, random=True, private=private, tested=base_of(case.op) in covered())
    exact = bool({base, base_of(case.op)} & EXACT) or case.op in EXACT_OVERLOADS or _is_view(op)
    standard: Standard = "exact" if exact and not _accumulates_or_divides(case) else "numeric"
    factors, signed = free_outputs(case.op), exact and (base_of(case.op) in SIGNED_ZEROS or _is_view(op))
    return OpStandard(standard, private=private, own_dtype=own_dtype, factors=factors, signed_zeros=signed)


def _not_asked_for(case: Case, base: str) -> tuple[str, ...]:
    if base not in {op for op, _, _ in ASKED_FOR}:
        return ()
    arguments = arguments_of(case)
    return tuple(output for op, by, output in ASKED_FOR if op == base and not arguments.get(by, False))


def _accumulates_or_divides(case: Case) -> bool:
    """Calls that compute where others of their op only select: a scatter that reduces, the size of complex numbers."""
    if arguments_of(case).get("reduce") is not None:
        return True
    dtypes = (spec.dtype for spec in tensors_of(case.args, case.kwargs))
    return base_of(case.op) in _ROUNDED_IF_COMPLEX and any(dtype.startswith("complex") for dtype in dtypes)


def is_random(case: Case, op: torch._ops.OpOverload) -> bool:
    """Whether the call draws random numbers: dropout does only when training with a probability above zero."""
    arguments = arguments_of(case)
    chances = [arguments[name] for name in ("p", "dropout_p", "dropout") if name in arguments]
    training = [arguments[name] for name in ("train", "training") if name in arguments]
    if False in training or (chances and all(isinstance(p, (int, float)) and p == 0 for p in chances)):
        return False
    seeded = torch.Tag.nondeterministic_seeded in op.tags
    return seeded or _fused_dropout(arguments)


def _fused_dropout(arguments: dict[str, Arg]) -> bool:
    """Ops without the tag (``miopen_rnn``) that apply dropout while training."""
    dropout = arguments.get("dropout", arguments.get("dropout_p"))
    return isinstance(dropout, float) and dropout > 0 and arguments.get("train", True) is True


def _is_view(op: torch._ops.OpOverload) -> bool:
    return any(r.alias_info is not None and not r.alias_info.is_write for r in op._schema.returns)
