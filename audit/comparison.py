"""One output of the device beside that of the reference, as it lies in a run file. Data only: no torch, no opinion.

Sizes, strides and places are in elements.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from audit.places import Places


@dataclass(frozen=True)
class TensorFact:
    """Shape, stride (elements) and dtype of an output.

    ``alias`` is the first operand in whose memory it lies, empty where it has its own; ``alias_bytes`` from the first
    element of that operand to its own.
    """

    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    alias: str = ""
    alias_bytes: int = 0


Standard: TypeAlias = Literal["exact", "numeric", "metadata"]
#: What is promised of an output beside its values: to be a view of an operand at this place and with these strides;
#: memory of its own and these strides; memory of its own; nothing.
Layout: TypeAlias = Literal["view", "strides", "own", ""]


#: How the numbers of a narrow output come about: by one operation that IEEE 754 defines; in float32, element by element
#: or with a sum, and rounded once; mostly so, in libraries that may do otherwise; not known.
Rounding: TypeAlias = Literal["one operation", "elementwise", "once", "mostly once", ""]


PartKind: TypeAlias = Literal["whole", "row", "tile", "run", "index"]


@dataclass(frozen=True)
class CoarsePart:
    """A part of an output with an rms error of ``ratio`` times that of one rounding (``audit.replay.roundings``).

    ``kind``: whole, row, tile of 16 x 16, run of 64 in a vector, or an index of dimension ``dim``; ``place``: which.
    """

    kind: PartKind
    place: tuple[int, ...]
    n: int
    ratio: float
    dim: int = 0


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
class Explanation:
    """How far a documented ``mechanism`` (``audit.replay.mechanisms``) explains the errors of an output.

    The reference was computed again as the mechanism would have it: ``n_left`` elements are wrong against that, of
    ``n_wrong`` before. Over these, or over all where none is wrong: ``left_fraction`` is the rms error that is left
    over the one before, ``size_fraction`` the rms of what the mechanism changes over it. Of an output in parts they are
    over all elements that were compared, and ``sketch`` is that against the other reference.
    """

    mechanism: str
    n_wrong: int
    n_left: int
    left_fraction: float
    size_fraction: float
    sketch: Sketch | None = None


@dataclass(frozen=True)
class ChanceTest:
    """One test of random numbers: right ones look as bad as ``statistic`` with a chance of 10^``log10_chance``."""

    name: str
    log10_chance: float
    statistic: float


@dataclass(frozen=True)
class Distribution:
    """Random numbers against their ``law`` (``audit.replay.distributions``): ``n`` were looked at, ``n_outside`` are
    such as the law cannot give."""

    law: str
    n: int
    n_outside: int = 0
    tests: tuple[ChanceTest, ...] = ()


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

    ``noise`` is that of the worst place where it differs over the output (``audit.replay.noise``). ``rounded_once``:
    both sides compute in float32 and round once to a narrower dtype, so that their rms errors agree. Where two runs on
    the device differ, errors and counts are those of the worse one.

    Of an output that is off, which is one with a ratio beyond ``audit.replay.anatomy.PLACED_ABOVE``, with a mask that
    differs, or of exact standard with a difference: ``wrong`` is where those elements sit, and ``ulp_counts`` the
    distances of all elements compared from the reference rounded to the dtype, in ULP and by powers of two: entry 0
    counts 0, entry k counts 2**(k-1) to 2**k - 1, over floats finite on both sides; complex numbers count twice.

    The case ran ``n_runs`` times on the device (0: not recorded); the output of ``n_runs_differing`` was not that which
    most of them gave, and all of them differ where no two agree. ``n_not_repeated`` elements differ from the first run.

    ``third`` says by what third way the CPU computed it again where the two were far apart; ``third_ratio`` is then the
    device's largest error ratio against that, by the same floor, ``third_n_different`` the elements that differ (exact
    outputs) or have NaN or Inf on one side.

    ``parts`` are the coarsest of a narrow output whose ``rounding`` is known, ``typical_part`` the median ratio of all
    parts; ``misrounded_fraction`` of the elements are not the fp64 value rounded to the nearest. All over, the output
    is ``scale_error`` (a fraction, give or take ``scale_deviation``) too large.

    ``layout``: what is promised of its memory and strides.

    ``explanations``: the mechanisms that were tried on an output that is off, or coarser than one rounding.
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
    rounded_once: bool = False
    ulp_counts: tuple[int, ...] = ()
    wrong: Places | None = None
    unwritten: Places | None = None
    not_repeated: Places | None = None
    n_runs: int = 0
    n_runs_differing: int = 0
    third: str = ""
    third_ratio: float = 0.0
    third_n_different: int = 0
    explanations: tuple[Explanation, ...] = ()
    distribution: Distribution | None = None
    layout: Layout = ""
    rounding: Rounding = ""
    parts: tuple[CoarsePart, ...] = ()
    typical_part: float = 0.0
    misrounded_fraction: float = 0.0
    scale_error: float = 0.0
    scale_deviation: float = 0.0
