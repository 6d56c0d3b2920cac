"""The reference of a bilinear output: chosen rows and columns of it exactly, and a sketch of all the rest."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import torch
from torch import Tensor

from audit.comparison import Comparison, SketchScale
from audit.replay.compare import actual_sizes, unravel
from audit.replay.sampled.bilinear import PIECE_BYTES, Bilinear, lines_of
from audit.replay.sampled.exact import Exact, noise_by_row, together, worst_of_rows
from audit.replay.sampled.sketch import Blocks, blocks_of, compared, keys_of, random_weights, sums_of, typical_of
from audit.replay.stream import Stream

#: Columns with NaN or Inf where none was expected that are computed exactly; of more, these many.
_MOST_ODD = 32
#: Unit roundoff of the accumulator: float32, and float64 for a float64 output.
_UNIT = {torch.float64: 2.0**-53}
_SINGLE_UNIT = 2.0**-24
#: Products that a matrix unit sums before it rounds, or cuts, the accumulator: MFMA takes 8 to 32 of half precision.
_TOGETHER = 8
#: Squares of operands between its inverse and this have products and sums with room in float32's range.
_SINGLE_RANGE = 2.0**80
#: One exact row (column) in so many is computed with moved operands too; in float64, which has no other noise, each.
_ONE_MOVED_IN = 8
#: Random numbers along the depth go round after so many; a prime.
_PERIOD = 65_521


@dataclass(frozen=True)
class LinearOutput:
    """Compares a whole output with what was prepared; see ``prepared``."""

    form: Bilinear
    exact: Exact
    blocks: Blocks
    distinct: Tensor
    left_out: Tensor
    reference: Tensor
    accumulation: Tensor
    fast: Tensor | None

    def compare(self, result: Comparison, actual: Tensor) -> Comparison:
        view = self.form.view(actual)
        judged = torch.isfinite(self.reference).all(-1)
        columns, values = self._columns(self.left_out)
        sums = sums_of(view, self.blocks, self._replaced(view, columns, values), columns)
        if not bool((torch.isfinite(sums.total).all(-1) | ~judged).all()):
            odd, more = self._odd(view, judged)
            judged &= ~more
            columns, values = self._columns(odd)
            sums = sums_of(view, self.blocks, self._replaced(view, columns, values), columns)
        exact = self.exact if values is None else together(self.exact, values)
        elements = actual[exact.places]
        result = exact.compare(result, elements)
        typical = typical_of(elements.to(torch.float64) - exact.wide, exact.wide, self.form.dtype)
        sketch = compared(self.reference, sums, self._accumulation(sums.rounding), judged, self.distinct, self.blocks,
                          self._made_of, typical)  # fmt: skip
        sketch = dataclasses.replace(sketch, scales=tuple(self._placed(scale, result) for scale in sketch.scales))
        seen = float(judged.to(torch.float64).mean()) * (1 - float(self.left_out.to(torch.float64).mean()))
        return dataclasses.replace(result, unseen_fraction=max(0.0, 1 - seen), sketch=sketch)

    def _placed(self, scale: SketchScale, result: Comparison) -> SketchScale:
        """With its first element's index in the output for a place."""
        part, row, block = scale.place
        at = self.form.places(torch.tensor([row]), torch.tensor([block * self.blocks.width]))[part]
        return dataclasses.replace(scale, place=unravel(int(at), actual_sizes(result)))

    def _odd(self, view: Tensor, judged: Tensor) -> tuple[Tensor, Tensor]:
        """Mask of the columns with NaN or Inf in rows that should have none, and of the rows that have still more."""
        strange = ~torch.isfinite(view)
        odd = self.left_out | (strange & judged.unsqueeze(-1)).flatten(0, 1).any(0)
        extra = (odd & ~self.left_out).nonzero().flatten()
        if extra.numel() <= _MOST_ODD:
            return odd, torch.zeros_like(judged)
        odd[extra[_MOST_ODD:]] = False
        return odd, (strange & ~odd).any(-1)

    def _columns(self, odd: Tensor) -> tuple[Tensor | None, Exact | None]:
        """The columns of a mask by number, and their exact values; of many the first."""
        columns = odd.nonzero().flatten()[: 2 * _MOST_ODD]
        return (columns, exact_columns(self.form, columns, self.exact.most_noise)) if columns.numel() else (None, None)

    def _replaced(self, view: Tensor, columns: Tensor | None, values: Exact | None) -> Tensor | None:
        """The reference's values in place of the device's in odd columns, zero in those that are left out."""
        if columns is None or values is None:
            return None
        parts, rows, _ = self.form.shape
        wide = values.wide.view(parts, rows, columns.numel())
        known = torch.where(torch.isfinite(view[:, :, columns]), view[:, :, columns].to(torch.float64), wide)
        return known.masked_fill(self.left_out[columns], 0.0)

    @property
    def _made_of(self) -> str:
        more = ", with those of a fast convolution" if self.fast is not None else ""
        return f"one rounding to the output's dtype and the accumulator's own{more}"

    def _accumulation(self, rounding: Tensor) -> Tensor:
        """What summing in the accumulator's precision adds to the variance of each entry.

        Partial sums s_k walk at random to c, and each is rounded by up to u |s_k|: (u^2 / 3) sum s_k^2 is about
        (u^2 / 3) depth (q / 2 + c^2 / 3), with q the sum of the squared products (bounded by Cauchy and Schwarz). A
        matrix unit may cut instead of round, once in _TOGETHER products, all towards zero.
        """
        unit, depth = _UNIT.get(self.form.dtype, _SINGLE_UNIT), self.form.depth
        squares = rounding * (12 / torch.finfo(self.form.dtype).eps ** 2 * 7 / 3)  # of c, by the mean mantissa
        walk = unit**2 / 3 * depth * (self.accumulation / 2 + squares / 3)
        cut = (unit * depth / _TOGETHER) ** 2 / 4 if self.form.dtype.itemsize == 2 else 0.0
        total = walk + cut * (squares + self.accumulation)
        if self.fast is not None:
            total += self.fast
        if self.form.dtype == torch.float64:
            return total * 2  # the reference has the same
        return total + walk if self.form.dtype.itemsize == 2 else total  # as the reference has, see _fits_single


