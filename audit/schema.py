"""What was called and what happened, as it crosses a module border and lies in files. Data only: no torch, no opinion.

Direction of travel: trace -> ``Case`` -> replay -> ``Measurement`` -> rules -> ``verdicts.Verdict`` -> report.
Sizes are in elements, strides in elements, ``_bytes`` in bytes, ``_us`` in microseconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

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
    """What is known of one tensor argument's values, over the calls that were sampled (1, 2, 4, 8, ...).

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
class TensorFact:
    """Shape, stride (elements) and dtype of an output."""

    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str


Standard: TypeAlias = Literal["exact", "numeric", "metadata"]


@dataclass(frozen=True)
class SketchScale:
    """The least likely of ``n`` sums of squares: ``excess`` summed over ``n_summed`` entries of a sketch, 1 each for a
    healthy output. ``name``: entry, tile, row, column or whole. ``place`` is the index of its first element."""

    name: str
    n: int
    excess: float
    n_summed: int
    place: tuple[int, ...] = ()


@dataclass(frozen=True)
class Sketch:
    """A random sketch of a whole output against that of the reference (``audit.replay.sampled.sketch``).

    Columns of the output in blocks of ``width`` were summed with random weights; ``n_blocks`` sums over all rows.
    ``typical`` is the median excess over tiles, 1 for an output that was rounded once; ``made_of`` what is expected.
    """

    width: int
    n_blocks: int
    made_of: str
    typical: float
    scales: tuple[SketchScale, ...]


@dataclass(frozen=True)
class Comparison:
    """One output (or mutated argument, or gradient) of the device against the reference.

    ``standard``: ``exact`` compares bit patterns with the same-dtype CPU run; ``numeric`` compares with the
    ``reference`` (``fp64``: the CPU in double precision; ``same-dtype``: the CPU in the case's own dtype, where there
    is no fp64 form); ``metadata`` compares shape, dtype and stride only, ``why`` says why.

    Error ratio of an element: |actual - reference| / floor, floor = noise + eps(dtype) * |reference|. ``noise`` is the
    larger of the same-dtype CPU run's own worst error and the worst change of the fp64 result when each input is moved
    by one rounding step. ``ratio_counts[i]`` counts elements with ratio > 2**i, so any power-of-two threshold can be
    judged later. Errors are over elements finite on both sides; NaN and Inf masks are counted apart.

    ``n_compared`` of the ``n_elements`` were compared, all where it is None, and errors and counts are over these; the
    rest is in the ``sketch`` but for ``unseen_fraction`` of all. The CPU's own error is then that of a correct
    algorithm in the output's dtype: summed in float32 and rounded once.
    """

    name: str
    standard: Standard
    expected: TensorFact | None
    actual: TensorFact | None
    why: str = ""
    reference: str = ""
    n_elements: int = 0
    n_different: int = 0
    n_nan_mismatch: int = 0
    n_inf_mismatch: int = 0
    max_abs_error: float = 0.0
    rms_error: float = 0.0
    cpu_max_abs_error: float = 0.0
    cpu_rms_error: float = 0.0
    noise: float = 0.0
    eps: float = 0.0
    worst_ratio: float = 0.0
    ratio_counts: tuple[int, ...] = ()
    worst_index: tuple[int, ...] = ()
    worst_actual: str = ""
    worst_expected: str = ""
    n_unwritten: int = 0
    first_unwritten: tuple[int, ...] = ()
    n_not_repeated: int = 0
    n_compared: int | None = None
    unseen_fraction: float = 0.0
    sketch: Sketch | None = None


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


# --- what was tried instead ------------------------------------------------------------------------------------


Layout: TypeAlias = Literal["contiguous", "channels_last"]


@dataclass(frozen=True)
class Change:
    """What is done differently from a case: all ``settings`` of torch in force, the ``layout`` of its inputs, or their
    ``dtype`` where that is half precision. None: as it was. See ``audit.changed_case``."""

    settings: tuple[tuple[str, bool | str], ...] | None = None
    layout: Layout | None = None
    dtype: Literal["float32"] | None = None


#: ``Trial.name`` of the case run again as it was, beside which its alternatives are seen.
UNCHANGED = "unchanged"


@dataclass(frozen=True)
class Trial:
    """One alternative to a case: its name in ``alternatives.csv``, and ``what`` it is in words: deterministic mode."""

    key: str
    name: str
    what: str
    change: Change


@dataclass(frozen=True)
class Trying:
    """Written and fsynced before the device is touched for an alternative."""

    key: str
    name: str


@dataclass(frozen=True)
class Alternative:
    """A trial and all that was seen of it. Its outputs were compared with the reference of the case itself."""

    trial: Trial
    measurement: Measurement


# --- a run -----------------------------------------------------------------------------------------------------


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


@dataclass(frozen=True)
class PreflightCheck:
    """One thing looked at before any case: ``ok``, ``warning`` or ``failed``, with a sentence and a remedy."""

    name: str
    result: Literal["ok", "warning", "failed"]
    message: str
    remedy: str = ""


@dataclass(frozen=True)
class RunHeader:
    """First line of a run file. ``n_cases`` cases follow it; ``settings`` are the options that steer the replay.

    ``elsewhere`` came with the trace.
    """

    evidence: Evidence
    source: Source
    device: DeviceInfo
    environment: Mapping[str, str]
    settings: Mapping[str, str]
    created: str
    audit_version: str
    n_cases: int
    n_recorded: int
    not_audited: tuple[NotAudited, ...] = ()
    preflight: tuple[PreflightCheck, ...] = ()
    notes: tuple[str, ...] = ()
    ceilings: Ceilings | None = None
    elsewhere: DeviceTimes | None = None
    format_version: int = FORMAT_VERSION


@dataclass(frozen=True)
class Started:
    """Written and fsynced before the device is touched for ``key``."""

    key: str


@dataclass(frozen=True)
class RunEnd:
    """Written when the audit ended by itself. ``complete`` false: budget spent or device lost, in ``reason``."""

    complete: bool
    reason: str = ""


@dataclass(frozen=True)
class Run:
    """A run file, read. A case with neither measurement nor start was left out (budget, device lost, killed).

    ``alternatives`` are by key of their case, in the order tried; ``trying`` were begun and have not ended.
    """

    header: RunHeader
    cases: tuple[Case, ...]
    measurements: Mapping[str, Measurement]
    started: frozenset[str] = frozenset()
    end: RunEnd | None = None
    warnings: tuple[str, ...] = ()
    alternatives: Mapping[str, tuple[Alternative, ...]] = field(default_factory=dict)
    trying: frozenset[Trying] = frozenset()
