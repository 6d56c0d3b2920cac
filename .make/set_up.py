"""Creates the virtual environment of this checkout: ``python .make/set_up.py FOLDER TORCH``; standard library only.

A torch that the running Python already has, a ROCm build above all, is used and never replaced, nor is anything else
it has: the environment sees its packages, and pip is held to their exact versions by a constraints file, so that
`pip freeze` changes by additions only. Only where there is no torch is the requirement TORCH installed.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
import site
import subprocess
import sys
import venv
from pathlib import Path

#: Versions that pip accepts in a constraint (PEP 440, normalised or not). Debian ships some that it does not.
_VERSION = re.compile(
    r"v?(\d+!)?\d+(\.\d+)*[-_.]?((a|b|c|rc|alpha|beta|pre|preview)[-_.]?\d*)?"
    r"(-\d+|[-_.]?(post|rev|r)[-_.]?\d*)?([-_.]?dev[-_.]?\d*)?(\+[a-z0-9]+([-_.][a-z0-9]+)*)?",
    re.IGNORECASE,
)


def constraints() -> str:
    """One ``name==version`` line for each package that this Python sees.

    Not the text of `pip freeze`: for a wheel that was installed from a file or an address it gives that place, and
    pip would fetch it again.
    """
    lines = set()
    for distribution in importlib.metadata.distributions():
        name, version = distribution.metadata["Name"], distribution.version
        if name and version and _VERSION.fullmatch(version):
            lines.add(f"{name}=={version}\n")
    return "".join(sorted(lines))


def site_folders() -> list[str]:
    """The folders that this Python takes its installed packages from."""
    folders = [*site.getsitepackages(), *([site.getusersitepackages()] if site.ENABLE_USER_SITE else [])]
    return [folder for folder in folders if os.path.isdir(folder)]


def create(folder: Path, share: bool) -> Path:
    """Creates the environment; its Python. With ``share`` it sees the packages of the running Python.

    The running Python may itself be that of a virtual environment (ROCm's container images do so). Then
    ``system_site_packages`` would show the packages of the Python below it, so its folders are added by a .pth file.
    """
    nested = sys.prefix != sys.base_prefix
    venv.create(folder, clear=True, with_pip=True, symlinks=True, system_site_packages=share and not nested)
    python = folder / "bin" / "python"
    if share and nested:
        code = "import sysconfig; print(sysconfig.get_path('purelib'))"
        target = subprocess.run([python, "-c", code], check=True, capture_output=True, text=True).stdout.strip()
        lines = [f"import site; site.addsitedir({place!r})\n" for place in site_folders()]
        Path(target, "shared_packages.pth").write_text("".join(lines))
    return python


def main(arguments: list[str]) -> int:
    folder, torch = Path(arguments[0]), arguments[1]
    if not (3, 10) <= sys.version_info[:2] <= (3, 13):
        print(f"Python 3.10 to 3.13 is needed, {sys.executable} is {sys.version.split()[0]}: make PYTHON=...")
        return 2
    if importlib.util.find_spec("ensurepip") is None:
        print(f"{sys.executable} cannot make virtual environments: sudo apt-get install python3-venv")
        return 2
    shared = importlib.util.find_spec("torch") is not None
    python = create(folder, shared)
    (folder / "constraints.txt").write_text(constraints() if shared else "")
    if shared:
        print(f"using the torch {importlib.metadata.version('torch')} of {sys.executable}")
        return 0
    print(f"{sys.executable} has no torch: installing {torch} into {folder}")
    return subprocess.run([python, "-m", "pip", "install", "--quiet", torch]).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
