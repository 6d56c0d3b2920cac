"""Operations of recurrent layers and Fourier transforms.

A recurrent layer multiplies each weight matrix once a step. Its backward, where a case has it, multiplies twice as
often for a gradient of everything; counted is once, for the weights, since others may not be asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import log2, prod

from audit.rules.work.call import Amount, Call, Unsaid, distinct_bytes, read_once, size_bytes, sound, tensors_in
from audit.schema import TensorSpec


def _layers(place: int) -> Callable[[Call], Amount]:
    """Weights as a list at ``place``. ``lstm.data`` has its steps packed into one dimension, others have two."""

    def count(call: Call) -> Amount:
        given = call.tensor(0, "input")
        weights = call.get(place + call.case.op.endswith(".data"), "params")
        matrices = [sound(spec) for spec in tensors_in(weights) if len(spec.sizes) == 2]
        if len(given.sizes) not in (2, 3) or not matrices:
            raise Unsaid("an input and matrices")
        return _amount(call, prod(given.sizes[:-1]), given, matrices)

    return count


def _cell(call: Call) -> Amount:
    """``input, states, weight of the input, weight of the state, ...``."""
    given = call.tensor(0, "input")
    matrices = [call.tensor(place, name, 2) for place, name in ((2, "w_ih"), (3, "w_hh"))]
    return _amount(call, prod(given.sizes[:-1]), given, matrices)


def _amount(call: Call, n_rows: int, given: TensorSpec, matrices: list[TensorSpec]) -> Amount:
    one = 2.0 * n_rows * sum(prod(spec.sizes) for spec in matrices)
    with_backward = call.case.grads is not None and any(spec.requires_grad for spec in matrices)
    return Amount(one * (2 if with_backward else 1), given.dtype, read_once([given, *matrices]), 0.0)


def _transform(call: Call) -> Amount:
    """5 N log2 n for N complex elements, n of them in a row (the count that FFTW's benchmarks use, fftw.org/speed);
    half of it where one side is real."""
    given = call.tensor(0, "self")
    dims = call.get(1, "dim")
    if not isinstance(dims, tuple) or not all(type(dim) is int and -len(given.sizes) <= dim for dim in dims):
        raise Unsaid("dimensions")
    sizes = list(given.sizes)
    if call.base == "_fft_c2r":
        last = call.get(3, "last_dim_size")
        if type(last) is not int or not 0 < last < 1 << 48 or not dims:
            raise Unsaid("the size of the result")
        sizes[_place(dims[-1], sizes)] = last
    n_in_a_row = prod(sizes[_place(dim, sizes)] for dim in dims)
    flops = (5.0 if call.base == "_fft_c2c" else 2.5) * prod(sizes) * (log2(n_in_a_row) if n_in_a_row > 1 else 0.0)
    real = _REAL.get(given.dtype, given.dtype)
    half = size_bytes(sizes, real)  # of a real result; a complex one of a real input has half of its elements
    return Amount(flops, real, distinct_bytes(given), 2 * half if call.base == "_fft_c2c" else half)


def _place(dim: object, sizes: list[int]) -> int:
    if type(dim) is not int or not -len(sizes) <= dim < len(sizes):
        raise Unsaid("a dimension")
    return dim % len(sizes)


#: The dtype in which complex numbers are computed with.
_REAL = {"complex32": "float16", "complex64": "float32", "complex128": "float64"}

RECURRENT: Mapping[str, Callable[[Call], Amount]] = {
    **dict.fromkeys(("lstm", "gru", "rnn_tanh", "rnn_relu"), _layers(2)),
    **dict.fromkeys(("_cudnn_rnn", "miopen_rnn"), _layers(1)),
    **dict.fromkeys(("lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell"), _cell),
}
TRANSFORMS: Mapping[str, Callable[[Call], Amount]] = dict.fromkeys(("_fft_c2c", "_fft_r2c", "_fft_c2r"), _transform)
