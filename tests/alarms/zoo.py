"""``python -m tests.alarms.zoo FOLDER -o FILE``: the same count over the calls of the zoo's programs.

They are traced on the CPU and replayed on the device as one trace, as ``python -m tests.zoo.table`` does it, in the
same folder: what FOLDER holds is not made again. So the traces can come from another machine, in ``FOLDER/merged``.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from audit.run_records import Run
from audit.store import read_run
from tests.alarms.counted import counted
from tests.zoo import table


def main(argv: list[str] | None = None) -> int:
    args = _arguments(argv)
    folder = args.folder.absolute()
    names = [name for name, _ in table.programs() if any(fnmatchcase(name, glob) for glob in args.programs)]
    run = read_run(table.replay(_traces(folder, names), folder, args.device))
    found = of_programs(run, len(names))
    args.output.write_text(json.dumps(found, separators=(",", ":")))
    said = sum(bool(row[-2]) for row in found["rows"])
    print(f"{len(found['rows'])} cases, {said} with a finding: {args.output}", file=sys.stderr)
    return 0


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.alarms.zoo", description=__doc__)
    parser.add_argument("folder", type=Path, help="where traces and runs are, and are made where they are missing")
    parser.add_argument("--programs", nargs="*", default=["*"], help="globs on the names of the programs (all)")
    parser.add_argument("--device", default="sim", help="as for rocm-audit run (sim)")
    parser.add_argument("-o", "--output", type=Path, required=True, help="the file for the rows (JSON)")
    return parser.parse_args(argv)


def _traces(folder: Path, names: Sequence[str]) -> list[Path]:
    """Of each program; none where they are merged already, since another machine may lack the zoo's packages."""
    if table.merged_trace(folder).exists():
        return []
    folder.mkdir(parents=True, exist_ok=True)
    return [table.trace(name, folder) for name in names]


def of_programs(run: Run, n_programs: int) -> dict[str, Any]:
    """The rows of a finished run, in the form of ``python -m tests.alarms``; the samples are programs."""
    found = counted(run)
    return {
        **found,
        "source": "zoo",
        "torch": run.header.environment.get("torch", "unknown"),
        "n_samples": n_programs,
        "n_raised": 0,
        "n_recorded_cases": len(run.cases),
        "n_calls": sum(case.n_calls for case in run.cases),
        "recorded_s": 0.0,
        "replayed_s": 0.0,
    }


if __name__ == "__main__":
    sys.exit(main())
