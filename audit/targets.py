"""What the user named: a script, a module, a config, an exported program, an ``.audit`` file; told apart by name.

What another tool recorded is told apart by how it begins.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from audit.errors import UsageError
from audit.importers.registry import IMPORTERS, Importer, find_importer
from audit.opset.ranks import rank_files
from audit.ordinary_file import read_ordinary

TargetKind: TypeAlias = Literal["script", "module", "opset", "config", "exported", "recording"]
#: The largest published config.json has some 200 KB, most of it names of classes.
MAX_CONFIG_BYTES = 4 << 20


@dataclass(frozen=True)
class InputShape:
    """The inputs to make where the target brings none. None: what the target itself says, and a batch of 1."""

    batch: int | None = None
    seq: int | None = None
    dtype: str | None = None


@dataclass(frozen=True)
class Target:
    """``path`` of a file; ``name`` of a module for ``-m``; ``arguments`` are the program's own; the ``importer`` of a
    recording."""

    kind: TargetKind
    name: str
    path: Path = Path()
    arguments: tuple[str, ...] = ()
    importer: Importer | None = None

    @property
    def stem(self) -> str:
        """What outputs are named after: a config is named after its folder, since it is always called the same."""
        if self.kind == "config" and self.path.name == "config.json":
            return self.path.resolve().parent.name
        return Path(self.name.removesuffix(".gz")).stem


def find_target(name: str, is_module: bool, arguments: tuple[str, ...]) -> Target:
    """Raises UsageError for a missing file and for what this version cannot audit, with what to do instead."""
    if is_module:
        return Target("module", name, arguments=arguments)
    path = Path(name)
    try:
        path.stat()
    except PermissionError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}", "unreadable-program") from error
    except OSError:
        pass  # said below, with what to give instead
    if path.suffix == ".audit":
        if not path.exists() and not rank_files(path):
            raise UsageError(f"there is no file {path}; record one with `rocm-audit trace`", "no-target")
        return Target("opset", path.name, path, _none(arguments, path, "a recorded trace"))
    if path.is_dir() and (path / "config.json").is_file():
        path = path / "config.json"
    if not path.exists():
        raise UsageError(
            f"there is no file {path}; give a Python script, a config.json, a .pt2 or .audit file, or -m MODULE",
            "no-target",
        )
    if path.is_dir():
        raise UsageError(
            f"{path} is a folder; give a Python script, or use `rocm-audit report {path}` for a run", "no-target"
        )
    if not path.is_file():
        raise UsageError(f"{path} is no ordinary file, and cannot be read twice; give a file", "no-target")
    if path.suffix == ".pt2":
        return Target("exported", path.name, path, _none(arguments, path, "an exported program"))
    if path.suffix == ".json" and _is_config(path):
        return Target("config", path.name, path, _none(arguments, path, "a model's config"))
    if path.suffix != ".py" and (importer := find_importer(path)) is not None:
        return Target("recording", path.name, path, _none(arguments, path, importer.name), importer)
    if path.suffix in (".json", ".gz"):
        raise UsageError(
            f"{path} is no Hugging Face config (it has no model_type){_nor_a_recording()}; give a script, a "
            "config.json, a .pt2 or an .audit file",
            "unsupported-target",
        )
    return Target("script", path.name, path, arguments)


def _nor_a_recording() -> str:
    return "".join(f", nor {importer.name}" for importer in IMPORTERS)


def _none(arguments: tuple[str, ...], path: Path, what: str) -> tuple[str, ...]:
    if arguments:
        raise UsageError(f"{path} is {what} and takes no arguments", "bad-arguments")
    return ()


def _is_config(path: Path) -> bool:
    """Whether a JSON file is a model's config; a file called config.json is, so that it is told what it lacks."""
    if path.name == "config.json":
        return True
    try:
        content = json.loads(read_ordinary(path, MAX_CONFIG_BYTES))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(content, dict) and "model_type" in content
