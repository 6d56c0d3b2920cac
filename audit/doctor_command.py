"""``rocm-audit doctor``: the arguments of it; what it looks at is in ``audit.doctor``."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any


def add_doctor(commands: Any) -> None:
    parser = commands.add_parser("doctor", help="what is here, and does the audit itself work here")
    parser.add_argument(
        "--selftest", action="store_true", help="plant faults and look for a known GEMM in the profiler"
    )
    parser.add_argument("--device", default="auto", help="auto, hip, cuda or sim (auto)")
    parser.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="the file to send back (rocm-audit-doctor.json)"
    )
    parser.add_argument("--force", action="store_true", help="replace that file")
    parser.set_defaults(command=_doctor)


def _doctor(options: argparse.Namespace) -> int:
    from audit.doctor import doctor

    return doctor(selftest=options.selftest, device=options.device, output=options.output, force=options.force)
