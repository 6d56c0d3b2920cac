"""The map from pseudonyms to names: a file that stays where the trace was made."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from audit import strict_json
from audit.errors import UsageError
from audit.opset.file import replacing
from audit.ordinary_file import read_ordinary
from audit.pseudonyms import restored, run_with_texts
from audit.run_records import Run
from audit.schema import FORMAT_VERSION

#: Names of a model of 100,000 modules and lines.
_MAX_BYTES = 1 << 26


@dataclass(frozen=True)
class NameMap:
    """``id`` is that of the private trace, in its ``Source.private``; ``names`` are by pseudonym."""

    id: str
    names: Mapping[str, str]


def map_path(path: Path) -> Path:
    """Where the map of a private ``m.audit``, or of a run folder, lies: beside it, never in it."""
    return path.with_name(f"{path.stem if path.suffix == '.audit' else path.name}.private-map.json")


def new_map_path(path: Path, force: bool) -> Path:
    """The same, where no map is there that would be lost. Raises UsageError."""
    names = map_path(path)
    if names.exists() and not force:
        raise UsageError(f"{names} exists, and may be all that knows the names of a trace; use --force", "exists")
    return names


def write_map(path: Path, name_map: NameMap) -> None:
    """Writes it for its owner alone (mode 0600). Raises UnfinishedError."""
    content = {"format_version": FORMAT_VERSION, "id": name_map.id, "names": dict(name_map.names)}
    with replacing(path, mode=0o600) as file:
        file.write((json.dumps(json.loads(strict_json.dumps(content)), indent=1) + "\n").encode())


def read_map(path: Path) -> NameMap:
    """Raises UsageError for a missing file, and for one that is no map."""
    try:
        content = strict_json.loads(read_ordinary(path, _MAX_BYTES))
    except OSError as error:
        raise UsageError(f"cannot read the names {path}: {error.strerror}", "not-a-name-map") from error
    except ValueError as error:
        raise UsageError(f"{path} is no map of names: {error}", "not-a-name-map") from error
    names = content.get("names") if isinstance(content, dict) else None
    if not isinstance(names, dict) or not isinstance(content.get("id"), str):
        raise UsageError(f"{path} is no map of names: it has no id, or no names", "not-a-name-map")
    return NameMap(content["id"], {name: str(real) for name, real in names.items()})


def with_names(run: Run, maps: Sequence[NameMap]) -> Run:
    """The run with the names that the maps restore. Raises UsageError where a map is that of another trace."""
    ids = run.header.source.private
    for name_map in maps:
        if name_map.id not in ids:
            of = f"it is of the private traces {', '.join(ids)}" if ids else "it has its names"
            raise UsageError(f"the map {name_map.id} is not one of this run's: {of}", "other-names")
    names = {name_map.id: name_map.names for name_map in maps}
    return run_with_texts(run, lambda text: restored(text, names, ids[0] if len(ids) == 1 else None))
