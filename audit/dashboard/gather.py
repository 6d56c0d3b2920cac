"""Paths to run files: looked for in folders, opened with care, counted once. Nothing is judged here.

Files come from strangers: no link is followed out of the folder that was given, a pipe is not waited at, sizes are
bounded, and what is left out is told with a reason.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from audit.dashboard.change_rows import LeftOut
from audit.errors import UsageError
from audit.ordinary_file import open_ordinary
from audit.report.text import one_line

RUN_FILE = "run.jsonl"
#: Beside a run lies another device's, for its report; it is part of that run and none of its own.
_BESIDE = "other.jsonl"
#: Some 25,000 cases. Read and judged, they take five times as much memory.
MAX_RUN_BYTES = 1 << 26
#: A case has two lines, and a few more where it was resumed or alternatives were tried.
MAX_LINES = 1_000_000
#: Folders in folders, below one that was given.
MAX_DEPTH = 32
#: Runs with one header among which earlier states of another are looked for.
MAX_TWINS = 500
_BLOCK = 1 << 20
#: A header has some kilobytes, the longest known 60; what is longer is compared by its beginning.
_HEADER_BYTES = 1 << 20
_HEADER = b'{"header":'


@dataclass(frozen=True)
class RunFile:
    """A file that says it is a run. ``label`` is its place below what was given, for people.

    ``sha256`` is of the content, ``header`` of its first line, hex; ``n_bytes`` of whole lines.
    """

    path: Path
    label: str
    sha256: str
    header: str
    n_bytes: int


@dataclass(frozen=True)
class Gathered:
    """Run files, each once, in the order of their labels. ``copies`` are labels of the same run, by its ``sha256``."""

    files: tuple[RunFile, ...]
    copies: dict[str, tuple[str, ...]]
    left_out: tuple[LeftOut, ...]


def gather(paths: Iterable[Path]) -> Gathered:
    """All run files at and below the paths. Raises UsageError for a path that is not there."""
    left_out: list[LeftOut] = []
    found: dict[Path, RunFile] = {}
    for given in paths:
        for path, label in _candidates(given, left_out):
            if path in found:
                continue  # given twice, or below two paths that were given
            file = _looked_at(path, label, path == given, left_out)
            if file is not None:
                found[path] = file
    files = sorted(found.values(), key=lambda file: (file.label, str(file.path)))
    kept, copies = _each_once(files)
    return Gathered(tuple(kept), copies, tuple(sorted(set(left_out), key=lambda one: (one.path, one.slug, one.reason))))


# --- folders --------------------------------------------------------------------------------------------------------


def _candidates(given: Path, left_out: list[LeftOut]) -> Iterator[tuple[Path, str]]:
    try:
        kind = os.stat(given).st_mode
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is no path"
        raise UsageError(
            f"{one_line(str(given), 300)}: {reason}; give run folders, folders of them, or run.jsonl files",
            "no-such-run",
        ) from error
    if not stat.S_ISDIR(kind):
        home = given.absolute()
        yield given, _joined(one_line(home.parent.name), home.name)
        return
    yield from _below(given, left_out)


def _below(root: Path, left_out: list[LeftOut]) -> Iterator[tuple[Path, str]]:
    """Files that may be runs, in the order of their names, without recursion: a stranger's folder may be deep."""
    name = one_line(root.absolute().name)
    waiting = [(root, name, 0)]
    while waiting:
        folder, label, depth = waiting.pop()
        try:
            with os.scandir(folder) as listing:
                entries = sorted(listing, key=lambda entry: entry.name)
        except OSError as error:
            _leave_out(left_out, label, slug="unreadable-run", reason=f"cannot be listed: {error.strerror}")
            continue
        below = []
        for entry in entries:
            inner = _joined(label, entry.name)
            if entry.is_symlink():
                if entry.name == RUN_FILE or _is_folder(entry):
                    _leave_out(
                        left_out,
                        inner,
                        slug="link-not-followed",
                        reason="is a symbolic link, and links are not followed",
                    )
            elif entry.is_dir(follow_symlinks=False):
                if depth >= MAX_DEPTH:
                    _leave_out(left_out, inner, slug="too-large-run", reason=f"lies deeper than {MAX_DEPTH} folders")
                else:
                    below.append((Path(entry.path), inner, depth + 1))
            elif entry.name.endswith(".jsonl") and entry.name != _BESIDE:
                yield Path(entry.path), inner
        waiting.extend(reversed(below))


def _joined(label: str, name: str) -> str:
    """For people, and for a data base that takes no half surrogates; two files may have one label."""
    return f"{label}/{one_line(name)}" if label else one_line(name)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link in a circle
        return False


