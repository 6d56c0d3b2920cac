"""Attention, softmax(q k^T x scale + bias) v, for chosen query rows, and its gradients for chosen rows and keys.

A row of the output, and of the query's gradient, needs all keys and no other row. A row of the key's or value's
gradient needs all queries, so that these are computed for a few heads only.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from audit.replay.sampled.exact import Exact, noise_by_row, worst_of_rows
from audit.replay.stream import Stream

#: Rows of queries (keys) in a tile; one in each is compared. Flash kernels take 64 or 128.
TILE = 64
#: One key head in so many has the gradients of its keys and values compared, two at least.
ONE_HEAD_IN, _FEWEST_HEADS = 32, 2
#: Bytes of one piece of the matrix of scores.
_SCORE_BYTES = 16 << 20


@dataclass(frozen=True)
class Attention:
    """Query is [batch, heads, length, width]; key and value may have fewer heads, each for a group of query heads.

    ``bias`` is [batch, heads, length, keys], boolean (false: not attended to) or added; ``gradient`` the output's.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    bias: Tensor | None
    causal: bool
    scale: float
    gradient: Tensor | None = None

    @property
    def group(self) -> int:
        return self.query.shape[1] // self.key.shape[1]

    @property
    def flops(self) -> float:
        """Two products, and five more for the gradients where these are wanted."""
        batch, heads, length, _ = self.query.shape
        pairs = batch * heads * length * self.key.shape[2] / (2 if self.causal else 1)
        return 2.0 * pairs * (self.query.shape[3] + self.value.shape[3]) * (1 if self.gradient is None else 3.5)

    @property
    def is_finite(self) -> bool:
        """Whether no output can be NaN or Inf: all operands are finite and no row is masked whole."""
        given = (self.query, self.key, self.value, self.gradient)
        return self.bias is None and all(
            bool(torch.isfinite(t.sum(dtype=torch.float64))) for t in given if t is not None
        )

    def pairs(self) -> Iterator[tuple[int, int]]:
        """Every batch entry with every key head."""
        return ((b, h) for b in range(self.key.shape[0]) for h in range(self.key.shape[1]))


@dataclass(frozen=True)
class Rows:
    """Query rows of one key head's group: ``heads`` and ``positions``, one of each a row."""

    batch: int
    key_head: int
    heads: Tensor
    positions: Tensor

    def of(self, tensor: Tensor) -> Tensor:
        return tensor[self.batch][self.heads, self.positions]

    def places(self, length: int, n_heads: int, width: int) -> Tensor:
        """Flat indices of these rows in [batch, heads, length, width]."""
        rows = (self.batch * n_heads + self.heads) * length + self.positions
        return (rows.view(-1, 1) * width + torch.arange(width)).flatten()


@dataclass(frozen=True)
class Precision:
    """How a run is made: exactly; with all operands moved by one rounding step (``depth``: factors along the width of
    query and key, ``keys``: one for each key); or as kernels do, in float32 with what is multiplied next rounded."""

    dtype: torch.dtype = torch.float64
    rounded: torch.dtype | None = None
    depth: Tensor | None = None
    keys: Tensor | None = None
    width: Tensor | None = None

    def kept(self, tensor: Tensor) -> Tensor:
        return tensor if self.rounded is None else tensor.to(self.rounded).to(self.dtype)


def precisions(attention: Attention, stream: Stream) -> tuple[Precision, Precision, Precision]:
    """Exact, moved, and a kernel's own."""
    dtype = attention.query.dtype
    eps = torch.finfo(dtype).eps

    def moves(n: int) -> Tensor:
        return stream.signs(n).to(torch.float64) * eps + 1

    width, keys = attention.query.shape[3], attention.key.shape[2]
    moved = Precision(depth=moves(width) * moves(width), keys=moves(keys), width=moves(attention.value.shape[3]))
    narrow = dtype.itemsize < 4
    own = Precision(torch.float32 if narrow else dtype, dtype if narrow else None)
    return Precision(), moved, own


# --- one piece of rows -------------------------------------------------------------------------------------------


@dataclass
class Head:
    """A key head's operands in one precision."""

    key: Tensor
    value: Tensor

    @classmethod
    def of(cls, attention: Attention, batch: int, head: int, precision: Precision) -> Head:
        key, value = (t[batch, head].to(precision.dtype) for t in (attention.key, attention.value))
        return cls(key if precision.depth is None else key * precision.depth, value)


