"""An operand whose values have to be made, with what its op's other arguments and the recorded statistics say of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import torch

from audit.replay.masks import patterned
from audit.replay.stream import Stream
from audit.replay.synthesis import synthesise
from audit.schema import Arg, TensorSpec, Values


@dataclass(frozen=True)
class Operand:
    """``sizes`` are those to be filled; ``arguments`` those of the call by schema name, defaults filled in.

    ``name`` is its own there, and ``place`` its number in the list that it stands in (the second of ``indices`` has 1).
    """

    name: str
    sizes: tuple[int, ...]
    dtype: torch.dtype
    values: Values
    arguments: Mapping[str, Arg]
    place: int = 0

    @property
    def n(self) -> int:
        return torch.Size(self.sizes).numel()

    @property
    def floats(self) -> bool:
        return self.dtype.is_floating_point or self.dtype.is_complex

    @property
    def described(self) -> bool:
        """Whether the trace says in which range the values were."""
        return self.values.minimum is not None and self.values.maximum is not None

    def sizes_of(self, name: str) -> tuple[int, ...]:
        """Sizes of another argument; () where it is no tensor."""
        argument = self.arguments.get(name)
        return argument.sizes if isinstance(argument, TensorSpec) else ()

    def integer(self, name: str, default: int = 0) -> int:
        """Another argument that is a whole number; ``default`` where it is none or left out."""
        argument = self.arguments.get(name)
        return int(argument) if isinstance(argument, (int, float)) else default

    def flag(self, name: str) -> bool:
        return self.arguments.get(name) is True


#: Makes the values of an operand: of its sizes, or of sizes that expand to them, in any dtype that holds them.
Role: TypeAlias = Callable[[Operand, Stream], torch.Tensor]


def plain(operand: Operand, stream: Stream) -> torch.Tensor:
    """Values from the statistics alone, whatever the op does with them."""
    values = operand.values
    if operand.dtype == torch.bool and values.pattern:
        return patterned(operand.sizes, values.pattern, values.mean, values.n_distinct, stream)
    return in_order(operand, lambda values: synthesise(operand.n, operand.dtype, values, stream))


def in_order(operand: Operand, make: Callable[[Values], torch.Tensor]) -> torch.Tensor:
    """What ``make`` gives for the operand's statistics, 1-D, in its sizes, and sorted row by row where it was."""
    order = operand.values.order
    if not order or len(operand.sizes) < 2:
        return make(operand.values).reshape(operand.sizes)
    mixed = make(dataclasses.replace(operand.values, order="")).reshape(operand.sizes)
    return mixed.sort(-1, descending=order == "descending").values
