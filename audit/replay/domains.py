"""Roles of float operands: values in the domain of a function, probabilities, masks, matrices that can be factored.

Where a range was recorded it says more than these, and is used; they stand in where nothing is known (a trace of
shapes alone, values left out), and where the structure counts whatever the range (a matrix to be factored).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from audit.replay.masks import lower_triangle, patterned
from audit.replay.operand import Operand, Role, plain
from audit.replay.stream import PERIOD, Stream, repeated
from audit.schema import TensorSpec

#: An additive mask holds 0 and something below this; a bias (ALiBi, relative positions) stays above.
MASK_LIMIT = -1e4
#: Logarithms are rounded to multiples of this: libraries differ in the last bits, and inputs must not.
_LOG_STEP = 2.0**-20
#: Probabilities that are made in one go, in double precision.
_ELEMENTS = 1 << 20

# --- domains ---------------------------------------------------------------------------------------------------


def interval(low: float, high: float) -> Role:
    """Floats between ``low`` and ``high``, neither included; integers of the interval."""

    def make(operand: Operand, stream: Stream) -> torch.Tensor:
        if operand.described:
            return plain(operand, stream)
        n = min(operand.n, PERIOD)
        if not operand.floats:
            drawn = stream.integers(n, math.ceil(low + 1e-9), max(math.floor(high), 1))
        else:
            inner = stream.uniform(n).mul_(0.98).add_(0.01)  # half precision must not round to an end
            drawn = inner.mul_(high - low).add_(low).to(operand.dtype)
        return repeated(drawn, operand.n).reshape(operand.sizes)

    return make


positive = interval(0.0, 4.0)
unit = interval(0.0, 1.0)
signed_unit = interval(-1.0, 1.0)


def non_negative(operand: Operand, stream: Stream) -> torch.Tensor:
    """Squares of normal numbers, such as second moments are."""
    if operand.described or not operand.floats:
        return plain(operand, stream)
    drawn = stream.normal(min(operand.n, PERIOD)).square_()
    return repeated(drawn.to(operand.dtype), operand.n).reshape(operand.sizes)


def constant(value: float) -> Role:
    """One value, where no range says otherwise."""
    return lambda operand, stream: (
        plain(operand, stream) if operand.described else torch.full(operand.sizes, value, dtype=torch.float64)
    )


def rising(operand: Operand, stream: Stream) -> torch.Tensor:
    """Sorted along the last dimension."""
    if not operand.described and not operand.floats:
        return torch.arange(operand.sizes[-1] if operand.sizes else 1)
    return plain(operand, stream).sort(-1).values


def base_of_power(operand: Operand, stream: Stream) -> torch.Tensor:
    """A negative base has a power only where the exponent is a whole number."""
    exponent = operand.arguments.get("exponent")
    if isinstance(exponent, TensorSpec):
        whole = not exponent.dtype.startswith(("float", "bfloat"))
    else:
        whole = isinstance(exponent, (int, float)) and float(exponent).is_integer()
    below_zero = isinstance(exponent, (int, float)) and exponent < 0
    return plain(operand, stream) if whole and not below_zero else positive(operand, stream)


def exponent(operand: Operand, stream: Stream) -> torch.Tensor:
    """Small whole exponents where the base is a tensor of integers, else what is usual."""
    if operand.described or operand.floats:
        return plain(operand, stream)
    return stream.integers(operand.n, 0, 3).reshape(operand.sizes)


def above_half_order(operand: Operand, stream: Stream) -> torch.Tensor:
    """The multivariate log-gamma of order p is defined above (p - 1) / 2."""
    floor = (operand.integer("p", 1) - 1) / 2
    return interval(floor, floor + 4)(operand, stream)


# --- probabilities ---------------------------------------------------------------------------------------------


def simplex(operand: Operand, stream: Stream) -> torch.Tensor:
    """Positive numbers that sum to 1 along ``dim``, by default the last dimension."""
    if operand.described or not operand.sizes:
        return plain(operand, stream) if operand.described else torch.ones(())
    return _simplex(operand, stream, operand.integer("dim", -1))


def _simplex(
    operand: Operand, stream: Stream, dim: int, change: Callable[[torch.Tensor], torch.Tensor] = torch.clone
) -> torch.Tensor:
    """The numbers or what they ``change`` to, made some rows at a time: there may be as many as a vocabulary has."""
    drawn = stream.integers(min(operand.n, PERIOD), 1, 1 << 20)  # the sum of integers is exact
    n_rows, *others = operand.sizes
    made = torch.empty(operand.sizes, dtype=operand.dtype if operand.floats else torch.float64)
    each = math.prod(others)
    step = n_rows if dim % len(operand.sizes) == 0 else max(1, _ELEMENTS // max(each, 1))
    for start in range(0, n_rows, step):
        n = min(step, n_rows - start)
        weights = repeated(drawn, n * each, start * each).reshape(n, *others)
        made[start : start + n] = change(weights.double().div_(weights.sum(dim, keepdim=True)))
    return made


def _stepped_log(shares: torch.Tensor) -> torch.Tensor:
    return shares.log_().div_(_LOG_STEP).round_().mul_(_LOG_STEP)


def log_probabilities(operand: Operand, stream: Stream) -> torch.Tensor:
    """Logarithms of ``simplex`` along ``dim``, or along the classes of a loss."""
    if operand.described or not operand.sizes:
        return plain(operand, stream)
    return _simplex(operand, stream, operand.integer("dim", -1), _stepped_log)


def log_probabilities_of_classes(operand: Operand, stream: Stream) -> torch.Tensor:
    """The same with classes in dimension 1 of [batch, classes, ...]."""
    if operand.described or len(operand.sizes) < 2:
        return log_probabilities(operand, stream)
    return _simplex(operand, stream, 1, _stepped_log)


# --- attention masks ---------------------------------------------------------------------------------------------


def attention_mask(operand: Operand, stream: Stream) -> torch.Tensor:
    """True or 0 where attention is allowed: in the recorded pattern, else causal; never a row without any.

    A float operand whose recorded values do not reach ``MASK_LIMIT`` is a bias, and has no such structure.
    """
    values, boolean = operand.values, operand.dtype == torch.bool
    lowest = -math.inf if values.n_neginf or values.minimum is None else float(values.minimum)
    if not boolean and (not operand.floats or lowest > MASK_LIMIT):
        return plain(operand, stream)
    share = values.mean if boolean else None
    if values.pattern:
        allowed = patterned(operand.sizes, values.pattern, share, values.n_distinct, stream)
    elif values.mean is None or not operand.sizes:
        allowed = patterned(operand.sizes, "lower", None, None, stream)
    else:
        share = values.mean if boolean else values.zero_fraction
        allowed = repeated(stream.uniform(min(operand.n, PERIOD)) < share, operand.n).reshape(operand.sizes)
    if operand.sizes and allowed.dim():
        allowed = allowed.clone()
        allowed[..., 0] |= ~allowed.any(-1)
    return allowed if boolean else torch.zeros(allowed.shape).masked_fill(~allowed, lowest)


def hidden_mask(operand: Operand, stream: Stream) -> torch.Tensor:
    """True where attention is not allowed: the recorded pattern, else above the diagonal or at the rows' ends."""
    if operand.dtype != torch.bool or operand.values.pattern or operand.values.mean is not None or not operand.sizes:
        return plain(operand, stream)
    if len(operand.sizes) >= 2 and operand.sizes[-1] == operand.sizes[-2]:
        return ~lower_triangle(*operand.sizes[-2:])
    mask = patterned(operand.sizes, "suffix", 0.25, None, stream)
    mask[..., 0] = False
    return mask