# --- what is computed beforehand -------------------------------------------------------------------------------------


def prepared(form: Bilinear, stream: Stream) -> LinearOutput:
    """Computes the exact rows and columns of ``form`` and the reference's sketch."""
    columns = lines_of(form.shape[2], stream)
    factors = form.depth_factors(_moves(form, stream))
    exact_rows, right = _pass_over_right(form, factors, stream)
    left_norms = form.row_fourths().sqrt_()
    work = torch.float32 if _fits_single(form, right, left_norms) else torch.float64
    exact, reference = _pass_over_left(form, columns, factors, right, left_norms.sqrt(), work)
    blocks, distinct = blocks_of(right.weights, keys_of(right.keys))
    exact, weighted = together(exact_rows, exact), form.for_parts(_in_blocks(right.norms, blocks.squares))
    squares = form.alpha**2 * left_norms.unsqueeze(-1) * weighted
    added, fast = form.added(left_norms, right.norms, columns, stream), None
    if added is not None:
        exact, fast = _with_noise(form, exact, added, right.norms), added.unsqueeze(-1) * weighted
    return LinearOutput(form, exact, blocks, distinct, right.left_out, reference, squares, fast)


def _with_noise(form: Bilinear, exact: Exact, added: Tensor, right_norms: Tensor) -> Exact:
    """With at least the noise that is ``added`` to each row, in units of its column."""
    part, row, column = form.elements(exact.places)
    squares = added[part, row] * right_norms[part % right_norms.shape[0], column]
    return dataclasses.replace(exact, noise=torch.maximum(exact.noise, squares.sqrt_()))


def _moves(form: Bilinear, stream: Stream) -> Tensor:
    """Factors of the products in an element when both operands are moved by ``form.moves`` steps, up or down."""
    n = min(_PERIOD, form.right.numel())
    left, right = (torch.finfo(operand.dtype).eps * form.moves for operand in (form.left, form.right))
    return (stream.signs(n).to(torch.float64) * left + 1) * (stream.signs(n).to(torch.float64) * right + 1)


def _one_moved_in(form: Bilinear) -> int:
    return 1 if form.dtype == torch.float64 else _ONE_MOVED_IN


def _own(form: Bilinear, run: Bilinear, right: Tensor, index: Tensor | slice, exact: Tensor) -> Tensor:
    """What a correct algorithm in the output's dtype gives: its sum in that dtype; of half precision, which is summed
    in float32, the exact one rounded."""
    if form.dtype.itemsize < 4:
        return exact.to(form.dtype)
    return run.completed(run.apply(right.to(form.dtype)), index).to(form.dtype)


@dataclass
class _Right:
    """What one pass over the right operand gives: its sketch, and one number a column for each purpose."""

    sketched: Tensor
    weights: Tensor
    keys: Tensor
    norms: Tensor
    left_out: Tensor