@dataclass
class Scored:
    """Probabilities [rows, keys] and the log of each row's sum."""

    probability: Tensor
    sums: Tensor


def scored(attention: Attention, head: Head, rows: Rows, precision: Precision) -> Scored:
    query = rows.of(attention.query).to(precision.dtype)
    scores = query @ head.key.t() * attention.scale
    if attention.bias is not None:
        bias = rows.of(attention.bias)
        scores = scores.masked_fill(~bias, -math.inf) if bias.dtype == torch.bool else scores + bias.to(scores.dtype)
    if attention.causal:
        later = torch.arange(scores.shape[1]) > rows.positions.view(-1, 1)
        scores = scores.masked_fill(later, -math.inf)
    sums = torch.logsumexp(scores, -1)
    probability = (scores - sums.unsqueeze(-1)).exp_()
    if precision.keys is not None:
        probability = probability * precision.keys
    return Scored(probability, sums)


def output(head: Head, found: Scored, precision: Precision) -> Tensor:
    return precision.kept(found.probability) @ head.value


def score_gradient(attention: Attention, head: Head, found: Scored, rows: Rows, precision: Precision) -> Tensor:
    """Of the scaled scores: p (dp - sum p dp), with dp = gradient v^T."""
    gradient = incoming(attention, rows, precision)
    by_probability = gradient @ head.value.t()
    if precision.rounded is None:
        mean = (found.probability * by_probability).sum(-1, keepdim=True)
    else:  # the same number, which kernels take from the output that the forward has left
        mean = (precision.kept(output(head, found, precision)) * gradient).sum(-1, keepdim=True)
    return precision.kept(found.probability * (by_probability - mean))


def incoming(attention: Attention, rows: Rows, precision: Precision) -> Tensor:
    assert attention.gradient is not None
    gradient = rows.of(attention.gradient).to(precision.dtype)
    return gradient if precision.width is None else gradient * precision.width


# --- what is chosen ----------------------------------------------------------------------------------------------


def one_in_each_tile(n: int, stream: Stream) -> Tensor:
    """A random place in every tile of ``n``, the first and the last."""
    starts = torch.arange(0, n, TILE)
    inside = starts + (stream.uniform(len(starts)) * (n - starts).clamp_max(TILE)).to(torch.int64)
    chosen: Tensor = torch.unique(torch.cat((inside, torch.tensor([0, n - 1]))))
    return chosen


def some_rows(attention: Attention, stream: Stream) -> Iterator[Rows]:
    """In every batch entry and head, one row of every tile; in pieces whose scores fit."""
    for batch, key_head in attention.pairs():
        heads, positions = [], []
        for head in range(key_head * attention.group, (key_head + 1) * attention.group):
            chosen = one_in_each_tile(attention.query.shape[2], stream)
            heads.append(torch.full_like(chosen, head))
            positions.append(chosen)
        yield from _pieces(attention, batch, key_head, torch.cat(heads), torch.cat(positions))


def all_rows(attention: Attention, batch: int, key_head: int) -> Iterator[Rows]:
    length, group = attention.query.shape[2], attention.group
    heads = torch.arange(key_head * group, (key_head + 1) * group).repeat_interleave(length)
    yield from _pieces(attention, batch, key_head, heads, torch.arange(length).repeat(group))


