"""``rocm-audit doctor``: the arguments of it; what it looks at is in ``audit.doctor``."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from audit.terminal import add_output_options

_EPILOG = """examples:
  rocm-audit doctor                    what is here, in a few seconds
  rocm-audit doctor --selftest         does the audit work here; leaves a file to send back
  rocm-audit doctor --device sim --json
exit codes: 0 all is well, 2 wrong use, 3 a check failed, or the audit does not work here"""


def add_doctor(commands: Any) -> None:
    parser = commands.add_parser(
        "doctor",
        help="what is here, and does the audit itself work here",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--selftest", action="store_true", help="plant faults and look for a known GEMM in the profiler"
    )
    parser.add_argument("--device", default="auto", help="auto, hip, cuda or sim (auto)")
    parser.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="the file to send back (rocm-audit-doctor.json)"
    )
    parser.add_argument("--force", action="store_true", help="replace that file")
    add_output_options(parser)
    parser.set_defaults(command=_doctor)


def _doctor(options: argparse.Namespace) -> int:
    from audit.doctor import doctor

    return doctor(
        selftest=options.selftest,
        device=options.device,
        output=options.output,
        force=options.force,
        as_json=options.json,
        verbose=options.verbose,
    )
