"""What a product or convolution compared in parts shows of a fault, by its size: ``python -m tests.sensitivity FILE
[TRIALS]``.

Writes the tables of docs/sensitivity.md below a mark in FILE: of a product of the bar's depth at a 64th of its
elements, of the whole product, and of convolutions by Winograd's algorithm.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import torch

from tests.sensitivity import convolutions
from tests.sensitivity.products import FAULTS, Trial
from tests.sensitivity.trials import Found, costs, judged

WHOLE = (8192, 4096, 14336)
PART = (1024, 4096, 1792)
N_TRIALS = 100
_IMAGE = "3x3 convolution of [2, 64, 28, 28] to 64 channels"
CONVOLUTIONS = {
    torch.float32: f"{_IMAGE} in float32, by Winograd's F(2, 3), F(4, 3) or F(6, 3)",
    torch.float16: f"{_IMAGE} in float16, by Winograd's F(2, 3) with transforms in float16",
}
_UNITS = {name: fault.unit for name, fault in (*FAULTS.items(), *convolutions.FAULTS.items())}
#: What stands below it in the file is written again; what stands above is kept.
MARKER = "<!-- written by tests.sensitivity -->\n"


def main(path: Path, n_trials: int) -> None:
    lines = ["", f"### {_sizes(PART)}, {n_trials} trials with new data and places", ""]
    lines += _table(_run(PART, range(n_trials), sweep=True), n_trials)
    lines += ["", f"### {_sizes(WHOLE)}, {n_trials} trials", ""]
    lines += _table(_run(WHOLE, range(1000, 1000 + n_trials), sweep=False), n_trials)
    for dtype, how in CONVOLUTIONS.items():
        found = _trials(f"convolution, {dtype}", range(n_trials), partial(convolutions.judged, dtype=dtype))
        lines += ["", f"### {how}, {n_trials} trials", "", *_table(found, n_trials)]
    lines += ["", *_times()]
    kept = path.read_text().partition(MARKER)[0] if path.exists() else ""
    path.write_text(kept + MARKER + "\n".join(lines) + "\n")


def _sizes(sizes: tuple[int, int, int]) -> str:
    rows, depth, columns = sizes
    return f"[{rows}, {depth}] x [{depth}, {columns}] in bfloat16"


def _run(sizes: tuple[int, int, int], seeds: range, sweep: bool) -> list[Found]:
    return _trials(_sizes(sizes), seeds, partial(judged, sizes=sizes, sweep=sweep))


def _trials(what: str, seeds: range, judge: Callable[[int], Iterable[Found]]) -> list[Found]:
    found: list[Found] = []
    for seed in seeds:
        found += judge(seed)
        print(f"{what}: trial {seed}", file=sys.stderr, flush=True)
    return found


def _table(found: list[Found], n_trials: int) -> list[str]:
    """A row a fault and size: in how many trials it was found, by which rules."""
    lines = ["| fault | size | found | by NUM201 | by NUM212 |", "|---|---|---|---|---|"]
    counts: Counter[tuple[str, float, str]] = Counter()
    for one in found:
        counts.update((one.fault, one.size, code) for code in {*one.codes, *(["any"] if one.codes else [])})
    for fault, size in dict.fromkeys((one.fault, one.size) for one in found):
        caught = [counts[fault, size, code] for code in ("any", "NUM201", "NUM212")]
        unit = _UNITS.get(fault, "")
        lines.append(f"| {fault} | {_size(size)} {unit} | {caught[0]} of {n_trials} | {caught[1]} | {caught[2]} |")
    return lines


def _size(size: float) -> str:
    if not size:
        return ""
    return f"{size:g}" if size >= 1 else f"{100 * size:.3g} %"


def _times() -> list[str]:
    """Of the whole product, against its full reference in double precision."""
    clock, cpu = costs(Trial.make(5, *WHOLE), 5)
    return [
        f"With {torch.get_num_threads()} threads the reference in parts took {clock.prepare:.2f} s with its noise, the "
        f"comparison of all elements {clock.compare:.2f} s; the full product in double precision alone "
        f"{clock.full:.1f} s: {100 * clock.share:.1f} %, and {100 * cpu.share:.1f} % of its CPU time."
    ]


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else N_TRIALS)
