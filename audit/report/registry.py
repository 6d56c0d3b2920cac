"""The reporters, and the one way in which their files are written: whole or not at all."""

from __future__ import annotations

import contextlib
import importlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from audit.errors import UnfinishedError, UsageError
from audit.verdicts import Judgement


@dataclass(frozen=True)
class Reporter:
    """A format: the file it writes and the module whose ``render(judgement) -> str`` makes its text.

    The module is loaded on first use, so that a report in one format does not need the others' libraries.
    """

    file_name: str
    module: str

    def render(self, judgement: Judgement) -> str:
        return str(importlib.import_module(self.module).render(judgement))


REPORTERS: Mapping[str, Reporter] = {
    "html": Reporter("report.html", "audit.report.page"),
    "json": Reporter("summary.json", "audit.report.summary"),
    "csv": Reporter("cases.csv", "audit.report.spreadsheet"),
    "markdown": Reporter("report.md", "audit.report.markdown"),
    "junit": Reporter("junit.xml", "audit.report.junit"),
}


def write(judgement: Judgement, formats: Iterable[str], folder: Path, values: Path | None = None) -> list[Path]:
    """Writes one file per format into ``folder``, and ``repro/<key>.py`` for every finding; returns the reports' paths.

    ``values`` is the opset's safetensors file, from which the scripts take their inputs; without it, scripts that are
    there are kept, for they may hold the values. Raises UsageError for an unknown format, UnfinishedError where the
    folder cannot be written (what stood there is untouched).
    """
    wanted = list(dict.fromkeys(formats))
    for name in wanted:
        if name not in REPORTERS:
            raise UsageError(f"no report format {name!r}; there are {', '.join(REPORTERS)}", "unknown-format")
    from audit.report.repro import write_repros  # after the formats were checked: it is the costly part

    if (folder / "repro").is_symlink():
        raise UnfinishedError(
            f"{folder / 'repro'} is a symbolic link, through which nothing is written; remove it", "unwritable-output"
        )
    write_repros(judgement, folder / "repro", values)
    return [write_text(folder / REPORTERS[name].file_name, REPORTERS[name].render(judgement)) for name in wanted]


def write_text(path: Path, content: str) -> Path:
    """Puts ``content`` at ``path`` through a partial file beside it. Raises UnfinishedError where that fails."""
    partial = path.with_name(path.name + ".partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.unlink(missing_ok=True)  # a link under this name, in a folder from elsewhere, is not written through
        with partial.open("x", encoding="utf-8", errors="backslashreplace", newline="\n") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except OSError as error:
        with contextlib.suppress(OSError):  # the folder may be beyond repair; the first error is the one to tell
            partial.unlink(missing_ok=True)
        reason = error.strerror or str(error)
        raise UnfinishedError(
            f"cannot write {path}: {reason}; free space or choose another folder", "unwritable-output"
        ) from error
    return path
