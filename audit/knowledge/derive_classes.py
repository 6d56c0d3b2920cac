"""Derives ``op_classes.csv`` from torch's native_functions.yaml: what sort of work each op does.

Run as ``python -m audit.knowledge.derive_classes`` beside the torch to be described; torch is located, not imported.
The globs below come first, since a tag does not tell a norm from a sum; then what the file says; then what an op is
a variant of.
"""

from __future__ import annotations

import csv
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib.metadata import distribution
from pathlib import Path
from typing import TextIO

from audit.knowledge.derive_dispatch import SOURCE, YAML, overload
from audit.knowledge.tables import matches

FIELDS = ("op", "op_class", "source")
BY_HAND = "by hand, from the op's documentation"

#: Class and names without namespace and overload, first match wins; a trailing ``_`` of an in-place op is taken off.
GLOBS: tuple[tuple[str, str], ...] = (
    # Questions about a tensor, and changes of what it is called or kept in: a device has nothing to do.
    (
        "view",
        """
        is_* _is_zerotensor _has_* *_is_contiguous _use_* can_cast sym_* size stride storage* numel data
        set_data set _assert* _functional_assert* *sym_constrain* _version dim get_device output_nr retain*
        requires_grad _backward result_type promote_types _debug* _print _make_dep_token _fw_primal*
        _make_dual* _unpack_dual* *_batch_dim _cufft* record_stream cudnn_is_acceptable _nnpack_available
        _fused_sdp_choice _propagate* _dim? *sparse_dim dense_dim *_nnz q_* qscheme *_validate_* _nested_get*
        _nested_tensor_size _nested_tensor_strides _nested_tensor_storage* matrix_H empty* new_empty* _empty*
        resize* _resize* sparse_resize* _unsafe_view unsafe_chunk unsafe_split* *_view_from* lift _reshape*
        *unflatten* _lazy_clone from_file atleast_* broadcast_tensors linalg_diagonal *sparse_???_tensor*
        *sparse_compressed_tensor* _make_per_*_quantized* *coalesce* _shape_as* flatten reshape* int_repr
        """,
    ),
    ("attention", "*attention* *multi_head* _transformer_encoder* _transform_bias_rescale_qkv"),
    ("recurrent", "*lstm* *gru* *rnn*"),
    ("convolution", "*conv1d* *conv2d* *conv3d* *convolution* *conv_* *_conv"),
    ("optimizer", "_fused_ada* _fused_sgd* _foreach_* _amp_*"),
    ("fft", "fft_* _fft_* stft istft"),
    ("normalization", "*batch_norm* *layer_norm* *group_norm* *rms_norm* *instance_norm renorm _weight_norm*"),
    ("softmax", "*softmax*"),
    ("loss", "*_loss *_loss_* *_loss2d* binary_cross_entropy* kl_div"),
    ("pooling", "*pool?d* *upsample* *grid_sample* *affine_grid* max_unpool*"),
    (
        "gather",
        """
        index _unsafe_index index_select gather* take take_along_dim embedding *embedding_bag
        _embedding_bag_forward_only embedding_renorm masked_select nonzero* argwhere _unsafe_masked_index
        *_per_sample_weights_backward
        """,
    ),
    (
        "scatter",
        """
        *scatter* *index_put* index_add index_copy index_fill index_reduce put *segment_reduce* bincount hist*
        _hist* embedding_*backward _embedding_bag_*backward index_select_backward masked_select_backward
        *_index_put_accumulate fill_diagonal _sparse_mask_projection sparse_mask
        """,
    ),
    ("sort", "*sort topk kthvalue *median mode *unique* searchsorted bucketize isin *quantile"),
    (
        "gemm",
        """
        *mm *mm_* bmm linear linear_backward *_linear *_linear_* matmul* *_matmul* mv addmv *dot inner outer
        ger addr einsum bilinear _trilinear kron *cdist* *pdist* _euclidean_dist fbgemm* *_addmm*
        *linear_prepack _cslt* _convert_weight_to_int4*
        """,
    ),
    (
        "reduction",
        """
        linalg_*norm linalg_vecdot *_norm norm norm_except_dim dist logsumexp cosine_similarity
        pairwise_distance *powsum cum* _cum* *logcumsumexp trap* diff allclose corrcoef cov gradient
        *_is_a??_true *_sum *_sum_* sum_to_size *_csr_prod hash_tensor equal trace special_logsumexp
        choose_qparams* _choose_qparams* *moving_avg_obs* *aminmax count_nonzero nanmean
        """,
    ),
    (
        "elementwise",
        """
        linalg_cross cross *_quantize* quantize_* dequantize *_qparams *saturate* floor_divide *glu* prelu*
        isclose relu6 where softplus* clip __*__ special_* absolute arc* divide fix greater* less* multiply
        negative not_equal subtract isreal hardswish* *gelu* log_sigmoid* _add_relu _prelu_kernel*
        """,
    ),
    (
        "linalg",
        """
        linalg_* _linalg_* cholesky* _cholesky* *_solve lu_* _lu_* svd qr geqrf orgqr ormqr inverse *det
        pinverse matrix_exp* matrix_power _spsolve
        """,
    ),
    (
        "random",
        """
        *dropout* _masked_scale bernoulli multinomial rand* normal* uniform cauchy exponential geometric
        log_normal *sobol* _philox* _dirichlet_grad _standard_gamma_grad rrelu*
        """,
    ),
    (
        "copy",
        """
        *_pad?d* *pad constant_pad_nd _pad_* pad_sequence *_padded_* _pack_padded* im2col* col2im*
        unfold_backward *pixel_* *channel_shuffle roll flip* rot90 *cat concat* *stack block_diag repeat* tile
        clone copy copy_sparse* *_to_copy to to_* _to_* contiguous _copy_from* resolve_* item
        _local_scalar_dense *pin_memory type_as meshgrid zeros* ones* full* new_zeros new_ones new_full fill
        zero eye arange _dim_arange range linspace logspace scalar_tensor _efficientzero* tril* triu* *_window
        *vander diag diag_embed diagflat complex polar one_hot cartesian_prod combinations slice_*
        select_backward diagonal_backward trace_backward *_copy _cast_* _autocast_to* chalf value_selecting*
        *broadcast_to_copy flatten_dense* *spdiags *reorder_conv* fbgemm_pack* _nested_from*
        _nested_tensor_from* _nested_select_backward _mkldnn_* _convert_indices* _rowwise_prune
        _new_zeros_with*
        """,
    ),
)


