"""Cases as short as a test needs them, and audits of them on the simulated device with a fault file."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from audit.codec import case_key, contiguous_strides
from audit.replay.engine import DeviceLost, Event, ReplaySettings
from audit.replay.inputs import reach
from audit.replay.pool import Pool
from audit.run_records import Started
from audit.schema import Arg, Case, Measurement, Phase, TensorSpec, Values


class Build:
    """Makes specs and cases; every tensor gets a storage of its own unless told otherwise."""

    @staticmethod
    def tensor(sizes: Sequence[int], dtype: str = "float32", storage: int = 0, **given: Any) -> TensorSpec:
        strides = tuple(given.pop("strides", contiguous_strides(tuple(sizes))))
        offset = given.pop("offset", 0)
        extent = given.pop("extent", offset + reach(tuple(sizes), strides))
        return TensorSpec(tuple(sizes), strides, dtype, offset, extent, storage, **given)

    @staticmethod
    def case(
        op: str,
        *args: Arg,
        phase: Phase = "forward",
        grads: tuple[TensorSpec | None, ...] | None = None,
        values: Mapping[int, Values] | None = None,
        **kwargs: Arg,
    ) -> Case:
        named = tuple(kwargs.items())
        return Case(case_key(op, args, named, phase, grads), op, args, named, phase, grads, values=dict(values or {}))


@dataclass
class Replayed:
    """The events of one audit, in order and by case."""

    events: list[Event] = field(default_factory=list)

    @property
    def started(self) -> list[str]:
        return [event.key for event in self.events if isinstance(event, Started)]

    @property
    def lost(self) -> DeviceLost | None:
        return next((event for event in self.events if isinstance(event, DeviceLost)), None)

    def of(self, case: Case) -> Measurement:
        [found] = [e for e in self.events if isinstance(e, Measurement) and e.key == case.key]
        return found


def audit(cases: Sequence[Case], **settings: Any) -> Replayed:
    """Replays ``cases`` with small limits; ``settings`` as in ReplaySettings."""
    small = {"first_call_limit_s": 60.0, "steady_limit_s": 30.0, "timing_budget_s": 0.002, **settings}
    with Pool(ReplaySettings(**small)) as pool:
        return Replayed(list(pool.replay(cases)))


@pytest.fixture(scope="session")
def build() -> Build:
    return Build()


@pytest.fixture(scope="session")
def fault_file(tmp_path_factory: pytest.TempPathFactory, simulated_device: None) -> Callable[[str], str]:
    """Writes a fault file and gives the device name for it."""

    def write(source: str) -> str:
        path = tmp_path_factory.mktemp("faults") / "faults.py"
        path.write_text(textwrap.dedent(source))
        return f"sim:{path}"

    return write


@pytest.fixture(scope="session")
def replay() -> Callable[..., Replayed]:
    return audit
