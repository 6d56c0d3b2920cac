"""What a detector is: it sits in the worker beside one case and returns evidence, never an opinion."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from audit.device.protocol import Device
from audit.schema import Path


@dataclass(frozen=True)
class OpCall:
    """A call of an op that is ready to be made: ``op`` is its qualified name, arguments are by name, on the device."""

    op: str
    arguments: Mapping[str, Any]
    make: Callable[[], object]

    def __call__(self) -> object:
        return self.make()


@dataclass
class Evidence:
    """What the detectors saw beside one case; each fills in its own field."""

    stderr: str = ""
    warnings: tuple[str, ...] = ()
    path: Path = field(default_factory=Path)
    refusals: tuple[str, ...] = ()
    peak_bytes: int | None = None


class Detector(Protocol):
    """Looks at one case after another: ``begin``, any number of calls of the op, ``end``."""

    def begin(self, device: Device) -> None:
        """Before the device is touched for the case."""
        ...

    def watch(self, call: OpCall) -> None:
        """Given one extra, untimed call of the op with fresh inputs; a detector that needs none returns at once."""
        ...

    def end(self, device: Device, evidence: Evidence) -> None:
        """After the last call; must not touch the device through ops."""
        ...
