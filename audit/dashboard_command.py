"""``rocm-audit dashboard RUNS... -o SITE``: a static site from any number of runs. Needs no torch."""

from __future__ import annotations

import argparse
import datetime
import os
import sys
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

import audit
from audit.errors import UnfinishedError
from audit.run_folder import alone_in, made_folder
from audit.terminal import add_output_options, is_live, print_result
from audit.termination import termination_as_interrupt

if TYPE_CHECKING:
    from audit.dashboard.build import Built

_EPILOG = """examples:
  rocm-audit dashboard runs -o site          every run in and below the folder runs
  rocm-audit dashboard mi300x h200 -o site   or single run folders, and run.jsonl files
  rocm-audit dashboard runs -o site          again: judges what is new, writes what has changed
runs of other machines: copy their folders into the one that is given
exit codes: 0 built (files that are left out are told), 2 wrong use or no run at all, 3 could not finish"""
#: Files left out that are told one by one, unless all are asked for; the site has a page of them.
_TOLD = 20
#: A line each so many seconds, where nobody looks at a terminal.
_LOG_INTERVAL_S = 20.0


def add_dashboard(commands: Any) -> None:
    """Adds its parser to the subparsers of the command line."""
    parser = commands.add_parser(
        "dashboard",
        help="a static site from any number of runs: what works where, and what changed",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "runs", type=Path, nargs="+", metavar="RUNS", help="run folders, folders with runs anywhere below, or run.jsonl"
    )
    parser.add_argument(
        "-o", "--output", type=Path, default=Path("site"), metavar="SITE", help="the site's folder (site)"
    )
    parser.add_argument(
        "--cache",
        type=Path,
        metavar="DIR",
        help="where judged runs are kept for the next build (dashboard in the user's cache of rocm-audit)",
    )
    parser.add_argument("--force", action="store_true", help="put the site into a folder that holds something else")
    add_output_options(parser)
    parser.set_defaults(command=_dashboard)


def _dashboard(options: argparse.Namespace) -> int:
    from audit.dashboard.build import build
    from audit.dashboard.site_folder import check_folder

    check_folder(options.output, options.force)
    now = datetime.datetime.now(datetime.timezone.utc)
    try:
        with made_folder(options.output), alone_in(options.output), termination_as_interrupt():
            progress = _Progress(options.quiet)
            built = build(options.runs, options.output, _cache(options.cache), audit.__version__, now, progress)
    except KeyboardInterrupt as error:
        raise UnfinishedError(
            "interrupted; the site can be read, runs that were judged are kept, and the same command goes on",
            "interrupted",
        ) from error
    _warn(built, len(built.left_out) if options.verbose else _TOLD)
    print_result(_record(built, options.output) if options.json else _sentence(built, options.output) + "\n")
    return 0


def _cache(given: Path | None) -> Path | None:
    """The folder asked for, else that of ``AUDIT_CACHE``, else the user's; None where it is off."""
    from audit.dashboard.build import default_cache
    from audit.results_cache import VARIABLE

    if given is not None:
        return given
    base = os.environ.get(VARIABLE, "")
    if base == "off":
        return None
    return Path(base) / "dashboard" if os.path.isabs(base) else default_cache()


class _Progress:
    """Says on stderr how many runs are judged: on a terminal in one line, in a log now and then."""

    def __init__(self, quiet: bool) -> None:
        self._quiet = quiet
        self._is_terminal = is_live(sys.stderr)
        self._last = monotonic()

    def __call__(self, n_done: int, n_all: int) -> None:
        if self._quiet:
            return
        if self._is_terminal:
            end = "\n" if n_done == n_all else ""
            print(f"\rjudged {n_done:,} of {n_all:,} runs", end=end, file=sys.stderr, flush=True)
        elif monotonic() - self._last > _LOG_INTERVAL_S:
            self._last = monotonic()
            print(f"judged {n_done:,} of {n_all:,} runs", file=sys.stderr)


def _warn(built: Built, n_told: int) -> None:
    for one in built.left_out[:n_told]:
        print(f"rocm-audit: left out {one.path}: {one.reason} [{one.slug}]", file=sys.stderr)
    if (more := len(built.left_out) - n_told) > 0:
        print(f"rocm-audit: {more} more files are left out; left-out.html of the site lists all", file=sys.stderr)
    if n_odd := built.site.n_odd_clocks:
        print(
            f"rocm-audit: {'a run has' if n_odd == 1 else f'{n_odd} runs have'} a date that cannot be, ordered by "
            "versions instead [odd-clock]",
            file=sys.stderr,
        )


def _sentence(built: Built, folder: Path) -> str:
    from audit.report.text import plural

    site, written = built.site, built.written
    counts = ", ".join((plural(site.n_ops, "op"), plural(site.n_cases, "case")))
    parts = [f"{plural(site.n_runs, 'run')} ({built.n_judged:,} judged now), {counts}"]
    if built.copies:
        parts.append(f"{plural(built.copies, 'copy of a run', 'copies of runs')} counted once")
    if built.left_out:
        parts.append(f"{plural(len(built.left_out), 'file')} left out")
    parts.append(f"{written.n_written:,} of {plural(written.n_files, 'file')} written, {written.n_removed:,} removed")
    return f"{folder / 'index.html'}: {'; '.join(parts)}"


def _record(built: Built, folder: Path) -> dict[str, Any]:
    site, written = built.site, built.written
    return {
        "format_version": 1,
        "site": str(folder),
        "runs": site.n_runs,
        "judged": built.n_judged,
        "ops": site.n_ops,
        "cases": site.n_cases,
        "copies": built.copies,
        "odd_clocks": site.n_odd_clocks,
        "left_out": [{"file": one.path, "reason": one.reason, "slug": one.slug} for one in built.left_out],
        "files": {"total": written.n_files, "written": written.n_written, "removed": written.n_removed},
    }
