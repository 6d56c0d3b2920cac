"""What each op needs of its operands' values: one row an op and argument, so that made-up inputs are valid ones.

A row holds where values were not recorded, in part also where only their range was (see ``audit.replay.domains``). The
op is its base name, without namespace, overload and the underscore of in-place forms; ``|`` separates several.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from functools import lru_cache

from audit.replay.domains import (
    above_half_order,
    attention_mask,
    base_of_power,
    constant,
    exponent,
    half_spectrum,
    hidden_mask,
    interval,
    log_probabilities,
    log_probabilities_of_classes,
    non_negative,
    positive,
    positive_definite,
    rising,
    signed_unit,
    simplex,
    symmetric,
    triangular,
    unit,
    well_conditioned,
)
from audit.replay.indices import (
    along_dim,
    between,
    distinct_index,
    divisor,
    elements_of,
    index,
    labels_until_minus_one,
    mask_for_source,
    number_in,
    pivots,
    pooled,
    positions,
    rows_of,
    shift,
    targets,
    unpooled,
)
from audit.replay.lengths import (
    bag_of_each,
    batch_sizes,
    ctc_input_lengths,
    ctc_target_lengths,
    ctc_targets,
    dense_length,
    grouped_size,
    jagged_offsets,
    lengths_of,
    longest_row,
    offsets,
    packed_rows,
    part_ends,
    sequence_lengths,
)
from audit.replay.operand import Operand, Role
from audit.replay.overload import base_of


def _ends(operand: Operand) -> bool:
    return operand.flag("include_last_offset")


def _always(operand: Operand) -> bool:
    return True


#: (ops, argument, role); the first row that fits counts.
ROLES: tuple[tuple[str, str, Role], ...] = (
    # indices into another argument
    ("embedding_dense_backward|_embedding_bag*backward", "indices", index(number_in("num_weights"))),
    ("embedding|embedding_renorm|embedding_bag|_embedding_bag*", "indices", index(rows_of("weight"))),
    ("embedding_bag|_embedding_bag*", "offsets", offsets(rows_of("indices"), _ends)),
    ("_embedding_bag*backward", "offset2bag", bag_of_each),
    ("_embedding_bag*backward", "bag_size", lengths_of(rows_of("indices"))),
    ("_embedding_bag*backward", "maximum_indices", index(number_in("num_weights"))),
    ("index|index_put|_index_put_impl|_unsafe_*index*", "indices", positions),
    ("index_copy|scatter", "index", distinct_index),
    ("index_*|gather|scatter_*|take_along_dim", "index|indices", index(along_dim())),
    ("take|put", "index", index(elements_of("self"))),
    ("bincount", "self", between(0, 15)),
    ("max_pool2d_with_indices_backward|adaptive_max_pool2d_backward", "indices", pooled(2)),
    ("max_pool3d_with_indices_backward|adaptive_max_pool3d_backward", "indices", pooled(3)),
    ("fractional_max_pool2d_backward", "indices", pooled(2)),
    ("fractional_max_pool3d_backward", "indices", pooled(3)),
    ("max_unpool2d", "indices", unpooled(2)),
    ("max_unpool3d", "indices", unpooled(3)),
    # classes and probabilities of losses
    ("multilabel_margin_loss*", "target", labels_until_minus_one),
    ("nll_loss*|multi_margin_loss*", "target", targets),
    ("nll_loss*", "self", log_probabilities_of_classes),
    ("nll_loss*", "total_weight", constant(8.0)),
    ("nll_loss*|multi_margin_loss*", "weight", positive),
    ("binary_cross_entropy*", "self|target|weight", unit),
    ("*ctc_loss*", "log_probs", log_probabilities),
    ("*ctc_loss*", "targets", ctc_targets),
    ("*ctc_loss*", "input_lengths", ctc_input_lengths),
    ("*ctc_loss*", "target_lengths", ctc_target_lengths),
    ("multinomial", "self", simplex),
    ("_softmax_backward_data", "output", simplex),
    ("_log_softmax_backward_data", "output", log_probabilities),
    ("bernoulli", "self|p", unit),
    ("binomial", "prob", unit),
    ("binomial", "count", constant(10.0)),
    ("poisson|_standard_gamma*|_sample_dirichlet|_dirichlet_grad", "*", positive),
    ("normal*", "std", positive),
    # lengths and offsets
    ("_pack_padded_sequence", "lengths", sequence_lengths),
    ("_pad_packed_sequence|gru|lstm|rnn_tanh|rnn_relu", "batch_sizes", batch_sizes),
    ("repeat_interleave", "repeats", lengths_of(number_in("output_size"))),
    ("segment_reduce|_segment_reduce_backward", "lengths", lengths_of(along_dim("data", "axis"))),
    ("segment_reduce|_segment_reduce_backward", "offsets", offsets(along_dim("data", "axis"), _always)),
    ("_padded_dense_to_jagged_forward", "offsets", jagged_offsets(number_in("total_L"), dense_length)),
    ("_jagged_to_padded_dense_forward", "offsets", jagged_offsets(rows_of("values"), dense_length)),
    ("_flash_attention*", "cum_seq_*", jagged_offsets(packed_rows, longest_row)),
    ("_efficient_attention*", "cu_seqlens_*", jagged_offsets(packed_rows, longest_row)),
    ("_grouped_mm|_scaled_grouped_mm", "offs", part_ends(grouped_size)),
    # masks
    ("scaled_dot_product_attention|_scaled_dot_product_*", "attn_mask|attn_bias", attention_mask),
    ("_efficient_attention*", "bias", attention_mask),
    ("_masked_softmax|_transformer_encoder_layer_fwd|_native_multi_head_attention", "mask", hidden_mask),
    ("masked_scatter", "mask", mask_for_source),
    # order
    ("searchsorted", "sorted_sequence", rising),
    ("bucketize", "boundaries", rising),
    ("histogram", "bins", rising),
    # domains of functions
    ("log|log2|log10|sqrt|rsqrt|lgamma|digamma|polygamma|special_entr", "self", positive),
    ("_foreach_log*|_foreach_sqrt|_foreach_rsqrt|_foreach_lgamma", "self", positive),
    ("asin|acos|atanh|erfinv|_foreach_asin|_foreach_acos", "self", signed_unit),
    ("*grid_sampler_?d*|grid_sampler", "grid", signed_unit),
    ("logit|special_ndtri", "self", unit),
    ("log1p|_foreach_log1p", "self", interval(-1.0, 4.0)),
    ("acosh", "self", interval(1.0, 5.0)),
    ("mvlgamma", "self", above_half_order),
    ("igamma|igammac|special_zeta", "self|other", interval(1.0, 5.0)),
    ("xlogy|special_xlog1py", "other", positive),
    ("sigmoid_backward", "output", unit),
    ("_thnn_fused_*_backward*", "workspace", unit),
    ("tanh_backward", "output", signed_unit),
    ("pow|_foreach_pow|float_power", "self", base_of_power),
    ("pow|_foreach_pow|float_power", "exponent", exponent),
    ("div|_foreach_div|floor_divide|remainder|fmod", "other", divisor),
    ("__lshift__|__rshift__|bitwise_left_shift|bitwise_right_shift", "other", shift),
    ("lerp|_foreach_lerp", "weight|weights", unit),
    # variances, scales and optimizer states
    ("*batch_norm*", "running_var|save_var|save_invstd|invstd", positive),
    ("native_layer_norm_backward|native_group_norm_backward|_fused_rms_norm_backward", "rstd", positive),
    ("batch_norm_gather_stats*|batch_norm_backward_elemt", "count|counts", constant(8.0)),
    ("_weight_norm_interface_backward", "saved_norms", positive),
    ("_fused_ada*", "exp_avg_sqs|max_exp_avg_sqs|state_sums", non_negative),
    ("_fused_ada*", "state_steps", constant(2.0)),
    ("_fused_ada*|_fused_sgd", "grad_scale|lr", unit),
    ("_fused_ada*|_fused_sgd|_amp_*", "found_inf", constant(0.0)),
    ("_amp_foreach_non_finite_check_and_unscale", "inv_scale", unit),
    ("_amp_update_scale", "self", constant(65536.0)),
    ("_scaled_mm*|_scaled_grouped_mm*", "scale_a|scale_b|scale_result", positive),
    ("*fake_quantize*", "scale", unit),
    ("_assert_async|_functional_assert_async", "self", constant(1.0)),
    # matrices that are factored
    ("cholesky|linalg_cholesky_ex", "self", positive_definite),
    ("cholesky_solve", "input2", triangular),
    ("cholesky_inverse", "self", triangular),
    ("linalg_solve_triangular", "self", triangular),
    ("triangular_solve", "A", triangular),
    ("_linalg_eigh", "A", symmetric),
    ("linalg_ldl_factor_ex", "self", symmetric),
    ("linalg_inv_ex|_linalg_solve_ex|_linalg_det|_linalg_slogdet|linalg_lu*", "A|LU", well_conditioned),
    ("linalg_lstsq", "self", well_conditioned),
    ("lu_unpack", "LU_data", well_conditioned),
    ("linalg_lu_solve", "pivots", pivots),
    ("lu_unpack", "LU_pivots", pivots),
    ("_fft_c2r", "self", half_spectrum),
)  # fmt: skip


@lru_cache(maxsize=4096)
def row_of(op: str, argument: str) -> int | None:
    """The row for an argument of a qualified op (``aten::index_put_.default``, ``indices``), or None."""
    base = base_of(op)
    return next((row for row, (ops, names, _) in enumerate(ROLES) if _fits(base, ops) and _fits(argument, names)), None)


def role_of(op: str, argument: str) -> Role | None:
    """The role of an argument, or None where its statistics alone say what it may hold."""
    row = row_of(op, argument)
    return None if row is None else ROLES[row][2]


def _fits(name: str, patterns: str) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns.split("|"))