def _pieces(attention: Attention, batch: int, key_head: int, heads: Tensor, positions: Tensor) -> Iterator[Rows]:
    step = max(1, _SCORE_BYTES // (8 * attention.key.shape[2]))
    for start in range(0, len(heads), step):
        yield Rows(batch, key_head, heads[start : start + step], positions[start : start + step])


# --- chosen parts of each output ---------------------------------------------------------------------------------


@dataclass
class _Parts:
    """Places, values and noise of one output, collected piece by piece: a piece has rows of heads that share a key."""

    dtype: torch.dtype
    places: list[Tensor] = field(default_factory=list)
    wide: list[Tensor] = field(default_factory=list)
    own: list[Tensor] = field(default_factory=list)
    noise: list[Tensor] = field(default_factory=list)

    def add(self, places: Tensor, exact: Tensor, moved: Tensor, own: Tensor) -> None:
        """All but ``places`` (flat) are [rows, width], or [rows]."""
        exact, moved, own = (t.reshape(len(exact), -1) for t in (exact, moved, own.to(self.dtype)))
        self.places.append(places)
        self.wide.append(exact.flatten())
        self.own.append(own.flatten())
        worst = torch.maximum(worst_of_rows(moved, exact), worst_of_rows(own, exact))
        self.noise.append(noise_by_row(worst, exact.shape[1], self.dtype))

    def exact(self) -> Exact:
        return Exact(*map(torch.cat, (self.places, self.wide, self.own, self.noise)))


def forward_parts(attention: Attention, dtype: torch.dtype, stream: Stream) -> tuple[Exact, Exact]:
    """Chosen rows of the output and of the log-sum-exp, which has at least single precision."""
    result, sums = _Parts(dtype), _Parts(torch.promote_types(dtype, torch.float32))
    runs = precisions(attention, stream)
    _, n_heads, length, _ = attention.query.shape
    heads: dict[tuple[int, int], list[Head]] = {}
    for rows in some_rows(attention, stream):
        pair = rows.batch, rows.key_head
        if pair not in heads:
            heads = {pair: [Head.of(attention, *pair, precision) for precision in runs]}
        found = [scored(attention, head, rows, p) for head, p in zip(heads[pair], runs, strict=True)]
        values = [output(head, f, p) for head, f, p in zip(heads[pair], found, runs, strict=True)]
        result.add(rows.places(length, n_heads, values[0].shape[1]), *values)
        sums.add(rows.places(length, n_heads, 1), *(f.sums for f in found))
    return result.exact(), sums.exact()


def query_gradient_parts(attention: Attention, dtype: torch.dtype, stream: Stream) -> Exact:
    """Chosen rows of the query's gradient."""
    result = _Parts(dtype)
    runs = precisions(attention, stream)
    _, n_heads, length, width = attention.query.shape
    for rows in some_rows(attention, stream):
        values = []
        for precision in runs:
            head = Head.of(attention, rows.batch, rows.key_head, precision)
            found = scored(attention, head, rows, precision)
            values.append(score_gradient(attention, head, found, rows, precision) @ head.key * attention.scale)
        result.add(rows.places(length, n_heads, width), *values)
    return result.exact()


def key_gradient_parts(attention: Attention, dtype: torch.dtype, stream: Stream) -> tuple[Exact, Exact]:
    """One row in every tile of the gradients of key and value, for some key heads, the first and the last too."""
    by_key, by_value = _Parts(dtype), _Parts(dtype)
    runs = precisions(attention, stream)
    pairs = list(attention.pairs())
    n_heads, n_keys = attention.key.shape[1:3]
    n_chosen = min(len(pairs), max(_FEWEST_HEADS, len(pairs) // ONE_HEAD_IN))
    for number in stream.distinct(n_chosen, 0, len(pairs) - 1).tolist():
        batch, key_head = pairs[number]
        keys = one_in_each_tile(n_keys, stream)
        place = Rows(batch, key_head, torch.full_like(keys, key_head), keys)
        found = [_of_keys(attention, batch, key_head, keys, precision) for precision in runs]
        by_key.add(place.places(n_keys, n_heads, attention.key.shape[3]), *(f[0] for f in found))
        by_value.add(place.places(n_keys, n_heads, attention.value.shape[3]), *(f[1] for f in found))
    return by_key.exact(), by_value.exact()


def _of_keys(
    attention: Attention, batch: int, key_head: int, keys: Tensor, precision: Precision
) -> tuple[Tensor, Tensor]:
    head = Head.of(attention, batch, key_head, precision)
    by_key = torch.zeros(len(keys), attention.key.shape[3], dtype=precision.dtype)
    by_value = torch.zeros(len(keys), attention.value.shape[3], dtype=precision.dtype)
    for rows in all_rows(attention, batch, key_head):
        found = scored(attention, head, rows, precision)
        gradient = score_gradient(attention, head, found, rows, precision)[:, keys]
        query = rows.of(attention.query).to(precision.dtype)
        by_key += gradient.t() @ (query if precision.depth is None else query * precision.depth) * attention.scale
        by_value += precision.kept(found.probability)[:, keys].t() @ incoming(attention, rows, precision)
    return by_key, by_value
