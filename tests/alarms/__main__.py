"""``make alarms``: how often the audit accuses a healthy device, over the sample inputs of torch's own op tests.

Each job takes a shard of the ops: records their calls on the CPU, replays the distinct cases on the device, and judges
them. With ``--zoo`` these are the calls of the zoo's programs, and each job takes a shard of the cases.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import os
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from time import monotonic, time
from typing import Any

import torch

import audit
from audit.replay.engine import DeviceLost, ReplaySettings
from audit.replay.pool import Pool
from audit.run_records import Run, RunEnd, RunHeader, Started
from audit.schema import EVIDENCE_BY_BACKEND, Measurement, Source
from tests.alarms import zoo
from tests.alarms.counted import counted
from tests.alarms.recorded import Recorded, gpu_hidden, record
from tests.alarms.samples import DTYPES, entries, samples

#: Share of a time budget that recording may take; what is not recorded then stays out.
_RECORDING_FRACTION = 0.3
#: What adds up over shards.
_SUMS = ("n_samples", "n_raised", "n_calls")
#: A job ends this long before its budget is spent, to judge and to write.
_WRITING_S = 6.0


def main(argv: list[str] | None = None) -> int:
    args = _arguments(argv)
    found = _in_jobs(args) if args.jobs > 1 else examine(args)
    args.output.write_text(json.dumps(found, separators=(",", ":")))
    rows = found["rows"]
    said = sum(bool(row[-2]) for row in rows)
    print(f"{len(rows)} cases in {found['replayed_s']:.0f} s, {said} with a finding: {args.output}", file=sys.stderr)
    return 0


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.alarms", description=__doc__)
    parser.add_argument("--device", default="sim", help="as for rocm-audit run (sim)")
    parser.add_argument("--zoo", type=Path, metavar="FOLDER", help="programs; their traces are there, or are made")
    parser.add_argument("--dtypes", nargs="*", default=list(DTYPES), help="of the samples (all twelve)")
    parser.add_argument("--ops", nargs="*", default=["*"], help="globs on the names of OpInfo or of programs (all)")
    parser.add_argument("--shard", type=_shard, default=(0, 1), help="i/n: every n-th op, from the i-th (0/1)")
    parser.add_argument("--samples", type=int, default=8, help="of each op and dtype at most (8)")
    parser.add_argument("--time-budget", type=float, default=math.inf, help="seconds for all of it")
    parser.add_argument("--deadline", type=float, help="in place of --time-budget: when it ends, as a Unix time")
    parser.add_argument("--jobs", type=int, default=1, help="processes, each with a shard and a lane of its own (1)")
    parser.add_argument("-o", "--output", type=Path, required=True, help="the file for the rows (JSON)")
    args = parser.parse_args(argv)
    if args.zoo is not None:
        args.zoo = args.zoo.absolute()
        zoo.traced(args.zoo, args.ops)  # once, before the jobs
    if args.deadline is None:
        args.deadline = time() + args.time_budget
    return args


def _shard(text: str) -> tuple[int, int]:
    shard, _, n_shards = text.partition("/")
    return int(shard), int(n_shards)


# --- one job -----------------------------------------------------------------------------------------------------


def examine(args: argparse.Namespace) -> dict[str, Any]:
    """Rows for all cases that were measured in time, and how the recording went."""
    start, left = monotonic(), args.deadline - time()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="rocm-audit-alarms-") as folder:
        if args.zoo is not None:
            recorded = zoo.recorded(zoo.traced(args.zoo, args.ops), Path(folder), *args.shard)
        else:
            with gpu_hidden():
                chosen = samples(entries(args.ops, *args.shard), args.dtypes, args.samples)
                recorded = record(chosen, Path(folder), start + left * _RECORDING_FRACTION)
        recorded_s = monotonic() - start
        found = replayed(recorded, args.device, start + left - _WRITING_S)
        return {
            **found,
            "n_samples": recorded.n_samples,
            "n_raised": recorded.n_raised,
            "n_calls": sum(case.n_calls for case in recorded.cases),
            "left": sorted({case.key for case in recorded.cases} - {row[0] for row in found["rows"]}),
            "recorded_s": recorded_s,
        }


def replayed(recorded: Recorded, device: str, deadline: float) -> dict[str, Any]:
    """The cases through one pool until ``deadline``, and judged; times of jobs side by side mean nothing."""
    settings = ReplaySettings(
        device=device, values=recorded.values, timing_budget_s=0.0, n_reference_threads=1, n_device_threads=1
    )
    measurements: dict[str, Measurement] = {}
    started: set[str] = set()
    lost = ""
    start = monotonic()
    with Pool(settings) as pool:
        info = pool.device_info()
        for event in pool.replay(recorded.cases, lambda: monotonic() > deadline):
            if isinstance(event, Started):
                started.add(event.key)
            elif isinstance(event, DeviceLost):
                lost = event.reason
            else:
                measurements[event.key] = event
    cases = tuple(case for case in recorded.cases if case.key in measurements or case.key in started)
    header = RunHeader(
        EVIDENCE_BY_BACKEND[info.backend],
        Source("context", recorded.source),
        info,
        {},
        {},
        datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        audit.__version__,
        len(cases),
        len(cases),
    )
    ended = RunEnd(complete=not lost, reason=lost)
    run = Run(header, cases, measurements, frozenset(started - measurements.keys()), ended)
    return {**counted(run), "source": recorded.source, "torch": torch.__version__, "replayed_s": monotonic() - start}


# --- jobs side by side -------------------------------------------------------------------------------------------


def _in_jobs(args: argparse.Namespace) -> dict[str, Any]:
    """The shards of this shard in processes of their own; one that dies takes only its own rows with it."""
    shard, n_shards = args.shard
    with tempfile.TemporaryDirectory() as folder:
        outputs = [Path(folder) / f"{number}.json" for number in range(args.jobs)]
        jobs = [
            subprocess.Popen(_command(args, shard + n_shards * number, n_shards * args.jobs, outputs[number]))
            for number in range(args.jobs)
        ]
        for job in jobs:
            job.wait()
        return merged([json.loads(path.read_text()) for path in outputs if path.exists()], len(outputs))


def _command(args: argparse.Namespace, shard: int, n_shards: int, output: Path) -> list[str]:
    return [
        sys.executable, "-m", "tests.alarms", "--device", args.device, "--ops", *args.ops, "--dtypes", *args.dtypes,
        "--shard", f"{shard}/{n_shards}", "--samples", str(args.samples), "--deadline", str(args.deadline),
        "-o", str(output), *(["--zoo", str(args.zoo)] if args.zoo is not None else []),
    ]  # fmt: skip


def merged(parts: list[dict[str, Any]], n_wanted: int | None = None) -> dict[str, Any]:
    """Several shards as one, of jobs side by side where it is told how many; a case that two have is counted once.

    ``left`` are the keys of what was recorded and that none replayed. Raises ValueError where there is no shard.
    """
    if not parts:
        raise ValueError("no job wrote its rows")
    rows: dict[str, list[Any]] = {}
    for part in parts:
        for row in part["rows"]:
            rows.setdefault(row[0], row)
    sums = {name: sum(part[name] for part in parts) for name in _SUMS}
    left = sorted({key for part in parts for key in part["left"]} - rows.keys())
    whole = sum if n_wanted is None else max
    took = {name: whole(part[name] for part in parts) for name in ("recorded_s", "replayed_s")}
    lost = "; ".join(part["lost"] for part in parts if part["lost"])
    n_missing = (n_wanted or len(parts)) - len(parts)
    lost = "; ".join(
        [*([f"{n_missing} jobs ended without their rows"] if n_missing else []), *([lost] if lost else [])]
    )
    return {**parts[0], **sums, **took, "lost": lost, "left": left, "rows": list(rows.values())}


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main())
