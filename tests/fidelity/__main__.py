"""``make fidelity``: does a trace made without a GPU lead to the ops that a GPU runs?

For each program: trace it by the command line with the GPU hidden, run it on the device unaudited, replay the trace
there, and compare every op with its dtypes and shapes. Exit code 1 where a bar of ``comparison.py`` is missed.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from audit.opset import read_opset
from tests.fidelity.comparison import BAR, Comparison, compare

PROGRAMS = Path(__file__).with_name("programs")
ROOT = Path(__file__).resolve().parents[2]
#: How many missed kinds of calls of a program are printed; the JSON file has all.
N_PRINTED = 12


def main() -> int:
    args = _arguments()
    args.output.mkdir(parents=True, exist_ok=True)
    names = args.programs or sorted(path.stem for path in PROGRAMS.glob("*.py"))
    with ThreadPoolExecutor(args.jobs) as pool:
        found = list(pool.map(lambda name: _try(name, args.device, args.output, args.traces), names))
    compared = [result for result in found if isinstance(result, Comparison)]
    rows = [{**dataclasses.asdict(result), "passes": result.passes} for result in compared]
    (args.output / "fidelity.json").write_text(json.dumps(rows, indent=1))
    _print_table(found)
    return 0 if all(isinstance(result, Comparison) and result.passes for result in found) else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fidelity", description=__doc__)
    parser.add_argument("programs", nargs="*", help="names in tests/fidelity/programs (all)")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda", help="cpu stands for a GPU in tests")
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "reports" / "fidelity")
    parser.add_argument("--traces", type=Path, help="a folder of NAME.audit, in place of tracing here")
    parser.add_argument("--jobs", type=int, default=4, help="programs at work at the same time (4)")
    return parser.parse_args()


def _try(name: str, device: str, output: Path, traces: Path | None) -> Comparison | str:
    """The comparison, or why there is none."""
    try:
        return examine(name, device, output, traces)
    except subprocess.CalledProcessError as error:
        return f"{name}: {' '.join(error.cmd[1:4])} ended with {error.returncode}: {error.stderr[-1500:]}"


def examine(name: str, device: str, output: Path, traces: Path | None = None) -> Comparison:
    """Traces, runs and replays one program. Raises CalledProcessError."""
    program = PROGRAMS / f"{name}.py"
    trace = traces / f"{name}.audit" if traces is not None else output / f"{name}.audit"
    if traces is None:
        trace_without_gpu(program, trace)
    files = [output / f"{name}.{what}.json" for what in ("observed", "hosts", "replayed")]
    _python("-m", "tests.fidelity.observe", device, str(program), str(files[0]))
    _python("-m", "tests.fidelity.observe", device, str(program), str(files[1]), "hosts")
    _python("-m", "tests.fidelity.replayed", device, str(trace), str(files[2]))
    return compare(name, *(json.loads(file.read_text()) for file in files), read_opset(trace).notes)


def trace_without_gpu(program: Path, trace: Path) -> None:
    """Traces all of ``program`` by the command line in a process that finds no GPU."""
    hidden = {"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": "", "ROCR_VISIBLE_DEVICES": ""}
    _python("-m", "audit", "trace", str(program), "-o", str(trace), "--steps", "1000", "--force", "-q", **hidden)


def _python(*words: str, **variables: str) -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "2"), **variables}
    subprocess.run([sys.executable, *words], check=True, capture_output=True, text=True, cwd=ROOT, env=environment)


def _print_table(found: list[Comparison | str]) -> None:
    print(f"{'program':<20} {'calls':>7} {'calls %':>8} {'time %':>8} {'extra %':>8}  bar {BAR:.0%}, no critical miss")
    for result in found:
        if isinstance(result, str):
            print(result)
            continue
        shares = (result.calls_fraction, result.time_fraction, result.extra_fraction)
        text = " ".join(f"{share:>8.2%}" for share in shares)
        print(f"{result.program:<20} {result.n_calls:>7} {text}  {'passes' if result.passes else 'FAILS'}")
    for result in found:
        if isinstance(result, str):
            continue
        for difference in result.missed[:N_PRINTED]:
            kind = "critical: " if difference in result.critical else ""
            what = f"{difference.op} {' '.join(difference.dtypes)} {difference.shapes}"
            print(f"  {result.program}: missed {kind}{difference.calls} x {what}, {difference.us:.0f} us")
        for failure in result.failed[:N_PRINTED]:
            print(f"  {result.program}: failed in the replay: {failure}")


if __name__ == "__main__":
    sys.exit(main())
