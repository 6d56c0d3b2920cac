"""Derives ``dispatch.csv`` from torch's native_functions.yaml: which ops have a kernel for CUDA, which HIP shares.

Run as ``python -m audit.knowledge.derive_dispatch`` beside the torch to be described; torch is located, not imported.
ROCm builds register their kernels under the CUDA dispatch key, so one table serves both.
"""

from __future__ import annotations

import csv
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.metadata import distribution
from pathlib import Path
from typing import TextIO

YAML = "torchgen/packaged/ATen/native/native_functions.yaml"
SOURCE = "native_functions.yaml of the torch wheel"
FIELDS = ("op", "kind", "kernel", "arguments", "torch_version", "source")


@dataclass
class Entry:
    """One ``- func:`` block. ``dispatch`` maps a dispatch key to the kernel's name; None: no dispatch section.

    ``arguments`` is what stands between the brackets. ``ufunc``: torchgen generates the CPU and CUDA kernels from a
    scalar inner loop.
    """

    op: str
    arguments: str = ""
    dispatch: dict[str, str] | None = None
    delegate: str = ""
    ufunc: bool = False
    autogen: list[str] = field(default_factory=list)


def parse(text: str) -> list[Entry]:
    """The blocks of the file, in order. Only the keys that decide dispatch are read."""
    entries: list[Entry] = []
    inside_dispatch = False
    for line in text.splitlines():
        line = line.split(" #")[0].rstrip()
        if match := re.match(r"- func: ([\w.]+)\((.*)\) ->", line):
            entries.append(Entry(overload(match[1]), match[2]))
            inside_dispatch = False
        elif re.match(r"  dispatch:$", line):
            entries[-1].dispatch = {}
            inside_dispatch = True
        elif inside_dispatch and (match := re.match(r"    ([\w, ]+): (\S+)", line)):
            section = entries[-1].dispatch
            assert section is not None
            section.update((key.strip(), match[2]) for key in match[1].split(","))
        elif match := re.match(r"  (structured_delegate|autogen): (.+)", line):
            inside_dispatch = False
            if match[1] == "autogen":
                entries[-1].autogen = [overload(name.strip()) for name in match[2].split(",")]
            else:
                entries[-1].delegate = overload(match[2].strip())
        elif re.match(r"  \w", line):
            inside_dispatch = False
            if line.startswith("  ufunc_inner_loop:"):
                entries[-1].ufunc = True
    return entries


def overload(name: str) -> str:
    """``add.Tensor`` -> ``aten::add.Tensor``; ``relu`` -> ``aten::relu.default``."""
    return f"aten::{name}" if "." in name else f"aten::{name}.default"


def classify(entries: list[Entry]) -> Iterator[tuple[str, str, str]]:
    """(op, kind, kernel). Kinds: ``cuda`` its own kernel, ``composite`` built of other ops on every device, ``none``
    other devices only. An op that delegates to its out variant takes that one's kind."""
    by_op = {entry.op: entry for entry in entries}
    for entry in entries:
        kind, kernel = _kind(entry, by_op)
        yield entry.op, kind, kernel
        for generated in entry.autogen:
            if generated not in by_op:
                yield generated, "composite" if kind == "cuda" else kind, f"generated from {entry.op}"


def _kind(entry: Entry, by_op: dict[str, Entry]) -> tuple[str, str]:
    if entry.dispatch is not None and "CUDA" in entry.dispatch:
        return "cuda", entry.dispatch["CUDA"]
    if entry.ufunc:
        return "cuda", "generated ufunc"
    if entry.delegate:
        return _kind(by_op[entry.delegate], by_op)
    if entry.dispatch is None:
        return "composite", "CompositeImplicitAutograd"
    for key in ("CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional", "CompositeImplicitAutograd"):
        if key in entry.dispatch:
            return "composite", key
    sparse = sorted(key for key in entry.dispatch if key.endswith("CUDA"))
    return ("other layout", sparse[0]) if sparse else ("none", " ".join(sorted(entry.dispatch)))


def write(target: TextIO, entries: list[Entry], torch_version: str) -> None:
    """The table, sorted by op, each row with where it came from."""
    writer = csv.writer(target, lineterminator="\n")
    writer.writerow(FIELDS)
    arguments = {entry.op: entry.arguments for entry in entries}
    for op, kind, kernel in sorted(set(classify(entries))):
        writer.writerow((op, kind, kernel, arguments.get(op, ""), torch_version, SOURCE))


def main() -> None:
    """Writes the table for the torch installed in this environment to stdout."""
    torch = distribution("torch")
    text = Path(str(torch.locate_file(YAML))).read_text()
    write(sys.stdout, parse(text), torch.version.split("+")[0])


if __name__ == "__main__":
    main()
