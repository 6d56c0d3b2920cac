"""What the user named: a script, a module, an ``.audit`` file. Told apart by name and existence, without opening it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from audit.errors import UsageError
from audit.opset.ranks import rank_files


@dataclass(frozen=True)
class Target:
    """``path`` of a script or opset; ``module`` for ``-m``; ``arguments`` are the program's own."""

    kind: Literal["script", "module", "opset"]
    name: str
    path: Path = Path()
    arguments: tuple[str, ...] = ()


def find_target(name: str, is_module: bool, arguments: tuple[str, ...]) -> Target:
    """Raises UsageError for a missing file and for what this version cannot audit, with what to do instead."""
    if is_module:
        return Target("module", name, arguments=arguments)
    path = Path(name)
    if path.suffix == ".audit":
        if not path.exists() and not rank_files(path):
            raise UsageError(f"there is no file {path}; record one with `rocm-audit trace`", "no-target")
        if arguments:
            raise UsageError(f"{path} is a recorded trace and takes no arguments", "bad-arguments")
        return Target("opset", path.name, path)
    if not path.exists():
        raise UsageError(
            f"there is no file {path}; give a Python script, an .audit file, or -m package.module", "no-target"
        )
    if path.is_dir():
        raise UsageError(
            f"{path} is a folder; give a Python script, or use `rocm-audit report {path}` for a run", "no-target"
        )
    if path.suffix == ".json" or path.name.endswith(".json.gz"):
        raise UsageError(
            f"{path}: profiler traces and config.json files are not read by this version; "
            "give a script or an .audit file",
            "unsupported-target",
        )
    return Target("script", path.name, path, arguments)
