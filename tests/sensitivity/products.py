"""A product as a GPU computes it, with new data each time, and ways in which one goes wrong at random places."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass
class Trial:
    """Operands in bfloat16 and their product in float32, summed in a few parts of random sizes."""

    generator: torch.Generator
    left: Tensor
    right: Tensor
    product: Tensor

    @classmethod
    def make(cls, seed: int, rows: int, depth: int, columns: int) -> Trial:
        generator = torch.Generator().manual_seed(seed)
        left = torch.randn(rows, depth, generator=generator).bfloat16()
        right = torch.randn(depth, columns, generator=generator).bfloat16()
        cuts = torch.randint(1, depth, (int(torch.randint(0, 4, (1,), generator=generator)),), generator=generator)
        edges = [0, *sorted(set(cuts.tolist())), depth]
        trial = cls(generator, left, right, torch.zeros(rows, columns))
        for start, stop in itertools.pairwise(edges):
            trial.product += trial.part(start, stop)
        return trial

    def part(self, start: int, stop: int) -> Tensor:
        """The product of ``start`` to ``stop`` of the depth, float32."""
        return self.left[:, start:stop].float() @ self.right[start:stop].float()

    def healthy(self) -> Tensor:
        """Summed in float32 and rounded once."""
        return self.product.bfloat16()

    def below(self, n: int) -> int:
        return int(torch.randint(n, (1,), generator=self.generator))

    @property
    def depth(self) -> int:
        return self.left.shape[1]


def rows_unwritten(trial: Trial, share: float) -> Tensor:
    """The last rows hold what another call has left there."""
    out = trial.healthy()
    n = max(1, round(share * out.shape[0]))
    out[-n:] = out[:n].clone()
    return out


def elements_unwritten(trial: Trial, n: float) -> Tensor:
    """So many elements beside each other, anywhere, are zero."""
    out = trial.healthy()
    flat = out.view(-1)
    start = trial.below(flat.numel() - int(n))
    flat[start : start + int(n)] = 0
    return out


def tile_permuted(trial: Trial, edge: float) -> Tensor:
    """Rows and columns of one square tile are in another order; in the smallest its columns have changed places."""
    out, n = trial.healthy(), int(edge)
    row, column = (trial.below(size // n) * n for size in out.shape)
    rows, columns = (torch.randperm(n, generator=trial.generator) for _ in range(2))
    tile = out[row : row + n, column : column + n].clone()
    moved = tile[rows][:, columns]
    out[row : row + n, column : column + n] = tile.flip(1) if torch.equal(moved, tile) else moved
    return out


def tile_off(trial: Trial, share: float) -> Tensor:
    """One tile of 16 x 16 is too large by that share."""
    out = trial.product.clone()
    row, column = (trial.below(size // 16) * 16 for size in out.shape)
    out[row : row + 16, column : column + 16] *= 1 + share
    return out.bfloat16()


def columns_off(trial: Trial, share: float) -> Tensor:
    """Every 64th column, from any on, is too large by that share."""
    out = trial.product.clone()
    out[:, trial.below(64) :: 64] *= 1 + share
    return out.bfloat16()


def depth_cut(trial: Trial, share: float) -> Tensor:
    """The last products of every element are left out."""
    return (trial.product - trial.part(trial.depth - max(1, round(share * trial.depth)), trial.depth)).bfloat16()


def narrow_sums(trial: Trial, n_parts: float) -> Tensor:
    """The sum is rounded to bfloat16 after each of so many parts."""
    step, total = trial.depth // int(n_parts), torch.zeros_like(trial.product)
    for start in range(0, trial.depth, step):
        total = (total + trial.part(start, start + step)).bfloat16().float()
    return total.bfloat16()


def bias_dropped(trial: Trial, share: float) -> Tensor:
    """What is left of a product with a bias of that share of its deviation; the reference has the bias."""
    return trial.healthy()


@dataclass(frozen=True)
class Fault:
    """``sizes`` from the largest down, the first that of the issue where it names one; ``whole``: of the whole product,
    where the first would take minutes, or is not found every time."""

    make: Callable[[Trial, float], Tensor]
    unit: str
    sizes: tuple[float, ...]
    whole: float | None = None


#: Shares are of one, edges and counts in elements.
FAULTS: Mapping[str, Fault] = {
    "last rows unwritten": Fault(rows_unwritten, "of the rows", (0.001,)),
    "elements unwritten": Fault(elements_unwritten, "elements", (64, 1)),
    "one tile permuted": Fault(tile_permuted, "rows and columns", (16, 4, 2)),
    "one tile of 16 x 16 too large": Fault(tile_off, "of its value", (0.02, 0.014, 0.01, 0.007), 0.03),
    "every 64th column wrong": Fault(columns_off, "of its value", (0.05, 0.02, 0.014, 0.01, 0.007)),
    "depth truncated": Fault(depth_cut, "of the depth", (1 / 16, 1 / 1024, 1 / 4096)),
    "sums kept in bfloat16": Fault(narrow_sums, "roundings", (128, 16, 12, 8, 4), 16),
    "bias dropped": Fault(bias_dropped, "of the product's deviation", (0.0156, 0.002, 0.001, 0.0007, 0.0005)),
}
