"""A report and a site from the runs that are kept beside them; the same runs give the same bytes."""

from __future__ import annotations

import gzip
import shutil
import tempfile
from pathlib import Path

from audit.cli import main
from audit.dashboard.site_folder import MANIFEST

SAMPLE = Path(__file__).resolve().parent.parent.parent / "reports" / "sample"
#: The run whose report is shown.
REPORTED = "careless-h200"
#: What is made; ``runs`` and ``README.md`` beside it are kept.
MADE = ("report", "site")


def make(folder: Path, runs: Path = SAMPLE / "runs") -> None:
    """Replaces the pages in ``folder`` by those of ``runs``."""
    for name in MADE:
        shutil.rmtree(folder / name, ignore_errors=True)
    report, site = (str(folder / name) for name in MADE)
    assert main(["report", str(runs / REPORTED), "--format", "html,json", "-o", report, "-q"]) == 0
    with tempfile.TemporaryDirectory() as cache:
        assert main(["dashboard", str(runs), "-o", site, "--cache", cache, "-q"]) == 0


def contents(folder: Path) -> dict[str, bytes]:
    """The files of the made folders by their path, unpacked: another zlib packs otherwise.

    The site's manifest has a digest of the code that made it, which changes with every line of it: it is left out.
    """
    paths = (path for name in MADE for path in (folder / name).rglob("*") if path.is_file() and path.name != MANIFEST)
    return {path.relative_to(folder).as_posix(): _unpacked(path) for path in paths}


def _unpacked(path: Path) -> bytes:
    return gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
