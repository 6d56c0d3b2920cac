"""Operations of convolutions, as torch's flop_counter counts them: each tap of each window, those on padding included.

Unlike there, the gradient of the weight of a grouped convolution has one product a group, and not one for each pair of
groups. An algorithm that transforms its windows (Winograd, FFT) does fewer; see ``audit.rules.floor``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod

from audit.rules.work.call import Amount, Call, Unsaid, distinct_bytes, read_once, size_bytes, sound, tensors_in
from audit.schema import TensorSpec


@dataclass(frozen=True)
class _Places:
    """Where an op has its arguments; None where it has none. ``transposed``: a place, or what all calls are."""

    stride: int | None
    padding: int | None
    dilation: int | None = None
    bias: int | None = None
    addend: int | None = None
    output_padding: int | None = None
    transposed: int | bool = False


def _forward(places: _Places) -> Callable[[Call], Amount]:
    def count(call: Call) -> Amount:
        given, weight = call.tensor(0, "input"), call.tensor(1, "weight")
        transposed = _flag(call, places.transposed)
        n = len(weight.sizes) - 2
        if n < 1 or len(given.sizes) != n + 2:
            raise Unsaid("a batch and a window of as many dimensions")
        window = _Window.of(call, places, weight.sizes[2:])
        outputs = window.upward(given.sizes[2:]) if transposed else window.outputs(given.sizes[2:])
        channels = weight.sizes[1] * _groups(call, given) if transposed else weight.sizes[0]
        sizes = (given.sizes[0], channels, *outputs)
        share = 1.0 if transposed else window.seen(given.sizes[2:], outputs)
        extra = [spec for place in (places.bias, places.addend) if place is not None for spec in _optional(call, place)]
        return Amount(
            2.0 * given.sizes[0] * prod(given.sizes[2:] if transposed else outputs) * prod(weight.sizes),
            given.dtype,
            share * distinct_bytes(given) + read_once([weight, *extra]),
            size_bytes(sizes, given.dtype),
        )

    return count


@dataclass(frozen=True)
class _Window:
    """Sizes, steps, padding and gaps of the window, by dimension."""

    sizes: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    output_padding: tuple[int, ...]

    @classmethod
    def of(cls, call: Call, places: _Places, sizes: tuple[int, ...]) -> _Window:
        def numbers(place: int | None, name: str, default: int) -> tuple[int, ...]:
            return (default,) * len(sizes) if place is None else call.numbers(place, name, len(sizes))

        window = cls(
            sizes,
            numbers(places.stride, "stride", 1),
            numbers(places.padding, "padding", 0),
            numbers(places.dilation, "dilation", 1),
            numbers(places.output_padding, "output_padding", 0),
        )
        if 0 in window.stride or 0 in sizes:
            raise Unsaid("a window that moves")
        return window

    def outputs(self, given: tuple[int, ...]) -> tuple[int, ...]:
        found = tuple(
            (size + 2 * pad - gap * (width - 1) - 1) // step + 1
            for size, width, step, pad, gap in self._dimensions(given)
        )
        return _positive(found)

    def upward(self, given: tuple[int, ...]) -> tuple[int, ...]:
        """The outputs of a transposed convolution."""
        found = tuple(
            (size - 1) * step - 2 * pad + gap * (width - 1) + 1 + more
            for (size, width, step, pad, gap), more in zip(self._dimensions(given), self.output_padding, strict=True)
        )
        return _positive(found)

    def seen(self, given: tuple[int, ...], outputs: tuple[int, ...]) -> float:
        """The share of the input that any window covers: one of 1 x 1 in steps of 2 passes over three quarters."""
        each = zip(given, outputs, self.sizes, strict=True)
        return prod(min(1.0, n * width / size) for size, n, width in each if size)

    def _dimensions(self, given: tuple[int, ...]) -> list[tuple[int, int, int, int, int]]:
        return list(zip(given, self.sizes, self.stride, self.padding, self.dilation, strict=True))


def _positive(sizes: tuple[int, ...]) -> tuple[int, ...]:
    if any(size < 0 or size >= 1 << 48 for size in sizes):
        raise Unsaid("a window that fits")
    return sizes


def _flag(call: Call, where: int | bool) -> bool:
    found = where if isinstance(where, bool) else call.get(where, "transposed")
    if not isinstance(found, bool):
        raise Unsaid("transposed")
    return found


def _optional(call: Call, place: int) -> list[TensorSpec]:
    return [sound(spec) for spec in tensors_in(call.get(place, ""))]


def _groups(call: Call, given: TensorSpec) -> int:
    """Of a transposed convolution, whose weight has the channels of one group: told by the position after the last."""
    found = call.get(_AFTER.get(call.base, 8), "groups", 1)
    return found if type(found) is int and 0 < found <= max(given.sizes[1], 1) else 1


#: Where transposed convolutions have the number of groups, other than in the ninth place.
_AFTER = {
    "cudnn_convolution_transpose": 6, "miopen_convolution_transpose": 7, "slow_conv_transpose2d": 99,
    "slow_conv_transpose3d": 99, "conv_transpose1d": 6, "conv_transpose2d": 6, "conv_transpose3d": 6,
}  # fmt: skip


def _backward(call: Call) -> Amount:
    """``gradient, input, weight, bias sizes, stride, padding, dilation, transposed, padding of the output, groups,
    which gradients``: one product for each of input and weight that is asked for."""
    gradient, given, weight = (call.tensor(place, "") for place in range(3))
    transposed, mask = _flag(call, 7), call.get(10, "output_mask")
    if not isinstance(mask, tuple) or len(mask) != 3 or len({len(s.sizes) for s in (gradient, given, weight)}) != 1:
        raise Unsaid("three tensors, and which gradients are asked for")
    of_input, of_weight, of_bias = (flag is True for flag in mask)
    places = (given if transposed else gradient).sizes[2:]
    one = 2.0 * gradient.sizes[0] * prod(places) * prod(weight.sizes)
    share = 1.0
    if not transposed:
        window = _Window.of(call, _Places(4, 5, 6), weight.sizes[2:])
        share = window.seen(given.sizes[2:], gradient.sizes[2:])
    read = distinct_bytes(gradient) + of_weight * share * distinct_bytes(given) + of_input * distinct_bytes(weight)
    written = of_input * size_bytes(given.sizes, given.dtype) + of_weight * size_bytes(weight.sizes, weight.dtype)
    written += of_bias * size_bytes(gradient.sizes[1:2], weight.dtype)
    return Amount(one * (of_input + of_weight), given.dtype, read, written)


_PORTABLE = _Places(3, 4, 5, bias=2, output_padding=7, transposed=6)
_LIBRARY = _Places(4, 3, 5, bias=2)
_SLOW = _Places(4, 5, 6, bias=3)
_FUSED_ADD = _Places(5, 6, 7, bias=4, addend=2)
_CONV = _Places(3, 4, 5, bias=2)
_CONV_TRANSPOSE = _Places(3, 4, 7, bias=2, output_padding=5, transposed=True)

CONVOLUTIONS: Mapping[str, Callable[[Call], Amount]] = {
    "convolution_backward": _backward,
    **{
        name: _forward(places)
        for names, places in (
            ("convolution _convolution convolution_overrideable", _PORTABLE),
            ("cudnn_convolution", _Places(3, 2, 4)),
            ("miopen_convolution miopen_depthwise_convolution mkldnn_convolution", _LIBRARY),
            ("cudnn_convolution_transpose", _Places(4, 2, 5, output_padding=3, transposed=True)),
            ("miopen_convolution_transpose", _Places(5, 3, 6, bias=2, output_padding=4, transposed=True)),
            ("cudnn_convolution_relu miopen_convolution_relu conv1d conv2d conv3d", _CONV),
            ("cudnn_convolution_add_relu miopen_convolution_add_relu", _FUSED_ADD),
            ("_slow_conv2d_forward slow_conv3d_forward slow_conv3d thnn_conv2d", _Places(4, 5, bias=3)),
            ("conv_depthwise3d _conv_depthwise2d slow_conv_dilated2d slow_conv_dilated3d", _SLOW),
            (
                "slow_conv_transpose2d slow_conv_transpose3d",
                _Places(4, 5, 7, bias=3, output_padding=6, transposed=True),
            ),
            ("conv_transpose1d conv_transpose2d conv_transpose3d", _CONV_TRANSPOSE),
        )
        for name in names.split()
    },
}
