"""What the session asks of a replay: cases in, events out, in order. ``Pool`` is the local one; others may follow."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeAlias

from audit.run_records import Alternative, Started, Trial, Trying
from audit.schema import Case, Ceilings, DeviceInfo, Measurement


@dataclass(frozen=True)
class ReplaySettings:
    """Options that steer a replay; the run header lists them.

    ``device`` names devices for ``audit.device.places.places``: ``cuda`` (all that are visible), ``cuda:1``,
    ``sim:faults.py``. ``values`` is the safetensors file with stored inputs. Limits are wall-clock seconds without a
    sign of life: ``first_call_limit_s`` covers input copies and the first call in a process (kernel search, JIT),
    ``steady_limit_s`` each later stage, ``reference_limit_s`` all CPU work on one case, ``start_limit_s`` the start of
    a child and its canary op.
    ``n_device_threads`` and ``n_reference_threads`` bound the
    CPU threads of the children for large cases (None: all cores, one for a simulated device).
    ``n_repeats``: how often each case runs on the device to be compared bitwise, at least twice.
    ``timing_budget_s`` bounds the timed runs of one case. ``reference_memory_bytes`` caps the address space of the
    reference child (None: no cap). ``lookahead_bytes``: cases with larger operands are not prepared while the device
    is busy with another. After the replay, alternatives are tried for ``alternatives_limit_s`` and at most
    ``n_alternatives_cases`` cases with a finding.
    """

    device: str = "sim"
    values: Path | None = None
    first_call_limit_s: float = 180.0
    steady_limit_s: float = 60.0
    reference_limit_s: float = 600.0
    start_limit_s: float = 180.0
    n_repeats: int = 2
    timing_budget_s: float = 0.05
    confirm_hangs: bool = False
    seed: int = 0
    fill_bytes: tuple[int, int] = (0x5B, 0xA4)
    n_device_threads: int | None = None
    n_reference_threads: int | None = None
    reference_memory_bytes: int | None = None
    lookahead_bytes: int = 1 << 30
    alternatives_limit_s: float = 60.0
    n_alternatives_cases: int = 20


@dataclass(frozen=True)
class DeviceLost:
    """The canary op does not pass in a fresh child (or none can be started): nothing more can be replayed here."""

    reason: str


Event: TypeAlias = "Started | Measurement | DeviceLost"
TrialEvent: TypeAlias = "Trying | Alternative | DeviceLost"

#: A case and what to try in its place, in this order.
Trials: TypeAlias = "tuple[Case, tuple[Trial, ...]]"


class Engine(Protocol):
    """Replays cases. Use it as a context manager: leaving it ends its processes."""

    def replay(self, cases: Sequence[Case], enough: Callable[[], bool] = ...) -> Iterator[Event]:
        """A Started and a Measurement for each case, in order where there is one device; the last may be DeviceLost.

        Several devices take from ``cases`` in turn, and one that is lost leaves its share to the others. ``enough`` is
        asked before each case; once it says True, the cases that are running end and no other is started.
        The device is told of a case only when the iterator is advanced past its ``Started``, so a caller that writes
        the event to disk before asking for the next one never loses track of a case that takes the machine down.
        A case whose reference forbids the device gets a Measurement and no Started.
        """
        ...

    def try_instead(self, plan: Iterable[Trials], enough: Callable[[], bool] = ...) -> Iterator[TrialEvent]:
        """A Trying and an Alternative for each trial of cases that were replayed before; the last may be DeviceLost.

        On one device, in order. A case that the reference does not take a second time is passed over. ``enough`` is
        asked before each trial. Nothing follows an alternative that hung: the second hang may need a power-off.
        """
        ...

    def device_info(self) -> DeviceInfo:
        """The device replayed on, as its child sees it; ``n_devices`` in its properties where there are several.

        Raises UnfinishedError where no child can open it.
        """
        ...

    def ceilings(self) -> Ceilings | None:
        """Measures what the device can do at most, in seconds; None where times mean nothing, or it fails."""
        ...

    def close(self) -> None: ...
