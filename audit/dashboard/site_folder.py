"""The folder of a site: files go in whole, unchanged ones keep their bytes, stale ones go last.

``rocm-audit-site.json`` says that the folder is ours and which files are. What is being written is noted beside it
first, so that a build which was interrupted leaves a readable site, and the next one knows all of it.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import os
import re
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from audit import strict_json
from audit.dashboard.site_file import SiteFile
from audit.errors import UnfinishedError, UsageError

MANIFEST, JOURNAL = "rocm-audit-site.json", "rocm-audit-site.partial"
SITE_FORMAT_VERSION = 1
_MAX_BYTES = 1 << 28
#: The names that we give; a manifest from elsewhere may not name others.
_PATH = re.compile(r"[a-z0-9][a-z0-9._-]*(/[a-z0-9][a-z0-9._-]*){0,3}")


@dataclass(frozen=True)
class Kept:
    """A file of the last build: what it was made of, its size in bytes, the digest of its bytes."""

    depends: str
    n_bytes: int
    sha256: str


@dataclass(frozen=True)
class Written:
    """How many files the site has, how many of them were written anew, how many others were removed."""

    n_files: int
    n_written: int
    n_removed: int
    n_bytes: int


class SiteFolder:
    """Takes the files of one build. ``maker`` is a digest of the code and templates that make them."""

    def __init__(self, folder: Path, maker: str) -> None:
        self._folder = folder
        self._maker = maker
        old_maker, self._old = _read_manifest(folder)
        self._is_same_maker = old_maker == maker
        self._noted = _read_journal(folder)
        self._found: dict[str, Kept] = {}
        self._n_written = 0

    def write(self, files: Iterable[SiteFile]) -> Written:
        """Brings the folder to exactly these files. Raises UnfinishedError where it cannot be written."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with (self._folder / JOURNAL).open("a", encoding="ascii") as journal:
                for file in files:
                    self._take(file, journal)
            n_removed = self._remove_stale()
            self._write_manifest()
            (self._folder / JOURNAL).unlink()
        except OSError as error:
            raise UnfinishedError(
                f"cannot write the site {self._folder}: {error.strerror or error}; free space or choose another "
                "folder; the pages that are there can be read",
                "unwritable-output",
            ) from error
        return Written(len(self._found), self._n_written, n_removed, sum(kept.n_bytes for kept in self._found.values()))

    def _take(self, file: SiteFile, journal: TextIO) -> None:
        assert _PATH.fullmatch(file.path), f"a path of our own making: {file.path!r}"
        assert file.path not in self._found, f"one file of a path: {file.path!r}"
        path = self._folder / file.path
        old = self._old.get(file.path) if file.path not in self._noted else None
        is_same = old is not None and self._is_same_maker and old.depends == _short(file.depends)
        if old is not None and is_same and _size(path) == old.n_bytes:
            self._found[file.path] = old
            return
        journal.write(f"{file.path}\n")
        journal.flush()
        self._make_folder(path.parent)
        partial = path.with_name(f"{path.name}.partial")
        try:
            n_bytes, sha256 = _put(partial, file)
            self._found[file.path] = Kept(_short(file.depends), n_bytes, sha256)
            if old is not None and old.sha256 == sha256 and _size(path) == n_bytes:
                return  # a new maker made the same
            os.replace(partial, path)
            self._n_written += 1
        finally:
            partial.unlink(missing_ok=True)

    def _make_folder(self, folder: Path) -> None:
        if self._leads_out(folder / "x"):
            raise OSError(f"{folder} is a symbolic link")
        folder.mkdir(parents=True, exist_ok=True)

    def _leads_out(self, path: Path) -> bool:
        """Whether a link lies in the place of one of our folders."""
        parents = itertools.takewhile(lambda parent: parent != self._folder, path.parents)
        return any(parent.is_symlink() for parent in parents)

    def _remove_stale(self) -> int:
        n_removed = 0
        folders = set()
        for name in {*self._old, *self._noted} - self._found.keys():
            path = self._folder / name
            if self._leads_out(path):
                continue
            for stale in (path, path.with_name(f"{path.name}.partial")):
                if stale.is_file() or stale.is_symlink():
                    stale.unlink()
                    n_removed += stale == path
            folders.add(path.parent)
        for folder in folders - {self._folder}:
            with contextlib.suppress(OSError):
                folder.rmdir()  # only where it is empty
        return n_removed

    def _write_manifest(self) -> None:
        entries = {name: [kept.depends, kept.n_bytes, kept.sha256] for name, kept in sorted(self._found.items())}
        content = {"format_version": SITE_FORMAT_VERSION, "made_by": "rocm-audit dashboard", "maker": self._maker}
        text = json.dumps({**content, "files": entries}, indent=0) + "\n"
        path = self._folder / MANIFEST
        if _size(path) == len(text) and path.read_text(encoding="ascii") == text:
            return
        partial = path.with_name(f"{MANIFEST}.partial")
        with partial.open("w", encoding="ascii") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)


