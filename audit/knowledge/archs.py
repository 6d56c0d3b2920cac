"""Which archs have which capability, and which torch wheels contain code for which archs."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from audit.knowledge.tables import matches, rows


@dataclass(frozen=True)
class Capability:
    """An arch (or glob) that has a capability, from ``min_rocm`` on where that is set."""

    capability: str
    arch: str
    min_rocm: tuple[int, ...]
    note: str
    source: str


@dataclass(frozen=True)
class Release:
    """A torch release on ROCm. ``archs`` is empty where no list was found; ``basis``: collected or inferred."""

    torch_version: str
    rocm_versions: str
    archs: tuple[str, ...]
    basis: str
    index: str
    source: str


def version_tuple(text: str) -> tuple[int, ...]:
    """The leading dotted numbers of a version: ``7.13.60800-abc`` -> ``(7, 13, 60800)``, ``2.13.0+rocm7.2`` ->
    ``(2, 13, 0)``. ROCm went from 7.2 to 7.13 and then to 10.1, so only tuples compare right. Empty where none."""
    match = re.match(r"\s*v?(\d+(?:\.\d+)*)", text)
    return tuple(int(part) for part in match[1].split(".")) if match else ()


@cache
def load_capabilities() -> tuple[Capability, ...]:
    return tuple(
        Capability(row["capability"], row["arch"], version_tuple(row["min_rocm"]), row["note"], row["source"])
        for row in rows("arch_lists.csv")
    )


def has_capability(capability: str, arch: str, rocm: str = "") -> bool:
    """True where ``arch`` is listed. ``rocm`` is the version of the build; unknown versions pass."""
    have = version_tuple(rocm)
    return any(
        entry.capability == capability and matches(arch, (entry.arch,)) and (not have or have >= entry.min_rocm)
        for entry in load_capabilities()
    )


@cache
def load_releases() -> tuple[Release, ...]:
    """Oldest first."""
    return tuple(
        Release(
            row["torch_version"],
            row["rocm_versions"],
            tuple(row["archs"].split(";")) if row["archs"] else (),
            row["archs_basis"],
            row["index"],
            row["source"],
        )
        for row in rows("releases.csv")
    )


def newest_release_with_archs() -> Release:
    """The newest release whose arch list is known."""
    return [release for release in load_releases() if release.archs][-1]
