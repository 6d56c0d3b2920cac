"""Backward ops that read what their own forward left behind: they get the forward outputs of the side they run on.

A log-sum-exp, a random state, the saved statistics or reserve space of one device mean nothing to another, or have
another dtype or layout there. So before such a backward each side runs the forward on the same operands, and the
private outputs take the place of the recorded ones.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from audit.replay.inputs import Bound
from audit.replay.overload import named_arguments, resolve
from audit.schema import Case

Operator = Callable[..., Any]


@dataclass(frozen=True)
class Forward:
    """How to run the forward of a backward op.

    ``same`` names the forward's arguments that are the backward's of that name, ``renamed`` those of another name
    there, ``fixed`` those that the backward does not know. ``outputs`` is backward argument -> forward output number.
    """

    op: str
    outputs: Mapping[str, int]
    same: str = ""
    renamed: Mapping[str, str] = field(default_factory=dict)
    fixed: Mapping[str, Any] = field(default_factory=dict)


#: The default epsilon of torch.nn's norms; a backward op does not know which one its forward had.
_EPS = 1e-5
_MOMENTUM = 0.1
_BATCH_NORM = "input weight running_mean running_var"
_RNN = (
    "input weight weight_stride0 hx cx mode hidden_size num_layers batch_first dropout train bidirectional "
    "batch_sizes dropout_state"
)
_CTC = "log_probs targets input_lengths target_lengths blank zero_infinity"

#: Backward op -> its forward.
FORWARDS: Mapping[str, Forward] = {
    # attention
    "aten::_scaled_dot_product_flash_attention_backward.default": Forward(
        "aten::_scaled_dot_product_flash_attention.default",
        {"out": 0, "logsumexp": 1, "cum_seq_q": 2, "cum_seq_k": 3, "philox_seed": 6, "philox_offset": 7},
        "query key value dropout_p is_causal scale",
    ),
    "aten::_scaled_dot_product_efficient_attention_backward.default": Forward(
        "aten::_scaled_dot_product_efficient_attention.default",
        {"out": 0, "logsumexp": 1, "philox_seed": 2, "philox_offset": 3},
        "query key value attn_bias dropout_p is_causal scale",
        fixed={"compute_log_sumexp": True},
    ),
    "aten::_scaled_dot_product_cudnn_attention_backward.default": Forward(
        "aten::_scaled_dot_product_cudnn_attention.default",
        {"out": 0, "logsumexp": 1, "cum_seq_q": 2, "cum_seq_k": 3, "philox_seed": 6, "philox_offset": 7},
        "query key value attn_bias dropout_p is_causal scale",
        fixed={"compute_log_sumexp": True},
    ),
    "aten::_scaled_dot_product_flash_attention_for_cpu_backward.default": Forward(
        "aten::_scaled_dot_product_flash_attention_for_cpu.default",
        {"out": 0, "logsumexp": 1},
        "query key value dropout_p is_causal attn_mask scale",
    ),
    "aten::_flash_attention_backward.default": Forward(
        "aten::_flash_attention_forward.default",
        {"out": 0, "logsumexp": 1, "rng_state": 2, "unused": 3},
        "query key value cum_seq_q cum_seq_k max_q max_k dropout_p is_causal scale window_size_left window_size_right",
        fixed={"return_debug_mask": False},
    ),
    "aten::_efficient_attention_backward.default": Forward(
        "aten::_efficient_attention_forward.default",
        {"out": 0, "logsumexp": 1, "philox_seed": 2, "philox_offset": 3},
        "query key value bias cu_seqlens_q cu_seqlens_k max_seqlen_q max_seqlen_k dropout_p custom_mask_type scale "
        "window_size",
        fixed={"compute_log_sumexp": True},
    ),
    # norms
    "aten::native_layer_norm_backward.default": Forward(
        "aten::native_layer_norm.default",
        {"mean": 1, "rstd": 2},
        "input normalized_shape weight bias",
        fixed={"eps": _EPS},
    ),
    "aten::native_group_norm_backward.default": Forward(
        "aten::native_group_norm.default",
        {"mean": 1, "rstd": 2},
        "input weight N C HxW group",
        fixed={"bias": None, "eps": _EPS},
    ),
    "aten::_fused_rms_norm_backward.default": Forward(
        "aten::_fused_rms_norm.default", {"rstd": 1}, "input normalized_shape weight", fixed={"eps": _EPS}
    ),
    "aten::native_batch_norm_backward.default": Forward(
        "aten::native_batch_norm.default",
        {"save_mean": 1, "save_invstd": 2},
        _BATCH_NORM + " eps",
        {"training": "train"},
        {"bias": None, "momentum": _MOMENTUM},
    ),
    "aten::batch_norm_backward.default": Forward(
        "aten::_batch_norm_with_update.default",
        {"save_mean": 1, "save_var": 2, "reserve": 3},
        _BATCH_NORM + " eps",
        {"bias": "weight"},
        {"momentum": _MOMENTUM},
    ),
    "aten::cudnn_batch_norm_backward.default": Forward(
        "aten::cudnn_batch_norm.default",
        {"save_mean": 1, "save_var": 2, "reserveSpace": 3},
        _BATCH_NORM + " epsilon",
        {"bias": "weight"},
        {"training": True, "exponential_average_factor": _MOMENTUM},
    ),
    "aten::miopen_batch_norm_backward.default": Forward(
        "aten::miopen_batch_norm.default",
        {"save_mean": 1, "save_var": 2},
        _BATCH_NORM + " epsilon",
        {"bias": "weight"},
        {"training": True, "exponential_average_factor": _MOMENTUM},
    ),
    "aten::_weight_norm_interface_backward.default": Forward(
        "aten::_weight_norm_interface.default", {"saved_norms": 1}, "dim", {"v": "saved_v", "g": "saved_g"}
    ),
    # recurrent nets and CTC
    "aten::_cudnn_rnn_backward.default": Forward(
        "aten::_cudnn_rnn.default", {"output": 0, "reserve": 3}, _RNN + " weight_buf proj_size"
    ),
    "aten::miopen_rnn_backward.default": Forward("aten::miopen_rnn.default", {"output": 0, "reserve": 3}, _RNN),
    "aten::_ctc_loss_backward.default": Forward(
        "aten::_ctc_loss.default", {"neg_log_likelihood": 0, "log_alpha": 1}, _CTC
    ),
    "aten::_ctc_loss_backward.Tensor": Forward(
        "aten::_ctc_loss.Tensor", {"neg_log_likelihood": 0, "log_alpha": 1}, _CTC
    ),
    # a buffer that the CPU fills and a GPU leaves empty
    "aten::log_sigmoid_backward.default": Forward("aten::log_sigmoid_forward.default", {"buffer": 1}, "self"),
}


def with_own_forward(case: Case, bound: Bound, operator: Callable[[str], Operator]) -> tuple[Bound, str]:
    """The call with its private operands replaced by what the forward gives here, and a note where it gives nothing.

    ``operator`` finds the forward on this side by its qualified name. The forward works on copies of what it may
    write (running statistics). A forward that raises leaves the operands as they were recorded.
    """
    forward = FORWARDS.get(case.op)
    if forward is None:
        return bound, ""
    arguments = named_arguments(case.op, bound.args, bound.kwargs)
    try:
        with torch.no_grad():
            outputs = _run(forward, arguments, operator)
    except (RuntimeError, AttributeError) as error:
        return bound, f"its forward {forward.op} gave no operands of its own: {str(error).splitlines()[0]}"
    replaced = {
        name: outputs[number]
        for name, number in forward.outputs.items()
        if isinstance(arguments.get(name), torch.Tensor) and isinstance(outputs[number], torch.Tensor)
    }
    names = [argument.name for argument in resolve(case.op)._schema.arguments]
    args = [replaced.get(name, given) for name, given in zip(names, bound.args, strict=False)]
    kwargs = {name: replaced.get(name, given) for name, given in bound.kwargs.items()}
    return dataclasses.replace(bound, args=args, kwargs=kwargs), ""


def _run(forward: Forward, arguments: Mapping[str, Any], operator: Callable[[str], Operator]) -> tuple[Any, ...]:
    given = {name: arguments[name] for name in forward.same.split() if name in arguments}
    given |= {name: arguments[other] for name, other in forward.renamed.items()}
    given |= forward.fixed
    for name in ("running_mean", "running_var"):
        if isinstance(given.get(name), torch.Tensor):
            given[name] = given[name].clone()
    args, kwargs = [], {}
    for argument in resolve(forward.op)._schema.arguments:
        if argument.kwarg_only and argument.name in given:
            kwargs[argument.name] = given[argument.name]
        elif not argument.kwarg_only:
            args.append(given.get(argument.name, argument.default_value))
    outputs = operator(forward.op)(*args, **kwargs)
    return outputs if isinstance(outputs, tuple) else (outputs,)