def _pass_over_right(form: Bilinear, factors: Tensor, stream: Stream) -> tuple[Exact, _Right]:
    small, places = form.restricted(stream)
    n_columns, dim = form.shape[2], form.column_dim
    weights = random_weights(n_columns, stream)
    width = weights.shape[1]
    probe = form.depth_factors(stream.uniform(min(_PERIOD, form.right.numel())) + 0.5)
    sketched, keys, norms, left_out = [], [], [], []
    wide_rows, own_rows, worst = [], [], torch.zeros(small.shape[:2], dtype=torch.float64)
    for number, start in enumerate(form.pieces(width)):
        narrow = form.piece(start, width)
        wide = narrow.to(torch.float64)
        at = slice(start, start + wide.shape[dim])
        exact = small.completed(small.apply(wide), at)
        if number % _one_moved_in(form) == 0:
            moved = small.completed(small.apply(wide * factors), at, torch.finfo(form.dtype).eps)
            worst = torch.maximum(worst, worst_of_rows(moved, exact))
        wide_rows.append(exact)
        own_rows.append(_own(form, small, narrow, at, exact))
        worst = torch.maximum(worst, worst_of_rows(own_rows[-1], exact))
        key = form.weighted(wide, probe)
        bad = ~torch.isfinite(key).all(0)
        if bool(bad.any()):
            wide = torch.where(form.along(bad), 0.0, wide)
            key = form.weighted(wide, probe)
        left_out.append(bad)
        keys.append(key)
        some = weights[start // width : -(-at.stop // width)]
        sketched.append(form.in_blocks(wide, some))
        norms.append(form.fourth_norms(wide))
    weights.view(-1)[:n_columns].masked_fill_(torch.cat(left_out), 0.0)
    right = _Right(
        torch.cat(sketched, dim), weights, torch.cat(keys, 1).sum(0), torch.cat(norms, 1), torch.cat(left_out)
    )
    wide_row, own_row = (torch.cat(some, 2).flatten() for some in (wide_rows, own_rows))
    noise = noise_by_row(worst, n_columns, form.dtype, small.row_fourths() ** 0.25)
    return Exact(places.flatten(), wide_row, own_row, noise), right


def _fits_single(form: Bilinear, right: _Right, left_norms: Tensor) -> bool:
    """Whether the sketch may be a product in float32: of a half precision output, far from the ends of the range.

    Its partial sums are those of the device, summed over a block by its weights. Their signs are random, so its squares
    are sum w_j^2 s_kj^2 on average, and float32 adds to the variance what ``_accumulation`` says of the device: there
    it is counted twice. That the factors are rounded too adds one depth-th of it.
    """
    if any(dtype.itemsize != 2 for dtype in (form.dtype, form.left.dtype, form.right.dtype)):
        return False
    norms = torch.cat((left_norms.flatten(), right.norms.flatten(), right.sketched.square().amax().view(1)))
    return bool(((norms == 0) | ((norms > 1 / _SINGLE_RANGE) & (norms < _SINGLE_RANGE))).all())


def _pass_over_left(
    form: Bilinear, index: Tensor, factors: Tensor, right: _Right, scale: Tensor, work: torch.dtype
) -> tuple[Exact, Tensor]:
    """The exact columns ``index``, and the sketch of the whole as a product in ``work``; rows have that ``scale``."""
    some = form.columns(index, torch.float64)
    n, n_moved = index.numel(), -(-index.numel() // _one_moved_in(form))
    moved = some.narrow(form.column_dim, 0, n_moved) * factors
    values = form.apply(torch.cat((some, moved), form.column_dim))
    sketch = form.apply(right.sketched.to(work)).to(torch.float64)
    if not bool(torch.isfinite(sketch).all()):  # an operand's own, or one that float32 has no room for
        sketch = form.apply(right.sketched)
    wide = form.completed(values[:, :, :n], index)
    moves = form.completed(values[:, :, n : n + n_moved], index[:n_moved], torch.finfo(form.dtype).eps)
    own = _own(form, form, form.columns(index, form.right.dtype), index, wide)
    worst = torch.maximum(worst_of_rows(own, wide), worst_of_rows(moves, wide[:, :, :n_moved]))
    noise = noise_by_row(worst, n, form.dtype, scale)
    exact = Exact(form.places(columns=index).flatten(), wide.flatten(), own.flatten(), noise)
    return exact, _with_addend(form, sketch, right.weights)


def _with_addend(form: Bilinear, product: Tensor, weights: Tensor) -> Tensor:
    """``alpha`` x product + ``beta`` x the addend's own sketch."""
    product = product * form.alpha
    if form.addend is None or form.beta == 0:
        return product
    addend = form.addend.expand(-1, -1, form.shape[2])
    step = max(1, PIECE_BYTES // (8 * form.shape[2]))
    for part in range(addend.shape[0]):
        mine = slice(None) if addend.shape[0] == 1 else slice(part, part + 1)
        for row in range(0, addend.shape[1], step):
            rows = slice(None) if addend.shape[1] == 1 else slice(row, row + step)
            product[mine, rows] += form.beta * _in_blocks(addend[part, row : row + step].to(torch.float64), weights)
    return product


def _in_blocks(values: Tensor, weights: Tensor) -> Tensor:
    """[rows, columns] summed with the weights of each block, [rows, blocks]."""
    n_blocks, width = weights.shape
    padded = torch.nn.functional.pad(values, (0, n_blocks * width - values.shape[1]))
    return padded.view(values.shape[0], n_blocks, width).mul(weights).sum(-1)


def exact_columns(form: Bilinear, index: Tensor, noise: float) -> Exact:
    """Chosen columns alone, with that noise at least."""
    right = form.columns(index, form.right.dtype)
    wide = form.completed(form.apply(right.to(torch.float64)), index)
    own = _own(form, form, right, index, wide)
    worst = noise_by_row(worst_of_rows(own, wide), index.numel(), form.dtype).clamp_min(noise)
    return Exact(form.places(columns=index).flatten(), wide.flatten(), own.flatten(), worst)
