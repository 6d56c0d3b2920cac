"""Root causes: what was found before any case, so that one cause is one headline and not five hundred verdicts.

A machine with a GPU is looked at by ``audit.device.preflight``; where nothing runs, the arch is looked up here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from audit.knowledge.archs import newest_release_with_archs
from audit.schema import DeviceInfo, Finding, PreflightCheck

#: Codes by the name of the check; any other check is SUP119.
CODES: Mapping[str, str] = {
    "arch": "SUP110",
    "arch override": "SUP111",
    "mixed gpus": "SUP112",
    "rocm": "SUP113",
    "one kernel": "SUP114",
}


def preflight(device: DeviceInfo, environment: Mapping[str, str]) -> tuple[PreflightCheck, ...]:
    """For runs where nothing runs on a device: whether torch wheels have code for the arch.

    ``environment`` is that of the tracing machine. Its ``arch_list`` counts where it is a ROCm build's; otherwise the
    newest wheels known here do.
    """
    if not device.arch.startswith("gfx"):
        return ()
    listed = tuple(arch.split(":")[0] for arch in environment.get("arch_list", "").split() if arch.startswith("gfx"))
    build = "this torch was built"
    if not listed:
        release = newest_release_with_archs()
        listed, build = release.archs, f"the newest ROCm wheels known here (torch {release.torch_version}) are built"
    if device.arch in listed:
        return (PreflightCheck("arch", "ok", f"{build} for {device.arch}"),)
    return (
        PreflightCheck(
            "arch",
            "failed",
            f"{build} for {', '.join(listed)}, not for {device.arch}; without it every kernel fails with "
            "'invalid device function'",
            "install a torch built for this GPU; HSA_OVERRIDE_GFX_VERSION helps only inside one ISA family",
        ),
    )


def root_causes(checks: Iterable[PreflightCheck]) -> Iterator[Finding]:
    """Failed checks first, then warnings as notes, each with the remedy in its data."""
    order = {"failed": 0, "warning": 1}
    for check in sorted((check for check in checks if check.result in order), key=lambda check: order[check.result]):
        yield Finding(
            CODES.get(check.name, "SUP119"),
            "unsupported" if check.result == "failed" else "supported",
            check.message,
            {"check": check.name, "remedy": check.remedy},
        )
