"""What convolutions by transforms (Winograd's, Fourier's) lose beside a direct sum, when only parts are compared.

A transform mixes the places of a tile, so that the error at one place comes from all of them: a quiet place has the
error of the loudest. Its square is told in units of a place and a column: the roots of the sums of the fourth powers of
their factors, whose product bounds the sum of the squared products.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from audit.replay.sampled.bilinear import lines_of
from audit.replay.stream import Stream
from audit.replay.winograd import TAPS, TILE, WIDTH, filtered, turned

if TYPE_CHECKING:
    from audit.replay.sampled.convolutions import Convolution

#: Roundings of the accumulator's dtype in the largest error: of a transform over a whole image (Fourier's; on average
#: three to five, in images of up to 512 x 512), and of Winograd's F(2, 3), which is less.
_FOURIER = 16.0
#: The same of Winograd's F(6, 3) and of its gradients: white data had 110 to 670, the more the more channels there are.
#: Where the case's own data have more, that counts.
WINOGRAD = 256.0
#: Images, and lines of tiles in each, that show what the case's own data have.
_IMAGES, _LINES = 2, 3
#: Winograd's F(2, 3) in half precision rounds each transformed factor to it.
_TRANSFORMED = 2
_UNIT, _DOUBLE_UNIT = 2.0**-24, 2.0**-53


def added(form: Convolution, left: Tensor, right: Tensor, columns: Tensor, stream: Stream) -> Tensor:
    """The square of what a fast algorithm adds to the error of each place, [parts, rows].

    ``left`` and ``right`` are the roots of the sums of fourth powers, [parts, rows] and [the right's parts, columns];
    some ``columns`` are computed to see it.
    """
    unit = _DOUBLE_UNIT if form.dtype == torch.float64 else _UNIT
    gain = (_FOURIER * unit) ** 2
    if _is_winograd(form):
        own = form.dtype == torch.float32 and form.has_places  # in half precision it is far below one rounding
        measured = _measured(form, left, right, columns, stream) if own else 0.0
        gain = max((WINOGRAD * unit) ** 2, measured)
    loudest = torch.where(torch.isfinite(left), left, 0.0).amax(1, keepdim=True)
    total = (loudest * gain).expand_as(left)
    if form.dtype.itemsize == 2:
        eps = max(torch.finfo(operand.dtype).eps for operand in (form.left, form.right))
        total = total + form.beside(left) * (_TRANSFORMED * (eps / 2) ** 2 / 3)
    return total


def _is_winograd(form: Convolution) -> bool:
    """Whether libraries have tiles of up to 6 x 6 for it."""
    geometry = form.geometry
    plain = geometry.kernel == (TAPS, TAPS) and all(step == 1 for step in (*geometry.stride, *geometry.dilation))
    return plain and form.dtype != torch.float64


def _measured(form: Convolution, left: Tensor, right: Tensor, columns: Tensor, stream: Stream) -> float:
    """The largest error of F(6, 3) in float32 in some lines of tiles, against what is loudest beside each place."""
    weight, padding = _weight(form, columns)
    by_image = left.view(-1, form.groups, *form.places_out)
    sizes = right[:, columns].reshape(form.groups, -1, 1, 1)
    worst = 0.0
    for image in lines_of(form.left.shape[0], stream, _IMAGES).tolist():
        beside = torch.nn.functional.max_pool2d(by_image[image], 2 * TILE - 1, 1, TILE - 1)
        for line in lines_of(form.places_out[0], stream, _LINES).tolist():
            top = line // TILE * TILE
            band = _band(form.left[image], top - padding[0])
            one, other = (
                filtered(band.to(dtype), weight.to(dtype), (0, padding[1]), form.groups)
                for dtype in (torch.float32, torch.float64)
            )
            height = min(TILE, form.places_out[0] - top)
            error = (one - other).square().view(form.groups, -1, *one.shape[2:])[:, :, :height]
            share = error / (beside[:, None, top : top + height] * sizes)
            worst = max(worst, float(torch.where(torch.isfinite(share), share, 0.0).max()))
    return worst


def _weight(form: Convolution, columns: Tensor) -> tuple[Tensor, tuple[int, ...]]:
    """The filters of some columns, [groups x columns, channels, 3, 3], and the padding."""
    right, padding = form.columns(columns, torch.float64), form.geometry.padding
    if form.column_dim == 1:
        return right.flatten(0, 1), padding
    return turned(right.flatten(0, 1), form.groups), tuple(TAPS - 1 - pad for pad in padding)


def _band(image: Tensor, top: int) -> Tensor:
    """The lines of an image that one line of tiles is made of, zero outside, [1, channels, WIDTH, width]."""
    at = torch.arange(top, top + WIDTH)
    inside = ((at >= 0) & (at < image.shape[1])).view(1, -1, 1)
    return torch.where(inside, image[:, at.clamp(0, image.shape[1] - 1)], 0).unsqueeze(0)
