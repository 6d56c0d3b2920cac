"""``python -m tests.zoo.table FOLDER``: audits every program of the zoo on the simulated device and writes docs/zoo.md.

Each program is traced by a command of its own; the traces are merged and replayed by one more. What FOLDER holds
already is not made again.
"""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from audit.opset.file import read_opset
from audit.opset.ranks import copy_or_merge
from audit.rules.coverage import percentage
from audit.rules.headline import WORDS
from audit.rules.judge import judge
from audit.schema import STATUSES, NotAudited, Trace
from audit.store import read_run
from audit.verdicts import Verdict
from tests.zoo import distributed
from tests.zoo.registry import PROGRAMS

CHECKOUT = Path(__file__).resolve().parent.parent.parent
DOCUMENT = CHECKOUT / "docs" / "zoo.md"
#: More than any program makes, so that none is ended early.
STEPS = "100000"
#: Dispatcher entries that compute nothing; they are recorded calls, and no share is taken of them.
ANNOTATION = "annotation for profilers"
ON_CPU = "ran on the CPU in the program"
#: A free port, so that two of them do not meet.
RENDEZVOUS = ("--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0")
PACKAGES = ("torch", "transformers", "diffusers", "torch-geometric", "torchao")

HEAD = """# The zoo

Small programs, one or more for each kind of thing that a tracer can trip over, with real classes of published packages
and random weights ([tests/zoo](../tests/zoo)). `tests/zoo/test_zoo.py` holds each to the invariant: traced outputs,
gradients, buffers and random state are bitwise those of an untraced run, and every recorded call is in a case or named
with its reason. Not measured on AMD: this table is of the *simulated* device.

`make zoo` wrote this page: {made}.

Each program was traced by `rocm-audit trace`, on a machine without a GPU that pretends to have one, and the traces were
merged and replayed by `rocm-audit run --device sim`; a case that several programs share was replayed once, with the
values of one of them. In such a trace autocast casts as a GPU's would, so the CNN there computes what it would on one.

- *calls*: recorded calls, without annotations for profilers.
- *host*: those of them that the program ran on the CPU beside the GPU that it was told of: the making of its weights,
  its own bookkeeping.
- *no case*: those of them that are not audited, and [why](#what-has-no-case).
- *conclusive*: the share of the calls with a case whose replay is not inconclusive (aim: 99.5 %).
- *findings*: calls by status, where it is not `supported`. A finding on the healthy simulated device is true, or a
  defect of the audit: [these](#findings).

"""


@dataclass(frozen=True)
class Row:
    """One program as audited. Counts are of calls but for ``n_ops`` and ``n_cases``; the file's size is in bytes."""

    name: str
    item: str
    n_ops: int
    n_calls: int
    n_cases: int
    n_host: int
    n_without_case: int
    by_status: Mapping[str, int]
    file_bytes: int

    @property
    def n_replayed(self) -> int:
        return sum(self.by_status.values())

    def text(self) -> str:
        conclusive = percentage(self.n_replayed - self.by_status["inconclusive"], self.n_replayed)
        others = [f"{self.by_status[status]} {WORDS[status]}" for status in STATUSES[1:] if self.by_status[status]]
        return (
            f"| `{self.name}` | {self.item} | {self.n_ops} | {self.n_calls} | {self.n_cases} | {self.n_host or ''} | "
            f"{self.n_without_case or ''} | {conclusive} | {', '.join(others)} | {self.file_bytes / 1e6:.2f} MB |"
        )


def programs() -> list[tuple[str, str]]:
    """Names with what they stand for, those of two ranks last."""
    return [
        *((program.name, program.item) for program in PROGRAMS),
        *((program.__name__, "two gloo ranks under torchrun") for program in distributed.PROGRAMS),
    ]


# --- audits ------------------------------------------------------------------------------------------------------


def trace(name: str, folder: Path) -> Path:
    """The trace of one program, made where it is not there yet. Raises CalledProcessError where it cannot be made."""
    path = folder / f"{name}.audit"
    if path.exists():
        return path
    print(f"tracing {name}", flush=True)
    command = ["-m", "audit", "trace", "-q", "--steps", STEPS]
    if any(program.__name__ == name for program in distributed.PROGRAMS):
        ranks = folder / "ranks" / f"{name}.audit"
        ranks.parent.mkdir(exist_ok=True)
        launch = ["-m", "torch.distributed.run", "--nproc-per-node=2", *RENDEZVOUS]
        work = ["-m", "tests.zoo.distributed", "--force", "-o", str(ranks), "--", name, str(ranks.parent)]
        run([*launch, *command, *work])
        copy_or_merge(ranks, path)
    else:
        run([*command, "-m", "tests.zoo", "-o", str(path), "--", name])
    return path


def run(arguments: Sequence[str]) -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")}
    subprocess.run([sys.executable, *arguments], cwd=CHECKOUT, env=environment, check=True, stdout=subprocess.DEVNULL)


def merged_trace(folder: Path) -> Path:
    """Where the trace of all programs is."""
    return folder / "merged" / "zoo.audit"


def merge(traces: Sequence[Path], merged: Path) -> None:
    merged.parent.mkdir(exist_ok=True)
    run(["-m", "audit", "trace", "merge", *map(str, traces), "-o", str(merged)])


def replay(traces: Sequence[Path], folder: Path) -> Path:
    """The folder of the run of all programs together, made or gone on with."""
    merged, output = merged_trace(folder), folder / "run"
    if not merged.exists():
        merge(traces, merged)
    print("replaying", flush=True)
    again = ["--resume"] if (output / "run.jsonl").exists() else []
    run(["-m", "audit", "run", str(merged), "--device", "sim", "-q", "--format", "json", "-o", str(output), *again])
    return output


