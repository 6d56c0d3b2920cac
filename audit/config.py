"""Configuration: ``rocm-audit.toml``, or ``[tool.rocm-audit]`` in ``pyproject.toml``, of the folder one works in.

What stands there takes the place of a command-line option's default; an option that is given has the last word.
"""

from __future__ import annotations

import difflib
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from audit.errors import UsageError

if sys.version_info >= (3, 11):
    import tomllib
else:  # the same reader, under the name that it had before it came to Python
    import tomli as tomllib

#: A file of somebody's whole configuration has some kilobytes.
MAX_BYTES = 1 << 20
OWN_FILE, SHARED_FILE = "rocm-audit.toml", "pyproject.toml"
#: Options of a command that a file may set, all under their names on the command line.
OPTIONS: Mapping[str, tuple[str, ...]] = {
    "run": (
        "device", "gpu", "steps", "mode", "values", "output", "format", "fail-on", "time-budget", "alternatives",
        "first-call-limit", "steady-limit",
    ),
    "gate": ("policy", "format", "output"),
    "dashboard": ("output", "cache"),
}  # fmt: skip


def read_toml(path: Path) -> dict[str, Any]:
    """Raises UsageError for a file that cannot be read, is too long, or is no TOML."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise UsageError(f"{path} has over {MAX_BYTES} bytes, and is no configuration", "bad-configuration")
        return dict(tomllib.loads(data.decode()))
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}", "bad-configuration") from error
    except (ValueError, RecursionError) as error:  # TOMLDecodeError and UnicodeDecodeError are ValueErrors
        raise UsageError(f"{path} is no TOML: {' '.join(str(error).split())[:200]}", "bad-configuration") from error


def check_keys(table: Mapping[str, Any], known: Sequence[str], where: str) -> None:
    """Raises UsageError for a key that is not known, with the nearest that is."""
    for key in table:
        if key not in known:
            near = difflib.get_close_matches(key, known, 1, 0.5)
            hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known)}"
            raise UsageError(f"{where} has an unknown key {key[:80]!r}; {hint}", "bad-configuration")


def find_options(folder: Path) -> tuple[str, dict[str, dict[str, str]]]:
    """Where the configuration of the folder stands, and its options by command, each as text. Empty: there is none."""
    own, shared = folder / OWN_FILE, folder / SHARED_FILE
    if _is_there(own):
        return str(own), _options(read_toml(own), str(own))
    if _is_there(shared):
        tool = read_toml(shared).get("tool", {})
        table = tool.get("rocm-audit") if isinstance(tool, dict) else None
        if table is not None:
            where = f"{shared} [tool.rocm-audit]"
            return where, _options(table, where)
    return "", {}


def _is_there(path: Path) -> bool:
    """Raises UsageError for what is there and no file: a link to none would pass for no configuration."""
    if not path.is_file() and os.path.lexists(path):
        raise UsageError(f"{path} is no file, or a link to none; it is to hold the configuration", "bad-configuration")
    return path.is_file()


def _options(table: Any, where: str) -> dict[str, dict[str, str]]:
    if not isinstance(table, dict):
        raise UsageError(f"{where} is no table", "bad-configuration")
    check_keys(table, tuple(OPTIONS), where)
    found: dict[str, dict[str, str]] = {}
    for command, options in table.items():
        if not isinstance(options, dict):
            raise UsageError(f"{where}: {command} is a table of options", "bad-configuration")
        check_keys(options, OPTIONS[command], f"{where}: {command}")
        found[command] = {name: _text(value, f"{where}: {command}.{name}") for name, value in options.items()}
    return found


def _text(value: Any, where: str) -> str:
    """As it would be typed: lists with commas."""
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return ",".join(value)
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise UsageError(f"{where} is a text, a number or a list of texts", "bad-configuration")
    return str(value)
