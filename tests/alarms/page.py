"""``python -m tests.alarms.page FILE...``: the rows of ``python -m tests.alarms`` as docs/false-alarms.md.

Files of one device and source add up; they come in the order in which they are named.
"""

from __future__ import annotations

import argparse
import csv
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from scipy.stats import beta

from tests.alarms.__main__ import merged
from tests.alarms.counted import Row, from_json
from tests.alarms.samples import DTYPES

CHECKOUT = Path(__file__).resolve().parent.parent.parent
DOCUMENT = CHECKOUT / "docs" / "false-alarms.md"
EXPLAINED = Path(__file__).with_name("explained.csv")
EVIDENCE = {
    "simulated": "the simulated device",
    "stand-in": "an NVIDIA GPU (stand-in)",
    "measured": "an AMD GPU",
    "predicted": "nothing",
}
SOURCES = {"samples": "the samples of torch's op tests", "zoo": "the programs of the zoo"}
COLUMNS = ("cases", "inconclusive", "outputs", "differ", "known", "alarms", "in 1,000", "at most")
#: How sure *at most* is.
CONFIDENCE = 0.95
UNEXPLAINED = "**not explained**"

HEAD = """# False alarms

How often this audit accuses a healthy device. Torch's own tests have *sample inputs* for every op that OpInfo covers;
these are run on the CPU, forward and backward, in twelve dtypes. The [zoo](zoo.md) has programs with real classes of
published packages. The aten calls of both are recorded by the tracer, and every distinct case is replayed on the device
and judged as any other (`make alarms`; [tests/alarms](../tests/alarms)). `python -m tests.alarms.page` wrote this page.

- *outputs*: outputs, changed arguments and gradients that were compared by value. Those whose values are free (random
  numbers, uninitialised memory, state private to a device) are not among them.
- *differ*: those of them in which the device has at least one element that is not the reference's in the case's own
  dtype. Only these can be taken for wrong, so they are the denominator.
- *known*: outputs that are off, or differ from run to run, as a documented behaviour of the device has it: TF32 in the
  convolutions of a torch whose default it is, sums by atomics. They count as supported, and the report says what was
  seen.
- *alarms*: outputs with any other such finding. Aim: at most 1 in 1,000 of those that
  differ; each one is [a true difference](rules.md) that the list below explains, or a defect of the audit.
- *at most*: the rate, in 1,000, that so many alarms among so many outputs leave possible: the upper limit of Clopper
  and Pearson, 95 % sure. Without an alarm it is 3 / *differ*: fewer than 3,000 outputs that differ cannot show that the
  rate is below 1 in 1,000. It takes outputs for drawn at random, which samples of one op are not; so more may be open.
- *inconclusive*: cases about which nothing can be said, by code, as a share of all cases.

The dtype is that of a case's first floating argument, else of its first tensor.
"""


@dataclass(frozen=True)
class Explanation:
    """Why findings on a healthy device are true: globs on op, code, dtype and message, and the sentence."""

    op: str
    code: str
    dtype: str
    message: str
    why: str

    def fits(self, row: Row, code: str, message: str) -> bool:
        pairs = ((row.op, self.op), (code, self.code), (row.dtype, self.dtype), (message, self.message))
        return all(fnmatchcase(value, pattern) for value, pattern in pairs)


def explanations() -> list[Explanation]:
    with EXPLAINED.open(newline="") as file:
        return [Explanation(**line) for line in csv.DictReader(file)]


@dataclass(frozen=True)
class Counts:
    """Sums over rows."""

    n_cases: int
    inconclusive: Counter[str]
    n_outputs: int
    n_different: int
    n_known: int
    n_alarms: int

    @property
    def n_inconclusive(self) -> int:
        return sum(self.inconclusive.values())


def counts(rows: Iterable[Row]) -> Counts:
    rows = list(rows)
    codes = Counter(row.said[0][0] for row in rows if row.status == "inconclusive")
    return Counts(
        len(rows),
        codes,
        sum(row.n_outputs for row in rows),
        sum(row.n_outputs - row.n_identical for row in rows),
        sum(row.n_known for row in rows),
        sum(row.n_alarmed for row in rows),
    )


def upper_bound(n_alarms: int, n_different: int) -> float:
    """The largest rate that gives so few alarms among so many outputs more seldom than one time in twenty.

    Source: Clopper and Pearson, "The use of confidence or fiducial limits illustrated in the case of the binomial"
    (1934), one-sided.
    """
    n_others = n_different - n_alarms
    return float(beta.ppf(CONFIDENCE, n_alarms + 1, n_others)) if n_others else 1.0


# --- the page ----------------------------------------------------------------------------------------------------


def page(files: Sequence[dict[str, Any]], notes: Sequence[str] = ()) -> str:
    """The whole document for one merged file of each device and source; ``notes`` are told below the summary."""
    told = [line for note in notes for line in (note, "")]
    lines = [HEAD, *_summary(files), *told, *(line for found in files for line in _section(found))]
    return "\n".join(lines).rstrip() + "\n"


def _source(found: dict[str, Any]) -> str:
    """``samples`` or ``zoo``; files were without it when there was one."""
    return str(found.get("source", "samples"))


def _summary(files: Sequence[dict[str, Any]]) -> Iterator[str]:
    yield f"| {' | '.join(('device', 'cases of', *COLUMNS))} |"
    yield "|---" * (len(COLUMNS) + 2) + "|"
    for found in files:
        name = f"{EVIDENCE[found['evidence']]} | {SOURCES[_source(found)]}"
        yield _line(name, counts(from_json(row) for row in found["rows"]))
    yield ""


