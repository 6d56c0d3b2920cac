"""Runs to a site: gather, judge what is new, arrange, write what has changed."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import hashlib
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from audit.ceilings_cache import cache_folder
from audit.dashboard.arrange import arrange
from audit.dashboard.catalog import Catalog
from audit.dashboard.change_rows import LeftOut
from audit.dashboard.database import Database
from audit.dashboard.gather import Gathered, RunFile, gather
from audit.dashboard.judging import judge_files, judging_version
from audit.dashboard.registry import all_files
from audit.dashboard.rows import SiteFacts
from audit.dashboard.site_folder import SiteFolder, Written
from audit.errors import UsageError

#: Runs that are judged again at most when a build is interrupted.
_BATCH = 32
#: A data base of a site that was not built for so long is removed; it can be made again.
_MAX_AGE_S = 90 * 86_400.0

#: Hears how many files are judged, of how many.
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Built:
    """What a build did. ``n_judged`` of the runs were judged anew, the others were known."""

    site: SiteFacts
    written: Written
    n_judged: int
    left_out: tuple[LeftOut, ...]
    copies: int


def build(
    paths: Sequence[Path], folder: Path, cache: Path | None, version: str, now: datetime.datetime, progress: Progress
) -> Built:
    """Builds the site, or brings it up to date. ``cache``: where its data base lies; None: nowhere. ``version`` is that
    of this rocm-audit, for people.

    Raises UsageError where there is no run that can be read, UnfinishedError where the site cannot be written.
    """
    gathered = gather(paths)
    database = Database.open(_database_path(cache, folder), judging_version())
    try:
        files, left_out, n_judged = _fill(database, gathered, progress)
        left_out = tuple(sorted({*gathered.left_out, *left_out}, key=lambda one: (one.path, one.slug, one.reason)))
        if not files:
            raise UsageError(_none_of(left_out), "no-usable-run")
        arrange(database, files, gathered.copies, now)
        catalog = Catalog(database, version, left_out)
        written = SiteFolder(folder, _maker()).write(all_files(catalog))
        return Built(catalog.site(), written, n_judged, left_out, sum(map(len, gathered.copies.values())))
    finally:
        database.close()


def _fill(database: Database, gathered: Gathered, progress: Progress) -> tuple[list[RunFile], tuple[LeftOut, ...], int]:
    """(the files whose digests are in the data base, those that have none, how many were judged)."""
    known = database.known()
    database.remove(known - {file.sha256 for file in gathered.files})
    files = [file for file in gathered.files if file.sha256 in known]
    new = [file for file in gathered.files if file.sha256 not in known]
    present = {file.sha256 for file in files}
    left_out: list[LeftOut] = []
    n_judged = 0
    for number, (file, judged) in enumerate(judge_files(new), 1):
        if isinstance(judged, LeftOut):
            left_out.append(judged)
        else:
            sha256, origin, digest = judged
            if sha256 not in present:  # else the file has become a copy of another while we looked
                present.add(sha256)
                database.add(sha256, origin, digest)
                n_judged += 1
                files.append(dataclasses.replace(file, sha256=sha256))
        if number % _BATCH == 0:
            database.commit()
        progress(number, len(new))
    database.commit()
    return files, tuple(left_out), n_judged


def _none_of(left_out: Iterable[LeftOut]) -> str:
    """No site is made of nothing: an old one stays."""
    first = next(iter(left_out), None)
    if first is None:
        return "there is no run here: expected run.jsonl files, in the folders given or below them"
    n = sum(1 for _ in left_out)
    more = f", and {n - 1} more" if n > 1 else ""
    return f"no run here can be read: {first.path} {first.reason} ({first.slug}){more}"


def _database_path(cache: Path | None, folder: Path) -> Path | None:
    """One data base for each site, by where the site lies."""
    if cache is None:
        return None
    try:
        cache.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"cannot make the cache folder {cache}: {error.strerror}; choose another with --cache", "unusable-cache"
        ) from error
    path = cache / f"{hashlib.sha256(str(folder.resolve()).encode('utf-8', 'surrogateescape')).hexdigest()[:16]}.sqlite"
    for old in cache.glob("*.sqlite"):
        with contextlib.suppress(OSError):
            if old != path and time.time() - old.stat().st_mtime > _MAX_AGE_S:
                old.unlink()
    return path


def default_cache() -> Path | None:
    """Beside the other caches of this user; None for a user without a home."""
    home = cache_folder()
    return None if home is None else home / "dashboard"


def _maker() -> str:
    """A digest of all that makes files: the rules behind the rows, and this package with its templates."""
    home = Path(__file__).parent.parent
    total = hashlib.sha256(judging_version().encode())
    for room in ("dashboard", "report"):
        for file in sorted((home / room).rglob("*")):
            if file.is_file() and "__pycache__" not in file.parts:
                name = file.relative_to(home).as_posix()
                total.update(f"{name} {hashlib.sha256(file.read_bytes()).hexdigest()}\n".encode())
    return total.hexdigest()[:16]
