"""``rocm-audit doctor``: what is here, and with ``--selftest`` whether the audit itself works here.

The selftest leaves one JSON file, meant to be sent back from a machine that the authors do not have: versions, GPUs,
variables by allow-list, what was found of the planted faults, and one matrix product. No paths, no user names.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

import audit
from audit.codec import encode
from audit.device.environment import Machine, collect_environment, look_at_machine
from audit.device.machine import machine_checks
from audit.device.registry import resolve
from audit.errors import UsageError
from audit.output_file import check_output_file
from audit.rules.preflight import preflight
from audit.run_records import PreflightCheck
from audit.schema import DeviceInfo
from audit.selftest import Found, GemmSeen, find_planted_faults, look_for_gemm
from audit.terminal import has_colour, print_result

DOCTOR_FORMAT = 1
DEFAULT_FILE = Path("rocm-audit-doctor.json")

_MARKS = {"ok": "[green]ok      [/]", "warning": "[yellow]warning [/]", "failed": "[red]failed  [/]"}


def doctor(
    *,
    selftest: bool = False,
    device: str = "auto",
    output: Path | None = None,
    force: bool = False,
    as_json: bool = False,
    verbose: bool = False,
) -> int:
    """Prints what was looked at. Exit code 0, or 3 where a check failed or the audit does not work here.

    ``as_json`` prints the file to send back in place of sentences, ``verbose`` the environment too.

    Raises UsageError for a device that is not here and for a file that exists and not ``force``.
    """
    file = output or (DEFAULT_FILE if selftest else None)
    if file is not None:
        check_output_file(file, force)
    name = resolve(device)
    is_gpu = name.startswith(("hip", "cuda"))
    console = _console(as_json)
    environment = collect_environment()
    checks = _checks(look_at_machine(probe=is_gpu), environment)
    _print_checks(console, checks)
    if verbose:
        for variable, value in environment.items():
            console.print(f"        {variable}: {value}", markup=False)
    found: tuple[Found, ...] = ()
    gemm: GemmSeen | None = None
    if selftest:
        console.print("\nfaults planted in the simulated device:")
        if problem := _sim_problem():
            # A product on the real device still tells something, and so does the file.
            checks = (*checks, problem)
            _print_checks(console, (problem,))
        else:
            found = find_planted_faults()
            _print_found(console, found)
        gemm = look_for_gemm(name) if is_gpu else None
        _print_gemm(console, gemm)
    content = document(environment, checks, found, gemm)
    if as_json:
        print_result(content)
    if file is not None:
        _write(file, content)
        console.print(f"\n{file}: {_please(name)}", markup=False)
    return 0 if works(checks, found, gemm) else 3


def _console(quiet: bool) -> Console:
    colour = has_colour(sys.stdout)
    return Console(highlight=False, soft_wrap=True, quiet=quiet, force_terminal=colour, no_color=not colour)


def works(checks: Sequence[PreflightCheck], found: Sequence[Found], gemm: GemmSeen | None) -> bool:
    """Nothing failed, every planted fault was found, and the matrix product was right and seen."""
    healthy = all(check.result != "failed" for check in checks)
    return healthy and all(item.right for item in found) and not (gemm is not None and gemm.problem)


def document(
    environment: dict[str, str], checks: Sequence[PreflightCheck], found: Sequence[Found], gemm: GemmSeen | None
) -> dict[str, Any]:
    """The file to send back, format 1."""
    return {
        "format_version": DOCTOR_FORMAT,
        "audit_version": audit.__version__,
        "created": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "works": works(checks, found, gemm),
        "environment": environment,
        "preflight": [encode(check) for check in checks],
        "planted": [
            {
                "op": item.planted.op,
                "fault": item.planted.fault,
                "expected": item.planted.expected,
                "status": item.status,
                "codes": list(item.codes),
            }
            for item in found
        ],
        "gemm": None if gemm is None else {
            "device": encode(gemm.device),
            "status": gemm.status,
            "problem": gemm.problem,
            "measurement": None if gemm.measurement is None else encode(gemm.measurement),
        },
    }  # fmt: skip


def _checks(machine: Machine, environment: dict[str, str]) -> tuple[PreflightCheck, ...]:
    """What this machine tells, then what follows from the device and the environment."""
    checks = machine_checks(machine)
    if not machine.gpus:
        return checks
    first = machine.gpus[0]
    device = DeviceInfo("hip" if machine.hip else "cuda", first.name, first.arch)
    return (*checks, *preflight(device, environment))


def _sim_problem() -> PreflightCheck | None:
    """That nothing can be planted, where this torch has no simulated device (2.9 has none)."""
    try:
        resolve("sim")
    except UsageError as error:
        return PreflightCheck("simulated device", "failed", str(error))
    return None


def _print_checks(console: Console, checks: Sequence[PreflightCheck]) -> None:
    for check in checks:
        console.print(f"{_MARKS[check.result]}{check.name}: ", end="")
        console.print(check.message, markup=False)
        if check.result != "ok" and check.remedy:
            console.print(f"        {check.remedy}", markup=False)


def _print_found(console: Console, found: Sequence[Found]) -> None:
    for item in found:
        mark = _MARKS["ok" if item.right else "failed"]
        status = item.status or "not judged"
        told = status if item.right else f"{status}, expected {item.planted.expected}"
        console.print(f"{mark}{item.planted.op}: {item.planted.fault}: {told}")


def _print_gemm(console: Console, gemm: GemmSeen | None) -> None:
    console.print("\na matrix product on the real device:")
    if gemm is None:
        console.print("not run: there is no GPU here, or none was asked for")
        return
    if gemm.problem:
        console.print(_MARKS["failed"], end="")
        console.print(gemm.problem, markup=False)
        return
    assert gemm.measurement is not None  # a problem otherwise
    names = ", ".join(kernel.name for kernel in gemm.measurement.path.kernels)
    console.print(f"{_MARKS['ok']}{gemm.status} on ", end="")
    console.print(f"{gemm.device.name} ({gemm.device.arch}); kernel: {names}", markup=False)


def _please(name: str) -> str:
    if name == "hip":
        return (
            "please send this file back; it holds versions, GPU names, and settings of ROCm and PyTorch, nothing else"
        )
    return "what was found here (from an AMD machine this file would be the first of its kind)"


def _write(file: Path, content: dict[str, Any]) -> None:
    partial = file.with_name(file.name + ".partial")
    try:
        partial.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        os.replace(partial, file)
    except OSError as error:
        with contextlib.suppress(OSError):  # the first error is the one to tell
            partial.unlink(missing_ok=True)
        raise UsageError(
            f"cannot write {file}: {error.strerror}; choose another with -o", "unwritable-output"
        ) from error
