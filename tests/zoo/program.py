"""One program of the zoo, and what its functions share: a training step and where tensors go."""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy
import torch
from torch import nn

Step = Callable[[], list[torch.Tensor]]


@dataclass(frozen=True)
class ZooProgram:
    """A small program with real classes, deterministic from a seed.

    ``step`` returns everything that a user could look at: outputs, losses, gradients, buffers. ``item`` is what it
    stands for. ``needs`` are the packages beside torch. ``quick``: one of those that every test run traces.
    ``unaudited`` are the reasons (beginnings) for which a call of it may have no case; any other reason is a defect.
    """

    step: Step
    item: str
    needs: tuple[str, ...] = ()
    quick: bool = False
    unaudited: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.step.__name__

    def missing(self) -> list[str]:
        """The packages that it needs and that are not here."""
        return [package for package in self.needs if importlib.util.find_spec(package) is None]


def device() -> str:
    """Where a program puts its tensors: ``cuda`` where there is one, or where the tracer pretends so."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def gradients(model: nn.Module) -> list[torch.Tensor]:
    return [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]


def state(model: nn.Module) -> list[torch.Tensor]:
    """Copies of all weights and buffers."""
    return [tensor.detach().clone() for tensor in (*model.parameters(), *model.buffers())]


def train(
    model: nn.Module, forward: Callable[[], torch.Tensor], optimizer: torch.optim.Optimizer | None = None, n: int = 1
) -> list[torch.Tensor]:
    """``n`` steps of AdamW or of ``optimizer``; losses, last gradients, weights and buffers."""
    optimizer = optimizer or torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses, last = [], []
    for _ in range(n):
        loss = forward()
        loss.backward()
        losses.append(loss.detach().clone())
        last = gradients(model)
        optimizer.step()
        optimizer.zero_grad()
    return [*losses, *last, *state(model)]


def digest(results: Iterable[torch.Tensor]) -> str:
    """Of shapes, dtypes and bits."""
    total = hashlib.sha256()
    for tensor in results:
        total.update(repr((tuple(tensor.shape), tensor.dtype)).encode())
        plain = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous().flatten()
        total.update(plain.view(torch.uint8).numpy().tobytes() if plain.numel() else b"")
    return total.hexdigest()


def seeded(step: Step) -> Iterator[torch.Tensor]:
    """Runs a step from a fixed seed; yields what it returned, then the state of the random generator."""
    torch.manual_seed(0)
    numpy.random.seed(0)  # some models of transformers draw their masks there
    yield from step()
    yield torch.get_rng_state()
