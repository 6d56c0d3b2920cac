"""What a call cannot do without: operations, and bytes that must move. Of a case alone, and of what was seen of it.

A module for each sort of formula: ``products``, ``convolutions``, ``attention``, ``recurrent`` count operations;
``traffic``, ``copies``, ``indexed`` count bytes of all other ops; ``call`` asks a case for its arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from audit.knowledge.op_classes import OpClass, class_of
from audit.rules.work.attention import ATTENTION
from audit.rules.work.call import Amount, Call, Unsaid, distinct_bytes, sound, tensors_in
from audit.rules.work.convolutions import CONVOLUTIONS
from audit.rules.work.products import PRODUCTS
from audit.rules.work.recurrent import RECURRENT, TRANSFORMS
from audit.rules.work.traffic import moved
from audit.schema import Case, Measurement, Named, TensorSpec

FORMULAS: Mapping[str, Callable[[Call], Amount]] = {**PRODUCTS, **CONVOLUTIONS, **ATTENTION, **RECURRENT, **TRANSFORMS}


@dataclass(frozen=True)
class Work:
    """The least that a call does: ``flops`` in ``dtype`` (0 where arithmetic is not what it takes), and bytes.

    ``dtype`` is ``tf32`` where float32 operands may be cut to its mantissa.
    """

    op_class: OpClass
    flops: float
    dtype: str
    read_bytes: float
    written_bytes: float

    @property
    def moved_bytes(self) -> float:
        return self.read_bytes + self.written_bytes


def work_of(case: Case, measurement: Measurement | None = None) -> Work | None:
    """None where a device has nothing to do (views, questions), where the time is the bus's (copies from or to the
    host), and where the op or its arguments do not say. Never raises, whatever a stranger's case holds.
    """
    op_class = class_of(case.op)
    call = Call(case)
    try:
        if op_class in ("view", "other") or _does_nothing(call) or _crosses_the_bus(case, op_class, measurement):
            return None
        amount = _amount(call, op_class, _result_bytes(measurement))
        dtype = "tf32" if amount.dtype == "float32" and _may_cut(case, op_class) else amount.dtype
        work = Work(op_class, float(amount.flops), dtype, float(amount.read_bytes), float(amount.written_bytes))
    except (Unsaid, OverflowError):
        return None
    return work if work.flops > 0 or work.moved_bytes > 0 else None


def _may_cut(case: Case, op_class: OpClass) -> bool:
    """Whether torch's settings let a library cut the mantissa of float32: by default in convolutions and RNNs alone."""
    settings = dict(case.settings)
    if op_class in ("convolution", "recurrent"):
        kind = "conv" if op_class == "convolution" else "rnn"
        return settings.get(f"torch.backends.cudnn.{kind}.fp32_precision", "tf32") == "tf32"
    return settings.get("torch.backends.cuda.matmul.fp32_precision") == "tf32"


def _amount(call: Call, op_class: OpClass, result_bytes: float | None) -> Amount:
    formula = FORMULAS.get(call.base)
    if formula is None:
        return moved(call, op_class, result_bytes)
    amount = formula(call)
    written = amount.written_bytes if result_bytes is None or call.in_place else result_bytes
    return Amount(amount.flops, amount.dtype, amount.read_bytes, written)


def _result_bytes(measurement: Measurement | None) -> float | None:
    """Of all outputs, gradients and changed arguments that were compared; None where none was."""
    if measurement is None or not measurement.comparisons:
        return None
    facts = [comparison.actual or comparison.expected for comparison in measurement.comparisons]
    specs = [sound(TensorSpec(fact.sizes, fact.strides, fact.dtype)) for fact in facts if fact is not None]
    return sum(distinct_bytes(spec) for spec in specs)


def _does_nothing(call: Call) -> bool:
    """Dropout that drops nothing returns what it is given, and so does what may already be as it is asked for."""
    if call.base in ("to", "contiguous", "type_as", "resolve_conj", "resolve_neg", "cpu", "cuda"):
        return True
    return call.base == "dropout" and (call.get(2, "train") is not True or call.get(1, "p") in (0, 0.0))


def _crosses_the_bus(case: Case, op_class: OpClass, measurement: Measurement | None) -> bool:
    """A copy between host and device: what the bus can do is not known, and memory is far faster."""
    if op_class != "copy":
        return False
    tensors = [spec for argument in (*case.args, *dict(case.kwargs).values()) for spec in tensors_in(argument)]
    if any(spec.host for spec in tensors) or dict(case.kwargs).get("device") == Named("device", "cpu"):
        return True
    if case.op.startswith(("aten::_local_scalar_dense", "aten::item", "aten::_pin_memory", "aten::pin_memory")):
        return True
    return measurement is not None and any("HtoD" in k.name or "DtoH" in k.name for k in measurement.path.kernels)
