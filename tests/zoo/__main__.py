"""``python -m tests.zoo PROGRAM`` runs one program of the zoo, for an audit to trace; without a name it lists them."""

from __future__ import annotations

import sys

from tests.zoo.program import seeded
from tests.zoo.registry import PROGRAMS, find

if __name__ == "__main__":
    if len(sys.argv) < 2:
        for program in PROGRAMS:
            print(f"{program.name:40} {program.item}")
    else:
        for result in seeded(find(sys.argv[1]).step):
            print(tuple(result.shape), result.dtype)
