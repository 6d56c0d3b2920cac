"""When runs were made, and which came first: by their dates where these can be, else by the versions of what ran.

A clock may be wrong: a board without a battery says 1970, a machine without network time next year.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from audit.dashboard.rows import Clock

#: Before this day there was no rocm-audit.
FIRST_DAY = datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone.utc)
#: Clocks and time zones differ by so much without being wrong.
TOLERANCE = datetime.timedelta(days=1)

VersionKey: TypeAlias = "tuple[tuple[int, int | str], ...]"


def read_clock(created: str, now: datetime.datetime) -> tuple[Clock, datetime.datetime | None]:
    """What is to be said of a date as a run has it, and the date where it can be. Without a zone it is UTC."""
    try:
        made = datetime.datetime.fromisoformat(created.replace("Z", "+00:00"))
        made = made if made.tzinfo is not None else made.replace(tzinfo=datetime.timezone.utc)
        made = made.astimezone(datetime.timezone.utc)
    except (ValueError, OverflowError):
        return "unread", None
    if made < FIRST_DAY:
        return "past", None
    return ("future", None) if made > now + TOLERANCE else ("ok", made)


def version_key(version: str) -> VersionKey:
    """Orders versions: ``2.9.1`` before ``2.13.0``, ``2.14.0.dev20260712`` and ``2.14.0rc1`` before ``2.14.0``.

    What stands behind a plus (of a wheel) orders what is equal before it.
    """
    release, _, local = version.lower().partition("+")
    # The end (1) is above a word, which stands for a time before the release, and below a number or what is local.
    ranks = ((release, 0, 2), (local, 3, 4))
    key: list[tuple[int, int | str]] = []
    for part, of_word, of_number in ranks:
        words = re.findall(r"\d+|[a-z]+", part)
        key += [(of_number, int(word[:18])) if word.isdigit() else (of_word, word) for word in words]
        key.append((1, 0))
    return tuple(key)


@dataclass(frozen=True)
class Dated:
    """A run as far as its order goes. ``series`` are runs among which versions tell; ``label`` breaks ties."""

    sha256: str
    series: str
    made: datetime.datetime | None
    versions: tuple[VersionKey, ...]
    label: str


def in_order(runs: Iterable[Dated]) -> list[Dated]:
    """Oldest first. A run without a date stands behind the newest of its series that has no newer versions."""
    runs = list(runs)
    latest = _latest(runs)
    return sorted(runs, key=lambda run: (_place(run, latest), run.made is None, run.versions, run.label, run.sha256))


_Latest: TypeAlias = "Mapping[str, list[tuple[tuple[VersionKey, ...], datetime.datetime]]]"
_NEVER = datetime.datetime.min.replace(tzinfo=datetime.timezone.utc)


def _latest(runs: Iterable[Dated]) -> _Latest:
    """By series, each with its versions and the newest date of a run that has these or older ones."""
    dates: dict[str, dict[tuple[VersionKey, ...], datetime.datetime]] = {}
    for run in runs:
        if run.made is not None:
            of_series = dates.setdefault(run.series, {})
            of_series[run.versions] = max(run.made, of_series.get(run.versions, _NEVER))
    found: dict[str, list[tuple[tuple[VersionKey, ...], datetime.datetime]]] = {}
    for series, by_versions in dates.items():
        newest, found[series] = _NEVER, []
        for versions, made in sorted(by_versions.items()):
            newest = max(newest, made)
            found[series].append((versions, newest))
    return found


def _place(run: Dated, latest: _Latest) -> datetime.datetime:
    if run.made is not None:
        return run.made
    older = [made for versions, made in latest.get(run.series, ()) if versions <= run.versions]
    return older[-1] if older else _NEVER
