"""Keeps the measured ceilings of a device, so that an audit does not measure them again: ``~/.cache/rocm-audit``.

One small JSON file for each device, torch and runtime. What cannot be read or written is measured, and nothing is lost.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from audit.codec import decode, encode
from audit.errors import AuditError
from audit.schema import Ceilings, DeviceInfo
from audit.validity import check_amounts

#: A file of ours is some 600 bytes.
_MAX_BYTES = 1 << 16


def cached_ceilings(
    info: DeviceInfo, environment: Mapping[str, str], measure: Callable[[], Ceilings | None], folder: Path | None = None
) -> Ceilings | None:
    """From the cache, else from ``measure``, whose answer is kept."""
    folder = folder or cache_folder()
    if folder is None:
        return measure()
    path = folder / f"ceilings-{_key(info, environment)}.json"
    kept = _read(path)
    if kept is not None:
        return kept
    measured = measure()
    if measured is not None:
        _write(path, measured)
    return measured


def cache_folder() -> Path | None:
    """Where this user's caches lie; None for a user without a home, as a container may have."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    try:
        return (Path(base) if os.path.isabs(base) else Path.home() / ".cache") / "rocm-audit"
    except RuntimeError:
        return None


def _key(info: DeviceInfo, environment: Mapping[str, str]) -> str:
    """Versions and the variables that steer kernels make other ceilings."""
    shown = [info.backend, info.name, info.arch, sorted(info.properties.items()), sorted(environment.items())]
    text = json.dumps(shown)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _read(path: Path) -> Ceilings | None:
    try:
        if path.stat().st_size > _MAX_BYTES:
            return None
        ceilings = decode(Ceilings, json.loads(path.read_text(encoding="utf-8")))
        check_amounts(ceilings)
        return ceilings
    except (OSError, ValueError, TypeError, KeyError, RecursionError, AuditError):
        return None


def _write(path: Path, ceilings: Ceilings) -> None:
    scratch = path.with_suffix(f".{os.getpid()}")
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        scratch.write_text(json.dumps(encode(ceilings)), encoding="utf-8")
        scratch.replace(path)
