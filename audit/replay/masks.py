"""Masks with a recorded or usual structure: triangles, padding at either end, blocks on the diagonal."""

from __future__ import annotations

import torch

from audit.replay.stream import Stream
from audit.schema import Pattern


def patterned(
    sizes: tuple[int, ...], pattern: Pattern, share: float | None, n_blocks: int | None, stream: Stream
) -> torch.Tensor:
    """A bool mask that expands to ``sizes``; ``share`` of it is true in a ``prefix`` or ``suffix``, by default 3/4."""
    n_rows, n_columns = (1, 1, *sizes)[-2:]
    if pattern in ("prefix", "suffix"):
        return _runs(sizes, pattern == "suffix", 0.75 if share is None else share, stream)
    if pattern == "block":
        blocks = [torch.arange(n) * (n_blocks or 1) // max(n, 1) for n in (n_rows, n_columns)]
        return blocks[0][:, None] == blocks[1]
    lower = lower_triangle(n_rows, n_columns)
    return (lower if pattern == "lower" else ~lower).reshape(sizes if len(sizes) < 2 else (n_rows, n_columns))


def lower_triangle(n_rows: int, n_columns: int) -> torch.Tensor:
    """True on and below the diagonal that ends in the last column; each row has one true element at least."""
    last = (torch.arange(n_rows) + (n_columns - n_rows)).clamp(min=0)
    return torch.arange(n_columns) <= last[:, None]


def _runs(sizes: tuple[int, ...], at_the_end: bool, share: float, stream: Stream) -> torch.Tensor:
    """Each row starts (or ends) with a run of true elements, of random length and ``share`` of the row on average."""
    n_columns = sizes[-1] if sizes else 1
    n_rows = torch.Size(sizes[:-1]).numel()
    middle = round(share * n_columns)
    spread = min(middle, n_columns - middle)
    lengths = stream.integers(n_rows, middle - spread, middle + spread).reshape(*sizes[:-1], 1)
    columns = torch.arange(n_columns)
    mask = columns >= n_columns - lengths if at_the_end else columns < lengths
    return mask.reshape(sizes)


def exactly(n: int, n_true: int, stream: Stream) -> torch.Tensor:
    """``n`` booleans of which ``n_true`` are true, at random places."""
    mask = torch.zeros(n, dtype=torch.bool)
    mask[stream.permutation(n)[:n_true]] = True
    return mask
