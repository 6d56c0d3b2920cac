"""Which cases are too large for a whole reference, and what stands in its place."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from audit.comparison import Layout
from audit.replay.compare import Expected, fact_of
from audit.replay.equivalents import equivalent_of
from audit.replay.execute import call, mutated_name, with_mutated
from audit.replay.inputs import Bound, bind, storages_of, torch_dtype
from audit.replay.layout import promised_layout
from audit.replay.outcomes import attempt
from audit.replay.overload import arguments_of, base_of, named_arguments, operand_names, resolve, written_operands
from audit.replay.sampled.attention_calls import ATTENTIONS, attention_of, expected_of, is_covered
from audit.replay.sampled.bilinear import Bilinear
from audit.replay.sampled.blocks import Blocked, BlockOutput, Measure, blocks_of
from audit.replay.sampled.convolution_calls import BACKWARDS, FORWARDS, forward_of, gradients_of
from audit.replay.sampled.independent import independent_parts
from audit.replay.sampled.linear_output import prepared
from audit.replay.sampled.products import PRODUCTS, product_of
from audit.replay.standards import standard_of
from audit.replay.stream import Stream
from audit.schema import Case, Outcome, TensorSpec

#: Above this many operations the whole is not computed: one fp64 run takes about 1.5 s on two cores (44 GFLOP/s were
#: measured), and a reference needs two of them and one in the case's own dtype, which may be slower still.
FLOPS_LIMIT = 2.0**36
#: No case of fewer operand bytes reaches that: an attention of 16,384 tokens and one head of 64 has 6 MiB.
_BYTES_LIMIT = 1 << 20
#: Operands of more bytes are not computed whole either, where they come apart: in double precision, moved, and in their
#: own dtype, they would take ten times that.
BLOCKS_LIMIT_BYTES = 1 << 28
_META = torch.device("meta")
_KNOWN = PRODUCTS | FORWARDS | BACKWARDS
Operand = Callable[[int, TensorSpec], torch.Tensor]


@dataclass(frozen=True)
class Spooled:
    """The operands of a case: whole, as the bytes of its storages, which are not to be written, and how a small case on
    parts of them is measured."""

    operand: Operand
    contents: Mapping[str, torch.Tensor]
    measure: Measure
    seed: int


def expectations(case: Case, spooled: Spooled) -> dict[str, Expected] | None:
    """What is expected of each output, by name; None where the case is small, or of a kind that is computed whole."""
    standard = standard_of(case).standard
    if case.op.partition("::")[0] != "aten" or standard == "metadata":
        return None
    nbytes = sum(storage.nbytes for storage in storages_of(case))
    if nbytes < _BYTES_LIMIT:
        return None
    found = _linear_or_attention(case, spooled.operand, spooled.seed) if standard == "numeric" else None
    if found is None and (nbytes > BLOCKS_LIMIT_BYTES or _may_grow(case)):
        return _in_blocks(case, spooled, nbytes)
    return found


def _may_grow(case: Case) -> bool:
    """Whether outputs may be much larger than the operands."""
    return base_of(case.op) == "embedding_dense_backward" or torch.Tag.pointwise in resolve(case.op).tags


def _in_blocks(case: Case, spooled: Spooled, nbytes: int) -> dict[str, Expected] | None:
    outputs = _meta_outputs(case, spooled.seed)
    out_bytes = sum(output.numel() * output.itemsize for output in outputs.values())
    if not outputs or max(nbytes, out_bytes) <= BLOCKS_LIMIT_BYTES:
        return None
    facts = {name: fact_of(output) for name, output in outputs.items()}
    independent = independent_parts(case, next(iter(facts.values())).sizes, out_bytes)
    if independent is None:
        return None
    try:
        block = next(blocks_of(case, independent))
    except ValueError:
        return None
    shown = spooled.measure(block.case, block.contents(spooled.contents))
    facts |= {  # torch's shapes without values have other dtypes at times
        name: dataclasses.replace(facts[name], dtype=found.fact.dtype) for name, found in shown.items() if name in facts
    }
    standard = standard_of(case)
    blocked = Blocked(case, independent, spooled.contents, facts, spooled.measure)
    layouts = _layouts(case, spooled.seed, outputs)
    return {
        name: Expected(
            name,
            fact,
            *standard.of_output(name),
            sampled=BlockOutput(blocked, name),
            facts_known=standard.keeps_dtype(name),
            layout=layouts[name] if standard.keeps_dtype(name) else "",
        )
        for name, fact in facts.items()
        if not standard.is_private(name)
    }


def _layouts(case: Case, seed: int, outputs: Mapping[str, torch.Tensor]) -> dict[str, Layout]:
    """What is promised of where each output lies; nothing of operands that are written."""
    op, operands = resolve(case.op), bind(case, _on_meta, _META, seed).operands
    changed = {mutated_name(operand_names(case)[position]) for position in written(case)}
    return {n: "" if n in changed else promised_layout(case, op, operands, output) for n, output in outputs.items()}


def moves_of(case: Case) -> dict[str, float]:
    """Of the outputs in single precision that are products with long sums: see ``Bilinear.moves``."""
    base = base_of(case.op)
    if case.op.partition("::")[0] != "aten" or base not in _KNOWN or case.grads is not None:
        return {}
    outputs = {name: output for name, output in _meta_outputs(case, 0).items() if output.dtype == torch.float32}
    if not outputs:
        return {}
    forms = attempt(lambda: _forms(base, _arguments(case, bind(case, _on_meta, _META, 0)), outputs))
    return {} if isinstance(forms, Outcome) else {name: form.moves for name, form in forms.items() if form.moves > 1}


def _linear_or_attention(case: Case, operand: Operand, seed: int) -> dict[str, Expected] | None:
    base = base_of(case.op)
    if base in ATTENTIONS:
        return _attention(base, case, operand, seed)
    if base not in _KNOWN or case.grads is not None:
        return None
    outputs = _meta_outputs(case, seed)
    if not outputs or not all(_is_plain_float(output) for output in outputs.values()):
        return None
    bound = bind(case, operand, torch.device("cpu"), seed)
    forms = _forms(base, _arguments(case, bound), outputs)
    if forms.keys() != outputs.keys() or sum(form.flops for form in forms.values()) <= FLOPS_LIMIT:
        return None
    return {
        name: Expected(
            name, fact_of(outputs[name]), "numeric", sampled=prepared(form, Stream(seed, case.key, "sampled", name))
        )
        for name, form in forms.items()
    }


def _attention(base: str, case: Case, operand: Operand, seed: int) -> dict[str, Expected] | None:
    bound = bind(case, operand, torch.device("cpu"), seed)
    arguments = named_arguments(case.op, bound.args, bound.kwargs)
    attention = attention_of(base, arguments, bound) if is_covered(base, arguments) else None
    if attention is None or attention.flops <= FLOPS_LIMIT:
        return None
    with torch.no_grad():
        return expected_of(base, arguments, bound, attention, Stream(seed, case.key, "sampled"))


def _forms(base: str, arguments: Mapping[str, Any], outputs: Mapping[str, torch.Tensor]) -> dict[str, Bilinear]:
    """Each output as a bilinear one; fewer than ``outputs`` where one is of another kind."""
    if base in BACKWARDS:
        return gradients_of(arguments, outputs, ("output 0", "output 1", "output 2"))
    [(name, output)] = outputs.items() if len(outputs) == 1 else [("", torch.empty(0))]
    if not name:
        return {}
    if base in PRODUCTS:
        product = product_of(base, arguments, output.dtype)
        return {} if product is None else {name: product.with_wider_columns()}
    convolution = forward_of(base, arguments, output)
    return {} if convolution is None else {name: convolution}


def _is_plain_float(output: torch.Tensor) -> bool:
    return output.dtype.is_floating_point and output.dtype.itemsize >= 2 and output.numel() > 0


def _arguments(case: Case, bound: Bound) -> Mapping[str, Any]:
    arguments = named_arguments(case.op, bound.args, bound.kwargs)
    return {name: value.detach() if isinstance(value, torch.Tensor) else value for name, value in arguments.items()}


def _meta_outputs(case: Case, seed: int) -> dict[str, torch.Tensor]:
    """The outputs by name, with shape, strides and dtype but no values; none where torch cannot tell them."""

    def run() -> dict[str, torch.Tensor]:
        bound = bind(case, _on_meta, _META, seed)
        op = equivalent_of(case.op) or resolve(case.op)
        produced = with_mutated(case, bound, call(case, op, bound), written(case))
        return {item.name: item.tensor for item in produced if item.tensor is not None}

    outputs = attempt(run)
    return {} if isinstance(outputs, Outcome) else outputs


def written(case: Case) -> list[int]:
    """Positions of the operands that the call writes: by its schema, and running statistics, which that leaves out."""
    arguments = arguments_of(case)
    is_training = base_of(case.op).endswith("batch_norm") and (arguments.get("training") or arguments.get("train"))
    hidden = ("running_mean", "running_var") if is_training else ()
    names = operand_names(case)
    return sorted({*written_operands(case), *(position for position, name in enumerate(names) if name in hidden)})


def _on_meta(_: int, spec: TensorSpec) -> torch.Tensor:
    n = max(spec.extent, spec.offset + 1)
    line = torch.empty(n, dtype=torch_dtype(spec.dtype), device=_META)
    return torch.as_strided(line, spec.sizes, spec.strides, spec.offset)
