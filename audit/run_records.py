"""The records of a run file, one class a line of it, and the run that they make. Data only: no torch, no opinion.

A case and its measurement are in ``audit.schema``; ``audit.store`` writes and reads the lines.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from audit.drift_records import Drift
from audit.schema import (
    FORMAT_VERSION,
    Case,
    Ceilings,
    DeviceInfo,
    DeviceTimes,
    Evidence,
    Measurement,
    NotAudited,
    Source,
)

# --- what was tried instead ------------------------------------------------------------------------------------


Layout: TypeAlias = Literal["contiguous", "channels_last"]


@dataclass(frozen=True)
class Change:
    """What is done differently from a case: all ``settings`` of torch in force, the ``layout`` of its inputs, or their
    ``dtype`` where that is half precision. None: as it was. See ``audit.changed_case``."""

    settings: tuple[tuple[str, bool | str], ...] | None = None
    layout: Layout | None = None
    dtype: Literal["float32"] | None = None


#: ``Trial.name`` of the case run again as it was, beside which its alternatives are seen.
UNCHANGED = "unchanged"


@dataclass(frozen=True)
class Trial:
    """One alternative to a case: its name in ``alternatives.csv``, and ``what`` it is in words: deterministic mode."""

    key: str
    name: str
    what: str
    change: Change


@dataclass(frozen=True)
class Trying:
    """Written and fsynced before the device is touched for an alternative."""

    key: str
    name: str


@dataclass(frozen=True)
class Alternative:
    """A trial and all that was seen of it. Its outputs were compared with the reference of the case itself."""

    trial: Trial
    measurement: Measurement


# --- a run -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PreflightCheck:
    """One thing looked at before any case: ``ok``, ``warning`` or ``failed``, with a sentence and a remedy."""

    name: str
    result: Literal["ok", "warning", "failed"]
    message: str
    remedy: str = ""


@dataclass(frozen=True)
class RunHeader:
    """First line of a run file. ``n_cases`` cases follow it; ``settings`` are the options that steer the replay.

    ``elsewhere`` came with the trace.
    """

    evidence: Evidence
    source: Source
    device: DeviceInfo
    environment: Mapping[str, str]
    settings: Mapping[str, str]
    created: str
    audit_version: str
    n_cases: int
    n_recorded: int
    not_audited: tuple[NotAudited, ...] = ()
    preflight: tuple[PreflightCheck, ...] = ()
    notes: tuple[str, ...] = ()
    ceilings: Ceilings | None = None
    elsewhere: DeviceTimes | None = None
    format_version: int = FORMAT_VERSION


@dataclass(frozen=True)
class Started:
    """Written and fsynced before the device is touched for ``key``."""

    key: str


@dataclass(frozen=True)
class RunEnd:
    """Written when the audit ended by itself. ``complete`` false: budget spent or device lost, in ``reason``.

    ``given_back`` are keys of cases that had just been started when it was interrupted: nothing is known of them.
    """

    complete: bool
    reason: str = ""
    given_back: tuple[str, ...] = ()


@dataclass(frozen=True)
class Run:
    """A run file, read. A case with neither measurement nor start was left out (budget, device lost, killed).

    ``alternatives`` are by key of their case, in the order tried; ``trying`` were begun and have not ended.
    ``drift`` is the whole step on the device beside the CPU, where that was asked for.
    """

    header: RunHeader
    cases: tuple[Case, ...]
    measurements: Mapping[str, Measurement]
    started: frozenset[str] = frozenset()
    end: RunEnd | None = None
    warnings: tuple[str, ...] = ()
    alternatives: Mapping[str, tuple[Alternative, ...]] = field(default_factory=dict)
    trying: frozenset[Trying] = frozenset()
    drift: Drift | None = None