def check_folder(folder: Path, force: bool) -> None:
    """Raises UsageError where something else than a site of ours is there, and not ``force``."""
    try:
        if not folder.exists() and not folder.is_symlink():
            return
        if not folder.is_dir():
            raise UsageError(f"{folder} is there and no folder; choose another with -o", "exists")
        is_ours = (folder / MANIFEST).is_file() or (folder / JOURNAL).is_file() or not any(folder.iterdir())
    except OSError as error:
        raise UsageError(
            f"cannot read {folder}: {error.strerror}; choose another with -o", "unwritable-output"
        ) from error
    if not is_ours and not force:
        raise UsageError(
            f"{folder} holds something that is no site of rocm-audit; choose another folder, or put the site into it "
            "with --force (only files of the same names are replaced)",
            "exists",
        )


def _read_manifest(folder: Path) -> tuple[str, dict[str, Kept]]:
    """(the maker of the last build, its files); nothing where there is none that makes sense: all is written then."""
    path = folder / MANIFEST
    try:
        if path.stat().st_size > _MAX_BYTES:
            return "", {}
        content = strict_json.loads(path.read_bytes())
        if content["format_version"] != SITE_FORMAT_VERSION:
            return "", {}
        files = {
            name: Kept(str(depends), int(n_bytes), str(sha256))
            for name, (depends, n_bytes, sha256) in content["files"].items()
            if _PATH.fullmatch(name)
        }
        return str(content["maker"]), files
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return "", {}


def _read_journal(folder: Path) -> frozenset[str]:
    """What a build that was interrupted had begun to write."""
    try:
        lines = (folder / JOURNAL).read_text(encoding="ascii", errors="replace").split("\n")
    except OSError:
        return frozenset()
    return frozenset(line for line in lines if _PATH.fullmatch(line))


def _put(path: Path, file: SiteFile) -> tuple[int, str]:
    """Writes the file; (bytes, SHA-256)."""
    made = file.make()
    digest, n_bytes = hashlib.sha256(), 0
    # Made anew, so that a link which lies there is not written through.
    path.unlink(missing_ok=True)
    with path.open("xb") as out:
        for piece in [made] if isinstance(made, (str, bytes)) else made:
            data = piece.encode("utf-8", "backslashreplace") if isinstance(piece, str) else piece
            digest.update(data)
            n_bytes += out.write(data)
    return n_bytes, digest.hexdigest()


def _size(path: Path) -> int:
    """Of a plain file; -1 of anything else."""
    try:
        facts = path.lstat()
    except OSError:
        return -1
    return facts.st_size if stat.S_ISREG(facts.st_mode) else -1


def _short(depends: str) -> str:
    return hashlib.sha256(depends.encode("utf-8", "backslashreplace")).hexdigest()[:24]