def replayed(traces: Sequence[Path], folder: Path) -> Mapping[str, Verdict]:
    """Verdicts by case of all programs together."""
    return {verdict.key: verdict for verdict in judge(read_run(replay(traces, folder))).verdicts}


def row_of(name: str, item: str, path: Path, verdicts: Mapping[str, Verdict]) -> Row:
    found = read_opset(path)
    by_status: Counter[str] = Counter(dict.fromkeys(STATUSES, 0))
    for case in found.cases:
        by_status[verdicts[case.key].status] += case.n_calls
    without = sum(entry.n_calls for entry in named(found))
    n_host = sum(entry.n_calls for entry in found.not_audited if entry.reason == ON_CPU)
    n_annotations = sum(entry.n_calls for entry in found.not_audited) - without - n_host
    return Row(
        name,
        item,
        n_ops=len({case.op for case in found.cases} | {entry.what for entry in named(found) if entry.n_calls}),
        n_calls=found.n_recorded - n_annotations,
        n_cases=len(found.cases),
        n_host=n_host,
        n_without_case=without,
        by_status=by_status,
        file_bytes=path.stat().st_size,
    )


def named(found: Trace) -> list[NotAudited]:
    """What has no case, without annotations and what ran on the host."""
    return [entry for entry in found.not_audited if not entry.reason.startswith((ANNOTATION, ON_CPU))]


# --- the page ----------------------------------------------------------------------------------------------------


def page(rows: Sequence[Row], traces: Mapping[str, Trace], verdicts: Mapping[str, Verdict]) -> str:
    return "".join(
        (
            HEAD.format(made=made()),
            "| program | stands for | ops | calls | cases | host | no case | conclusive | findings | trace |\n",
            "|---|---|---|---|---|---|---|---|---|---|\n",
            "".join(f"{row.text()}\n" for row in rows),
            total(rows),
            "\n## What has no case\n\n",
            "".join(f"- {line}\n" for line in without_case(traces)),
            "\n## Findings\n\n",
            "".join(f"- {line}\n" for line in findings(traces, verdicts)) or "None.\n",
        )
    )


def made() -> str:
    versions = []
    for package in PACKAGES:
        try:
            versions.append(f"{package} {importlib.metadata.version(package)}")
        except importlib.metadata.PackageNotFoundError:
            versions.append(f"no {package}")
    today = datetime.date.today().isoformat()
    n_cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    python = ".".join(map(str, sys.version_info[:2]))
    commit = subprocess.run(["git", "log", "-1", "--format=%h"], cwd=CHECKOUT, capture_output=True, text=True).stdout
    return f"{today}, commit {commit.strip() or 'unknown'}, {n_cores} CPU cores, Python {python}, {', '.join(versions)}"


def total(rows: Sequence[Row]) -> str:
    n_replayed = sum(row.n_replayed for row in rows)
    n_inconclusive = sum(row.by_status["inconclusive"] for row in rows)
    return (
        f"\n{len(rows)} programs: {sum(row.n_calls for row in rows)} calls, {n_replayed} of them in cases "
        f"({percentage(n_replayed - n_inconclusive, n_replayed)} of these conclusive).\n"
    )


def without_case(traces: Mapping[str, Trace]) -> Iterator[str]:
    """One line for each reason: the ops, and the programs with their counts."""
    ops: defaultdict[str, set[str]] = defaultdict(set)
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for name, found in traces.items():
        for entry in named(found):
            ops[entry.reason].add(entry.what)
            counts[entry.reason][name] += entry.n_calls
    for reason in sorted(ops, key=lambda reason: -counts[reason].total()):
        where = ", ".join(f"`{name}` {count or ''}".rstrip() for name, count in counts[reason].most_common())
        yield f"**{reason}**: {shortened(sorted(ops[reason]))}. {where}."


def findings(traces: Mapping[str, Trace], verdicts: Mapping[str, Verdict]) -> Iterator[str]:
    """One line for each op and rule with the first message, and the programs."""
    users = defaultdict(set)
    for name, found in traces.items():
        for case in found.cases:
            users[case.key].add(name)
    lines: dict[tuple[str, str], tuple[str, set[str]]] = {}
    for verdict in verdicts.values():
        for finding in verdict.findings:
            if verdict.status != "supported" and finding.status != "supported":
                _, names = lines.setdefault((verdict.op, finding.code), (finding.message, set()))
                names |= users[verdict.key]
    for (op, code), (message, names) in sorted(lines.items()):
        yield f"`{op}` {code}: {message.partition(chr(10))[0]} ({', '.join(sorted(names))})"


def shortened(ops: Sequence[str], limit: int = 8) -> str:
    shown = ", ".join(f"`{op}`" for op in ops[:limit])
    return f"{shown} and {len(ops) - limit} more" if len(ops) > limit else shown


def listed(document: str) -> list[str]:
    """The names of the programs that a page has rows for."""
    return [line.split("`")[1] for line in document.splitlines() if line.startswith("| `")]


def main(arguments: Iterable[str]) -> int:
    [place] = arguments
    folder = Path(place).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    if missing := [f"{program.name} needs {', '.join(program.missing())}" for program in PROGRAMS if program.missing()]:
        print("\n".join(missing), file=sys.stderr)
        return 2
    paths = {name: trace(name, folder) for name, _ in programs()}
    verdicts = replayed(list(paths.values()), folder)
    rows = [row_of(name, item, paths[name], verdicts) for name, item in programs()]
    DOCUMENT.write_text(page(rows, {name: read_opset(path) for name, path in paths.items()}, verdicts))
    print(DOCUMENT)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
