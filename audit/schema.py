"""What was called and what happened, as it crosses a module border and lies in files. Data only: no torch, no opinion.

Direction of travel: trace -> ``Case`` -> replay -> ``Measurement`` -> rules -> ``verdicts.Verdict`` -> report.
Sizes are in elements, strides in elements, ``_bytes`` in bytes, ``_us`` in microseconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from audit.comparison import Comparison

FORMAT_VERSION = 1

Phase: TypeAlias = Literal["forward", "backward", "optimizer"]
Status: TypeAlias = Literal["supported", "slow", "falling_back", "divergent", "unsupported", "inconclusive"]
Evidence: TypeAlias = Literal["measured", "stand-in", "simulated", "predicted"]
Backend: TypeAlias = Literal["hip", "cuda", "sim", "cpu", "none"]

#: Best to worst. ``inconclusive`` stands apart: it is about the audit, and any device finding outranks it.
DEVICE_STATUSES: tuple[Status, ...] = ("supported", "slow", "falling_back", "divergent", "unsupported")
STATUSES: tuple[Status, ...] = (*DEVICE_STATUSES, "inconclusive")
EVIDENCE_BY_BACKEND: Mapping[Backend, Evidence] = {
    "hip": "measured",
    "cuda": "stand-in",
    "sim": "simulated",
    "cpu": "simulated",
    "none": "predicted",
}

#: An argument, or the dtype of a tensor, that the tool which recorded a call did not write down.
NOT_RECORDED, UNKNOWN_DTYPE = "not recorded", "unknown"
#: ``Source.kind`` of a run that another tool has measured: nothing was replayed, and no numbers were compared.
IMPORTED = "imported"

# --- what was called -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TensorSpec:
    """One tensor argument as the op saw it; identity only, its values are in ``Case.values``.

    ``sizes``, ``strides`` and ``offset`` are in elements; ``extent`` is the length of its storage in elements of
    ``dtype``. Tensors of one call with the same ``storage`` number share memory. ``host`` marks a 0-dim CPU tensor
    that stood beside device tensors and stays on the CPU in the replay. ``layout`` other than ``strided`` is listed
    as not replayable by the tracer.
    """

    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    offset: int = 0
    extent: int = 0
    storage: int = 0
    layout: str = "strided"
    requires_grad: bool = False
    host: bool = False
    conj: bool = False
    neg: bool = False


@dataclass(frozen=True)
class Named:
    """A torch constant given by name: ``Named("dtype", "bfloat16")``, ``Named("memory_format", "channels_last")``.

    ``device`` is ``"device"`` (wherever the op runs) or ``"cpu"``; ``generator`` is the device it lives on.
    """

    kind: Literal["dtype", "layout", "device", "memory_format", "generator"]
    name: str


Arg: TypeAlias = "bool | int | float | complex | str | TensorSpec | Named | tuple[Arg, ...] | None"


Order: TypeAlias = Literal["", "ascending", "strictly ascending", "descending"]
Pattern: TypeAlias = Literal["", "lower", "upper", "prefix", "suffix", "block"]


@dataclass(frozen=True)
class Values:
    """What is known of one tensor argument's values, over the calls that were looked at (the first ones, 64, 128, ...).

    ``stored`` is true when the exact values of one call are in the opset's value file under ``<key>/<position>``;
    otherwise inputs are synthesised from the statistics, which are over finite elements. ``minimum`` and ``maximum``
    of integers are exact. Fractions are of all elements.

    Structure, of integers and masks that are not stored, seen in the first ``n_structured`` elements (0: not looked
    at): the number of distinct values, how often the most frequent one stands, and their order along the last
    dimension. ``pattern`` is where a mask is true (an additive one: zero): ``lower`` and, strictly, ``upper`` of the
    diagonal that ends in the last column; runs at each row's beginning or end (``prefix``, ``suffix``); square
    ``block`` by block on the diagonal, whose number is then ``n_distinct``. Empty where the sampled calls differ.
    """

    stored: bool = False
    n_sampled: int = 0
    minimum: float | int | None = None
    maximum: float | int | None = None
    mean: float | None = None
    std: float | None = None
    n_nan: int = 0
    n_posinf: int = 0
    n_neginf: int = 0
    zero_fraction: float = 0.0
    subnormal_fraction: float = 0.0
    n_structured: int = 0
    n_distinct: int | None = None
    max_multiplicity: int | None = None
    order: Order = ""
    pattern: Pattern = ""


@dataclass(frozen=True)
class Case:
    """One distinct call: every call with the same op, arguments and phase folds into it.

    ``op`` is the qualified overload, ``aten::addmm.default``. ``grads`` is set on composites that ran under autograd:
    one entry per output, the gradient that arrived for it (or None), so that the replay runs forward and backward.
    ``settings`` are the global settings of torch that steered the call (``audit.kernel_settings``) and were not the
    default. ``values`` goes by position: tensors numbered in order of appearance over args, then kwargs, then grads.
    ``n_recomputed`` of the ``n_calls`` ran again inside backward, for activation checkpointing.
    """

    key: str
    op: str
    args: tuple[Arg, ...]
    kwargs: tuple[tuple[str, Arg], ...] = ()
    phase: Phase = "forward"
    grads: tuple[TensorSpec | None, ...] | None = None
    settings: tuple[tuple[str, bool | str], ...] = ()
    n_calls: int = 1
    modules: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    values: Mapping[int, Values] = field(default_factory=dict)
    n_recomputed: int = 0


@dataclass(frozen=True)
class Kernel:
    """A kernel that ran inside the case; ``us`` is its device time summed over ``count`` launches."""

    name: str
    us: float
    count: int = 1


@dataclass(frozen=True)
class Copy:
    """Host-device traffic inside the case: ``DtoH``, ``HtoD``; bytes summed over ``count`` copies."""

    direction: Literal["DtoH", "HtoD"]
    nbytes: int
    count: int = 1


@dataclass(frozen=True)
class NotAudited:
    """Something the program did that has no case, and why: compiled regions, sparse arguments, Triton launches.

    ``n_calls`` counts recorded calls; ``n_seen`` things that are none: regions entered, launches, processes, imports.
    ``computes`` is false where a device has nothing to do: annotations for profilers, tensors without values, what the
    program itself runs on the CPU. The report lists it, the headline does not.
    ``missed``: an op of one device stands where the portable call should, so the trace is not what another would run.
    ``kernels`` is what ran on the device for it, over all times, where a recording says so. ``copies`` are those
    between host and device inside its calls, all together. ``nbytes`` is what the calls of a collective passed, all
    together, among at most ``n_ranks`` (0: not known).
    """

    what: str
    reason: str
    n_calls: int = 1
    n_seen: int = 0
    computes: bool = True
    missed: bool = False
    kernels: tuple[Kernel, ...] = ()
    copies: tuple[Copy, ...] = ()
    nbytes: int = 0
    n_ranks: int = 0


@dataclass(frozen=True)
class Source:
    """Where the cases came from. ``kind``: script, module, file, context, merge (several of them), imported (another
    tool has measured; nothing was replayed).

    ``error`` says how the program ended early. ``private`` are the ids of the maps that restore the names of a trace
    whose names are pseudonyms; empty where they are the program's own.
    """

    kind: str
    name: str
    mode: str | None = None
    n_steps: int | None = None
    error: str | None = None
    private: tuple[str, ...] = ()


@dataclass(frozen=True)
class Trace:
    """What a program executed. ``n_recorded`` counts calls: sum of ``n_calls`` over cases and not-audited ops.

    ``elsewhere`` is what its cases took on a device that has run them already.
    """

    source: Source
    environment: Mapping[str, str]
    cases: tuple[Case, ...]
    not_audited: tuple[NotAudited, ...] = ()
    n_recorded: int = 0
    notes: tuple[str, ...] = ()
    elsewhere: DeviceTimes | None = None


# --- what happened ---------------------------------------------------------------------------------------------

OutcomeKind: TypeAlias = Literal["ok", "raised", "crashed", "hung", "out_of_memory", "not_run"]


@dataclass(frozen=True)
class Outcome:
    """How one side (device or reference) took the case.

    ``not_run`` carries the reason in ``message``. ``missing_kernel`` is a NotImplementedError for want of a kernel.
    ``confirmed``: a crash or hang seen again alone in a fresh child after a canary op passed there (None: not tried).
    ``stage`` of a hang is ``first call`` or ``steady``, its limit in ``limit_s``.
    """

    kind: OutcomeKind
    error_type: str = ""
    message: str = ""
    missing_kernel: bool = False
    device_error: bool = False
    signal: int | None = None
    exit_code: int | None = None
    stage: str = ""
    limit_s: float | None = None
    confirmed: bool | None = None
    stderr: str = ""
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Path:
    """The path the op took, as seen beside it. ``observed``: an observer ran; ``complete``: its self-test passed, and
    it saw what it had to see before and after the call.

    ``refusals`` say why fused attention was not taken, a sentence for each kernel, where torch tells.
    ``chosen_ops`` are qualified ops that ran inside (``aten::_scaled_dot_product_flash_attention.default``). Kernels
    and copies are of ``n_calls`` calls together: of one in a replay, of all that a recording saw. ``moved_us`` is the
    device time of copies and fills, which are no kernels; None where it was not looked at.
    """

    observed: bool = False
    complete: bool = False
    chosen_ops: tuple[str, ...] = ()
    kernels: tuple[Kernel, ...] = ()
    copies: tuple[Copy, ...] = ()
    n_calls: int = 1
    moved_us: float | None = None
    refusals: tuple[str, ...] = ()


@dataclass(frozen=True)
class Timing:
    """Median of ``n`` timed runs and its inter-quartile range; ``first_us`` is the first call in its process.

    ``total_us`` is their sum where they are all the calls that the program made, as in a recording.

    ``host_us``: median wall time until the host had issued a call. ``lead_us``: for how long other work, which flushed
    the caches, kept the device busy meanwhile; a host that took longer may have kept the device waiting. 0 where there
    was no memory for it, so that caches were warm. ``waits``: the call waits for the device inside (``item``), which
    is part of ``host_us``, but for the wait during ``lead_us``. None where nobody looked.
    """

    median_us: float
    iqr_us: float
    n: int
    first_us: float | None = None
    total_us: float | None = None
    host_us: float | None = None
    lead_us: float | None = None
    waits: bool | None = None


@dataclass(frozen=True)
class Measurement:
    """All that was seen when one case was replayed. No opinion.

    ``n_damaged_inputs``: operands whose bytes on the device differed after the copy; ``guards_broken``: operands whose
    guard band was written; ``canary``: whether a known op still gave its answer afterwards.
    ``operand_bytes``: bytes of the tensor arguments, the yardstick for host copies. ``peak_bytes``: device memory.
    """

    key: str
    reference: Outcome
    device: Outcome
    comparisons: tuple[Comparison, ...] = ()
    path: Path = Path()
    device_time: Timing | None = None
    reference_time: Timing | None = None
    n_damaged_inputs: int = 0
    guards_broken: tuple[str, ...] = ()
    canary: Literal["passed", "failed", "not run"] = "not run"
    operand_bytes: int = 0
    peak_bytes: int | None = None
    notes: tuple[str, ...] = ()


# --- a device -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DeviceInfo:
    """The device replayed on. ``arch`` is ``gfx942`` (from gcnArchName, before the colon), ``sm_90``, ``sim`` ..."""

    backend: Backend
    name: str
    arch: str
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Rate:
    """What was measured ``n`` times: the median and the distance of the quartiles, in the unit of its field."""

    median: float
    iqr: float
    n: int


@dataclass(frozen=True)
class Ceilings:
    """The most that the device did when it was asked for nothing else.

    ``copy_gbs``: bytes read and written by a copy within its memory, 10^9 a second. ``gemm_tflops``: 10^12 operations a
    second of a large matrix product, by dtype; ``tf32`` is float32 with the short mantissa allowed. ``launch_us``: an
    op on one element, from event to event.
    """

    copy_gbs: Rate
    gemm_tflops: Mapping[str, Rate]
    launch_us: Rate


@dataclass(frozen=True)
class DeviceTimes:
    """What cases took on another device, by key. ``environment`` has the versions of torch and of its runtime there."""

    device: DeviceInfo
    evidence: Evidence
    environment: Mapping[str, str]
    times: Mapping[str, Timing]
    ceilings: Ceilings | None = None