def _section(found: dict[str, Any]) -> Iterator[str]:
    rows = [from_json(row) for row in found["rows"]]
    yield f"## {SOURCES[_source(found)].capitalize()} on {EVIDENCE[found['evidence']]}"
    yield ""
    distinct = f"{_replayed(len(rows), len(found['left']))} of {len({row.op for row in rows}):,} ops"
    yield (
        f"{found['device']}, torch {found['torch']}, {found['date']}: {_recorded(found)}, {distinct} replayed"
        + (f" in {found['replayed_s']:,.0f} s." if found["replayed_s"] else ".")
        + (f" Not whole: {found['lost']}." if found["lost"] else "")
    )
    yield ""
    yield from _table("class", rows, lambda row: row.op_class, sorted({row.op_class for row in rows}))
    yield from _table("dtype", rows, lambda row: row.dtype, _dtypes(rows))
    yield from _matrix(rows)
    yield from _findings(rows)


def _recorded(found: dict[str, Any]) -> str:
    if _source(found) == "zoo":
        return f"{found['n_samples']} programs, {found['n_calls']:,} calls"
    return f"{found['n_samples']:,} samples ({found['n_raised']} raised on the CPU)"


def _replayed(n_rows: int, n_left: int) -> str:
    """``all 4,096 distinct cases``, or how many of them were come to in the time that there was."""
    if not n_left:
        return f"all {n_rows:,} distinct cases"
    return f"{n_rows:,} ({100 * n_rows / (n_rows + n_left):.1f} %) of {n_rows + n_left:,} distinct cases"


def _dtypes(rows: Iterable[Row]) -> list[str]:
    found = {row.dtype for row in rows}
    return [dtype for dtype in DTYPES if dtype in found] + sorted(found - set(DTYPES))


def _table(name: str, rows: Sequence[Row], key: Callable[[Row], str], values: Sequence[str]) -> Iterator[str]:
    yield f"| {' | '.join((name, *COLUMNS))} |"
    yield "|---" * (len(COLUMNS) + 1) + "|"
    for value in values:
        yield _line(value, counts(row for row in rows if key(row) == value))
    yield _line("**all**", counts(rows))
    yield ""


def _line(name: str, total: Counts) -> str:
    share = f"{1000 * total.n_alarms / total.n_different:.2f}" if total.n_different else ""
    bound = f"{1000 * upper_bound(total.n_alarms, total.n_different):.2f}" if total.n_different else ""
    codes = ", ".join(f"{count} {code}" for code, count in sorted(total.inconclusive.items()))
    unsaid = f"{_percent(total.n_inconclusive / total.n_cases)} ({codes})" if codes else "0"
    numbers = [f"{n:,}" for n in (total.n_outputs, total.n_different, total.n_known, total.n_alarms)]
    return f"| {' | '.join((name, f'{total.n_cases:,}', unsaid, *numbers, share, bound))} |"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %" if share >= 0.0005 else "< 0.1 %"


def _matrix(rows: Sequence[Row]) -> Iterator[str]:
    dtypes = _dtypes(rows)
    yield "Alarms / outputs that differ, by class and dtype; below it the inconclusive of all cases, if there are any:"
    yield ""
    yield f"| class | {' | '.join(dtypes)} |"
    yield "|---" * (len(dtypes) + 1) + "|"
    cells: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        cells.setdefault((row.op_class, row.dtype), []).append(row)
    for op_class in sorted({row.op_class for row in rows}):
        yield f"| {op_class} | {' | '.join(_cell(cells.get((op_class, dtype), [])) for dtype in dtypes)} |"
    yield ""


def _cell(rows: Sequence[Row]) -> str:
    if not rows:
        return ""
    total = counts(rows)
    unsaid = f"<br>{total.n_inconclusive} of {total.n_cases}" if total.n_inconclusive else ""
    return f"{total.n_alarms} / {total.n_different}{unsaid}"


# --- what was found ----------------------------------------------------------------------------------------------


def _findings(rows: Sequence[Row]) -> Iterator[str]:
    known = explanations()
    groups: dict[tuple[str, str, str], list[tuple[Row, str]]] = {}
    for row in rows:
        for code, status, message, _, behaviour in row.said:
            why = next((e.why for e in known if e.fits(row, code, message)), UNEXPLAINED)
            why = f"known: {behaviour}" if status == "supported" else why
            groups.setdefault((code, row.op, why), []).append((row, message))
    if not groups:
        yield "Nothing was found."
        yield ""
        return
    yield "What was found, with one of the messages and why it is true:"
    yield ""
    yield "| code | op | cases | dtypes | for example | why |"
    yield "|---|---|---|---|---|---|"
    for (code, op, why), found in sorted(groups.items()):
        dtypes = ", ".join(_dtypes(row for row, _ in found))
        cases = len({row.key for row, _ in found})
        yield f"| {code} | `{op}` | {cases} | {dtypes} | {_plain(found[0][1])} | {why} |"
    yield ""


def _plain(message: str) -> str:
    """A message as a cell of a table, not longer than two lines of it."""
    line = " ".join(message.split()).replace("|", "¦").replace("<", "&lt;")
    return line if len(line) <= 160 else line[:159] + "…"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.alarms.page", description=__doc__)
    parser.add_argument("files", nargs="+", type=Path, help="what python -m tests.alarms wrote")
    parser.add_argument("-o", "--output", type=Path, default=DOCUMENT, help="the page (docs/false-alarms.md)")
    parser.add_argument("--note", action="append", default=[], help="what a reader should know, below the summary")
    args = parser.parse_args()
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for path in args.files:
        found = json.loads(path.read_text())
        groups.setdefault((found["evidence"], _source(found)), []).append(found)
    args.output.write_text(page([merged(parts) for parts in groups.values()], args.note))


if __name__ == "__main__":
    main()