def _leave_out(left_out: list[LeftOut], label: str, *, slug: str, reason: str) -> None:
    left_out.append(LeftOut(label, slug, reason))


# --- files ----------------------------------------------------------------------------------------------------------


def _looked_at(path: Path, label: str, is_given: bool, left_out: list[LeftOut]) -> RunFile | None:
    """The file with its digests; None where it is left out, or a file of another kind that nobody called a run."""
    is_named = is_given or path.name == RUN_FILE
    try:
        with open_ordinary(path, follow=is_given) as file:
            n_bytes = os.fstat(file.fileno()).st_size
            first = file.read(len(_HEADER))
            if first != _HEADER and not is_named:
                return None
            if not first:
                _leave_out(
                    left_out,
                    label,
                    slug="not-a-run",
                    reason="is empty: an audit that was killed before it wrote its header",
                )
                return None
            if n_bytes > MAX_RUN_BYTES:
                said = f"has {n_bytes:,} bytes, over {MAX_RUN_BYTES:,}; a dashboard takes runs of some 25,000 cases"
                _leave_out(left_out, label, slug="too-large-run", reason=said)
                return None
            file.seek(0)
            header = file.readline(_HEADER_BYTES)
            file.seek(0)
            digest, n_lines, whole = _digest(iter(lambda: file.read(_BLOCK), b""))
    except OSError as error:
        _leave_out(left_out, label, slug="unreadable-run", reason=f"cannot be read: {error.strerror or error}")
        return None
    if n_lines > MAX_LINES:
        _leave_out(left_out, label, slug="too-large-run", reason=f"has {n_lines:,} lines, over {MAX_LINES:,}")
        return None
    return RunFile(path, label, digest, hashlib.sha256(header).hexdigest(), whole)


def _digest(blocks: Iterable[bytes]) -> tuple[str, int, int]:
    """(SHA-256, lines, bytes of whole lines)."""
    digest, n_lines, n_bytes, whole = hashlib.sha256(), 0, 0, 0
    for block in blocks:
        digest.update(block)
        n_lines += block.count(b"\n")
        if (at := block.rfind(b"\n")) >= 0:
            whole = n_bytes + at + 1
        n_bytes += len(block)
    return digest.hexdigest(), n_lines, whole


# --- each run once --------------------------------------------------------------------------------------------------


def _each_once(files: list[RunFile]) -> tuple[list[RunFile], dict[str, tuple[str, ...]]]:
    """Without files of the same bytes, and without an earlier state of a run that is there further on as well.

    A run file only grows, so an earlier copy of it is its beginning. Runs that merely have the same header (an array
    of jobs, begun in the same second) are runs of their own.
    """
    by_content: dict[str, list[RunFile]] = {}
    for file in files:
        by_content.setdefault(file.sha256, []).append(file)
    same = {digest: [file.label for file in group[1:]] for digest, group in by_content.items()}
    by_header: dict[str, list[RunFile]] = {}
    for group in by_content.values():
        by_header.setdefault(group[0].header, []).append(group[0])
    earlier = {}
    for runs in by_header.values():
        if 1 < len(runs) <= MAX_TWINS:
            earlier.update(_earlier(runs))
    for digest, longer in earlier.items():
        same[longer] += [by_content[digest][0].label, *same.pop(digest)]
    kept = [group[0] for digest, group in by_content.items() if digest not in earlier]
    return kept, {digest: tuple(sorted(labels)) for digest, labels in same.items() if labels}


def _earlier(runs: list[RunFile]) -> dict[str, str]:
    """Which files are how a longer one begins, by ``sha256``, the longest first known by its own."""
    runs = sorted(runs, key=lambda file: (-file.n_bytes, file.label))
    lengths = sorted({file.n_bytes for file in runs})
    found: dict[str, str] = {}
    beginnings: dict[str, str] = {}
    for file in runs:
        digests = _beginnings(file, lengths)
        if not digests:
            continue
        if (longer := beginnings.get(digests[-1])) is not None:
            found[file.sha256] = longer
            continue
        for digest in digests:
            beginnings.setdefault(digest, file.sha256)
    return found


def _beginnings(file: RunFile, lengths: list[int]) -> list[str]:
    """Digests of the file's first so many bytes, up to its whole lines; none where it is gone meanwhile."""
    digest, at, found = hashlib.sha256(), 0, []
    try:
        with file.path.open("rb") as content:
            for length in lengths:
                if not 0 < length <= file.n_bytes:
                    continue
                while at < length:
                    block = content.read(min(_BLOCK, length - at))
                    if not block:
                        return []
                    digest.update(block)
                    at += len(block)
                found.append(f"{length} {digest.hexdigest()}")
    except OSError:
        return []
    return found
