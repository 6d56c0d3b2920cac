"""Keeps healthy measurements, so that a second run on the same stack takes seconds: ``~/.cache/rocm-audit/results``.

A folder for each stack (device, versions, variables, options of the replay, this code, this machine), a small JSON file
for each case and its inputs. What raised, crashed, hung, ran out of memory or has no reference is measured every time:
it may have been a bad day. What cannot be read or written is measured, and nothing is lost.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import platform
import shutil
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import audit
from audit import strict_json
from audit.ceilings_cache import cache_folder
from audit.codec import decode, encode
from audit.errors import AuditError
from audit.opset.tensors import TensorFileError, tensors_in
from audit.schema import Case, DeviceInfo, Measurement
from audit.validity import check_amounts

if TYPE_CHECKING:
    from audit.replay.engine import ReplaySettings

#: A measurement has some 2 KB, one of a fused optimizer over 1,000 parameters a megabyte.
_MAX_BYTES = 1 << 24
#: An older measurement is made anew: drivers, clocks and firmware change without a version that we see.
MAX_AGE_S = 7 * 86_400.0
#: A folder or ``off``; for runners whose home does not stay.
VARIABLE = "AUDIT_CACHE"
#: Options that steer how long or where, not what is measured; the values have a digest of their own.
_WITHOUT_WEIGHT = ("values", "alternatives_limit_s", "n_alternatives_cases", "lookahead_bytes", "confirm_hangs")
_NOTE = "measured on this stack before and kept"


class ResultsCache:
    """Measurements of one stack by case. ``values`` is the file of stored inputs of the trace that is replayed."""

    def __init__(self, folder: Path, values: Path | None) -> None:
        self._folder = folder
        self._digests = _value_digests(values)

    def find(self, case: Case) -> Measurement | None:
        """The measurement kept for the case and its inputs, with a note that says so and when it was made."""
        path = self._path(case)
        try:
            facts = path.stat()
            if facts.st_size > _MAX_BYTES or not 0 <= time.time() - facts.st_mtime <= MAX_AGE_S:
                return None
            content = strict_json.loads(path.read_bytes())
            measurement = decode(Measurement, content["measurement"])
            check_amounts(measurement)
            if measurement.key != case.key or not is_kept(measurement):
                return None
            note = f"{_NOTE}: {str(content['made'])[:25]}"
        except (OSError, ValueError, TypeError, KeyError, RecursionError, AuditError):
            return None
        return dataclasses.replace(measurement, notes=(*measurement.notes, note))

    def keep(self, case: Case, measurement: Measurement) -> None:
        """Keeps a healthy measurement."""
        if not is_kept(measurement):
            return
        path = self._path(case)
        scratch = path.with_suffix(f".{os.getpid()}")
        made = time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime())
        with suppress(OSError, ValueError):
            path.parent.mkdir(parents=True, exist_ok=True)
            scratch.write_text(strict_json.dumps({"made": made, "measurement": encode(measurement)}), encoding="utf-8")
            scratch.replace(path)

    def _path(self, case: Case) -> Path:
        inputs = {str(position): encode(values) for position, values in sorted(case.values.items())}
        identity = [encode(dataclasses.replace(case, n_calls=1, n_recomputed=0, modules=(), sources=(), values={}))]
        return self._folder / f"{case.key}-{_digest([*identity, inputs, self._digests.get(case.key, '')])}.json"


def open_cache(info: DeviceInfo, environment: Mapping[str, str], settings: ReplaySettings) -> ResultsCache | None:
    """The cache of this stack; None where it is off, and with a fault file, whose results are not of the stack."""
    base = os.environ.get(VARIABLE, "")
    if base == "off" or settings.device.startswith("sim:"):
        return None
    home = cache_folder()
    if not os.path.isabs(base) and home is None:
        return None
    folder = Path(base) if os.path.isabs(base) or home is None else home / "results"
    _forget_old(folder)
    return ResultsCache(folder / _stack(info, environment, settings), settings.values)


def is_kept(measurement: Measurement) -> bool:
    """Whether a measurement is of the stack: both sides answered, and the device was sound before and after."""
    sound = measurement.canary != "failed" and not measurement.guards_broken and not measurement.n_damaged_inputs
    return measurement.device.kind == "ok" and measurement.reference.kind == "ok" and sound


def _stack(info: DeviceInfo, environment: Mapping[str, str], settings: ReplaySettings) -> str:
    options = {
        field.name: str(getattr(settings, field.name))
        for field in dataclasses.fields(settings)
        if field.name not in _WITHOUT_WEIGHT
    }
    device = [info.backend, info.name, info.arch, sorted(info.properties.items())]
    return _digest([device, sorted(environment.items()), options, platform.node(), os.cpu_count(), _own_code()])


def _own_code() -> list[list[Any]]:
    """Sizes and times of this package's files: its version stays the same while somebody works on it."""
    home = Path(audit.__file__).parent
    return [
        [str(path.relative_to(home)), facts.st_size, facts.st_mtime_ns]
        for path in sorted(home.rglob("*.py"))
        if (facts := path.stat())
    ]


def _value_digests(values: Path | None) -> dict[str, str]:
    """By key of the case, over the bytes of its stored inputs."""
    if values is None:
        return {}
    found: dict[str, hashlib._Hash] = {}
    try:
        with values.open("rb") as file:
            tensors = tensors_in(file, 0, values.stat().st_size)
            for name in sorted(tensors):
                tensor = tensors[name]
                digest = found.setdefault(name.rpartition("/")[0], hashlib.sha256())
                digest.update(f"{name} {tensor.dtype} {tensor.n_elements}\n".encode())
                file.seek(tensor.start)
                for start in range(tensor.start, tensor.end, 1 << 20):
                    digest.update(file.read(min(1 << 20, tensor.end - start)))
    except (OSError, TensorFileError):
        return {}
    return {key: digest.hexdigest() for key, digest in found.items()}


def _digest(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()[:16]


def _forget_old(folder: Path) -> None:
    """Removes stacks that nothing was kept for lately, by the age of their folder."""
    with suppress(OSError):
        for stack in folder.iterdir():
            if len(stack.name) == 16 and stack.is_dir() and time.time() - stack.stat().st_mtime > MAX_AGE_S:
                shutil.rmtree(stack, ignore_errors=True)