@dataclass
class Function:
    """One ``- func:`` block: its tags, what it delegates to, and whether a result is a view of an argument."""

    op: str
    tags: frozenset[str] = frozenset()
    delegate: str = ""
    views: bool = False
    autogen: list[str] = field(default_factory=list)


def parse(text: str) -> list[Function]:
    """The blocks of the file, in order; a result ``Tensor(a)`` without ``!`` is an alias of an argument."""
    found: list[Function] = []
    for line in text.splitlines():
        line = line.split(" #")[0].rstrip()
        if match := re.match(r"- func: ([\w.]+)\((.*)\) -> (.*)", line):
            found.append(Function(overload(match[1]), views=re.search(r"Tensor\(\w(\|\w)?\)", match[3]) is not None))
        elif match := re.match(r"  (tags|structured_delegate|autogen): (.+)", line):
            if match[1] == "tags":
                found[-1].tags = frozenset(re.findall(r"\w+", match[2]))
            elif match[1] == "autogen":
                found[-1].autogen = [overload(name.strip()) for name in match[2].split(",")]
            else:
                found[-1].delegate = overload(match[2].strip())
    return found


_BY_TAG: Mapping[str, str] = {
    "inplace_view": "view",
    "view_copy": "copy",
    "reduction": "reduction",
    "pointwise": "elementwise",
    "nondeterministic_seeded": "random",
}


def classify(functions: list[Function]) -> Iterator[tuple[str, str, str]]:
    """(op, class, source) of every op, those that torchgen makes of others included."""
    siblings = {base_of(function.op): function for function in functions if function.tags & set(_BY_TAG)}
    named = {function.op for function in functions}
    for function in functions:
        for op in (function.op, *(name for name in function.autogen if name not in named)):
            yield op, *_class_of(op, function, siblings)


def base_of(op: str) -> str:
    """``aten::relu_.default`` -> ``relu``."""
    name = op.partition("::")[2].partition(".")[0]
    return name if name.endswith("__") else name.rstrip("_")


def _class_of(op: str, function: Function, siblings: Mapping[str, Function]) -> tuple[str, str]:
    name = base_of(op)
    for op_class, patterns in GLOBS:
        if matches(name, tuple(patterns.split())):
            return op_class, BY_HAND
    if function.views:
        return "view", f"{SOURCE}, alias annotation"
    for one in (function, siblings.get(name), siblings.get(name.removesuffix("_backward"))):
        for tag, op_class in _BY_TAG.items():
            if one is not None and tag in one.tags:
                return op_class, f"{SOURCE}, tag {tag}"
    return "other", "nothing tells"


def write(target: TextIO, functions: list[Function]) -> None:
    """The globs in their order, for ops of other torch versions, then every op."""
    writer = csv.writer(target, lineterminator="\n")
    writer.writerow(FIELDS)
    for op_class, patterns in GLOBS:
        writer.writerow(("|".join(patterns.split()), op_class, BY_HAND))
    writer.writerows(sorted(set(classify(functions))))


def main() -> None:
    """Writes the table for the torch installed in this environment to stdout."""
    torch = distribution("torch")
    write(sys.stdout, parse(Path(str(torch.locate_file(YAML))).read_text()))


if __name__ == "__main__":
    main()
