"""``python -m tests.zoo PROGRAM`` runs one program of the zoo and prints a digest of what it computed.

For an audit to trace; without a name it lists the programs.
"""

from __future__ import annotations

import sys

from tests.zoo.program import digest, seeded
from tests.zoo.registry import PROGRAMS, find

if __name__ == "__main__":
    if len(sys.argv) < 2:
        for program in PROGRAMS:
            print(f"{program.name:40} {program.item}")
    else:
        print(digest(seeded(find(sys.argv[1]).step)))