# --- matrices ----------------------------------------------------------------------------------------------------


def well_conditioned(operand: Operand, stream: Stream) -> torch.Tensor:
    """Random off the diagonal and 2 on it: regular, with a condition number of about four."""
    n = min(operand.sizes[-2:])
    scale = 1 / math.sqrt(max(n, 1))
    entries = stream.uniform(operand.n).mul_(2).sub_(1).mul_(scale).reshape(operand.sizes)
    entries.diagonal(dim1=-2, dim2=-1).fill_(2.0)
    return entries * _size(operand) / 2


def symmetric(operand: Operand, stream: Stream) -> torch.Tensor:
    """Equal to its transpose bit for bit."""
    matrix = stream.normal(operand.n).reshape(operand.sizes)
    return (matrix.tril() + matrix.tril(-1).mT) * (_size(operand) / 2)


def positive_definite(operand: Operand, stream: Stream) -> torch.Tensor:
    """Symmetric with eigenvalues between 0.8 and 3.2, or as large as recorded."""
    matrix = well_conditioned(operand, stream)
    return matrix.tril() + matrix.tril(-1).mT


def triangular(operand: Operand, stream: Stream) -> torch.Tensor:
    """Well conditioned on the side that the call's ``upper`` names, zero on the other."""
    matrix = well_conditioned(operand, stream)
    return matrix.triu() if operand.flag("upper") else matrix.tril()


def _size(operand: Operand) -> float:
    """The largest recorded element, which stood on the diagonal if the matrix was definite."""
    largest = operand.values.maximum
    return float(largest) if largest is not None and math.isfinite(largest) and largest > 0 else 2.0


def half_spectrum(operand: Operand, stream: Stream) -> torch.Tensor:
    """The spectrum of a real signal: libraries differ in what they make of one that has no such signal.

    Bins that mirror themselves (0 and the middle of ``last_dim_size``) equal their own mirror along the other dims.
    """
    parts = [plain(operand, stream).to(torch.complex128).real for _ in range(2)]
    spectrum = torch.complex(parts[0], parts[1])
    named = operand.arguments.get("dim")
    dims = [d % spectrum.dim() for d in named if isinstance(d, int)] if isinstance(named, tuple) else []
    *others, last = dims or [spectrum.dim() - 1]
    n = operand.integer("last_dim_size", 2)
    for place in {0, n // 2} if n % 2 == 0 else {0}:
        if place < spectrum.shape[last]:
            plane = spectrum.select(last, place)
            mirrored = plane.conj().resolve_conj()
            for dim in others:
                mirrored = mirrored.flip(dim - (dim > last)).roll(1, dim - (dim > last))
            plane.copy_((plane + mirrored) / 2)
    return spectrum
