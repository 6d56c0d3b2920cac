"""``make bench``: what tracing, replaying and reporting cost on this machine. Prints medians, asserts nothing.

``python -m tests.bench [PART ...]`` runs only the parts named.
"""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable, Iterator

import torch

from tests.bench import (
    dashboard,
    files,
    gpu,
    large,
    memory,
    opsets,
    reference,
    replaying,
    reporting,
    site_pages,
    tracing,
)
from tests.bench.lines import Line

PARTS: dict[str, Callable[[], Iterator[Line]]] = {
    "tracing": tracing.measure,
    "files": files.measure,
    "opsets": opsets.measure,
    "reference": reference.measure,
    "replaying": replaying.measure,
    "gpu": gpu.measure,
    "large": large.measure,
    "memory": memory.measure,
    "reporting": reporting.measure,
    "pages": site_pages.measure,
    "dashboard": dashboard.measure,
}


def main(names: list[str]) -> int:
    unknown = set(names) - set(PARTS)
    if unknown:
        print(f"unknown: {', '.join(sorted(unknown))}; parts are {', '.join(PARTS)}", file=sys.stderr)
        return 2
    print(f"torch {torch.__version__}, Python {platform.python_version()}, {torch.get_num_threads()} threads\n")
    print("| measured | median | aim | how |\n|---|---|---|---|")
    for name in names or PARTS:
        for line in PARTS[name]():
            print(f"| {line.what} | {line.value} | {line.aim} | {line.how} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
