"""Ops of several names that are one kind of call: which of them runs is the device's and its library's choice.

Batch norm's backward is ``miopen_batch_norm_backward`` on one GPU and ``cudnn_batch_norm_backward`` on the other, and
attention's is that of whichever kernel was chosen. Set side by side, they are the same work where what they take in
common is the same. What only one library wants (its reserved space, the saved statistics) is no part of it.

Source: ``native_functions.yaml`` of torch 2.13; of 1.8 to 1.10 for the backward of convolutions that each library had.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from audit.schema import Arg

#: What the ops of a kind have in common. The kind has the name of one of them.
_COMMON: Mapping[str, str] = {
    "batch_norm": "input weight bias running_mean running_var training momentum eps",
    "native_batch_norm_backward": "grad input weight train eps mask",
    "convolution": "input weight bias stride padding dilation transposed output_padding groups",
    "convolution_backward": "grad input weight stride padding dilation transposed output_padding groups mask",
    "_scaled_dot_product_flash_attention": "query key value bias dropout causal",
    "_scaled_dot_product_flash_attention_backward": "grad query key value bias dropout causal",
}
_STATISTICS = "running_mean running_var save_mean save_var"
_HOW = "groups benchmark deterministic"
_CUM = "cum_q cum_k max_q max_k"
_WHOLE: Mapping[str, Arg] = {"train": True, "mask": (True, True, True)}
_DIRECT: Mapping[str, Arg] = {"bias": None, "transposed": False}
_TRANSPOSED: Mapping[str, Arg] = {"bias": None, "transposed": True}

#: Kind, ops of it, what they take by position, and what they do not take since they can do nothing else. Where torch
#: has changed an op, its forms are told apart by their length.
_FORMS: tuple[tuple[str, str, str, Mapping[str, Arg]], ...] = (
    ("batch_norm", "batch_norm", f"{_COMMON['batch_norm']} cudnn_enabled", {}),
    ("batch_norm", "miopen_batch_norm cudnn_batch_norm native_batch_norm _native_batch_norm_legit",
     _COMMON["batch_norm"], {}),
    ("native_batch_norm_backward", "native_batch_norm_backward",
     f"grad input weight {_STATISTICS} train eps mask", {}),
    ("native_batch_norm_backward", "batch_norm_backward",
     f"grad input weight {_STATISTICS} train eps mask reserve", {}),
    ("native_batch_norm_backward", "miopen_batch_norm_backward cudnn_batch_norm_backward",
     f"input grad weight {_STATISTICS} eps", _WHOLE),
    ("native_batch_norm_backward", "cudnn_batch_norm_backward", f"input grad weight {_STATISTICS} eps reserve", _WHOLE),
    ("convolution", "convolution", _COMMON["convolution"], {}),
    ("convolution", "miopen_convolution miopen_depthwise_convolution",
     f"input weight bias padding stride dilation {_HOW}", _DIRECT),
    ("convolution", "cudnn_convolution", f"input weight padding stride dilation {_HOW} allow_tf32", _DIRECT),
    ("convolution", "miopen_convolution_transpose",
     f"input weight bias padding output_padding stride dilation {_HOW}", _TRANSPOSED),
    ("convolution", "cudnn_convolution_transpose",
     f"input weight padding output_padding stride dilation {_HOW} allow_tf32", _TRANSPOSED),
    ("convolution_backward", "convolution_backward",
     "grad input weight bias_sizes stride padding dilation transposed output_padding groups mask", {}),
    *(("convolution_backward", "miopen_convolution_backward miopen_depthwise_convolution_backward "
       "cudnn_convolution_backward", f"input grad weight padding stride dilation {how} mask", _DIRECT)
      for how in (_HOW, f"{_HOW} allow_tf32")),
    *(("convolution_backward", "miopen_convolution_transpose_backward cudnn_convolution_transpose_backward",
       f"input grad weight padding output_padding stride dilation {how} mask", _TRANSPOSED)
      for how in (_HOW, f"{_HOW} allow_tf32")),
    ("_scaled_dot_product_flash_attention", "_scaled_dot_product_flash_attention",
     "query key value dropout causal debug", {"bias": None}),
    ("_scaled_dot_product_flash_attention", "_scaled_dot_product_efficient_attention",
     "query key value bias logsumexp dropout causal", {}),
    ("_scaled_dot_product_flash_attention", "_scaled_dot_product_cudnn_attention",
     "query key value bias logsumexp dropout causal debug", {}),
    ("_scaled_dot_product_flash_attention_backward", "_scaled_dot_product_flash_attention_backward",
     f"grad query key value out logsumexp {_CUM} dropout causal seed offset", {"bias": None}),
    ("_scaled_dot_product_flash_attention_backward", "_scaled_dot_product_efficient_attention_backward",
     "grad query key value bias out logsumexp seed offset dropout mask causal", {}),
    ("_scaled_dot_product_flash_attention_backward", "_scaled_dot_product_cudnn_attention_backward",
     f"grad query key value out logsumexp seed offset bias {_CUM} dropout causal", {}),
)  # fmt: skip


@dataclass(frozen=True)
class _Form:
    """``wanted`` of what is taken and what is fixed, in the order of the kind."""

    kind: str
    takes: tuple[str, ...]
    fixed: Mapping[str, Arg]
    wanted: tuple[str, ...]


def _forms() -> Iterator[tuple[tuple[str, int], _Form]]:
    for kind, names, takes, fixed in _FORMS:
        for name in names.split():
            form = _Form(f"aten::{kind}", tuple(takes.split()), fixed, tuple(_COMMON[kind].split()))
            yield (f"aten::{name}", len(form.takes)), form


#: By the op's name without its overload, and the number of its arguments.
BY_OP: Mapping[tuple[str, int], _Form] = dict(_forms())


def kind_of_call(op: str, args: tuple[Arg, ...]) -> tuple[str, tuple[Arg, ...]]:
    """The kind of call, and of the arguments what all ops of that kind take; ``op`` and ``args`` as they are where
    there is none, or where these are not the arguments that the op is known to take. ``op`` has no overload; ``args``
    are those by position, for what goes by keyword (attention's scale) has the same name in all ops of a kind."""
    form = BY_OP.get((op, len(args)))
    if form is None:
        return op, args
    values = {**form.fixed, **dict(zip(form.takes, args, strict=True))}
    padding, mask = values.get("padding"), values.get("mask")
    if isinstance(padding, tuple):
        values.setdefault("output_padding", (0,) * len(padding))
    if isinstance(mask, tuple) and len(mask) == 2:  # of cuDNN, which had no gradient of the bias
        values["mask"] = (*mask, False)
    if not all(name in values for name in form.wanted):
        return op, args
    return form.kind, tuple(values[name] for name in form.wanted)
