"""Builds the CUDA runtime without kernels, by which a CPU build of torch shows the branches that a GPU would take."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_name("stand_in_cuda.cpp")


def compiler() -> str | None:
    """The C++ compiler of this machine, None where it has none."""
    return shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")


def build(folder: Path) -> Path:
    """Compiles the stand-in against the installed torch (some 3 s). Raises CalledProcessError with the output."""
    found = importlib.util.find_spec("torch")
    assert found is not None
    assert found.origin is not None
    torch, library = Path(found.origin).parent, folder / "stand_in_cuda.so"
    command = [
        str(compiler()), "-shared", "-fPIC", "-O0", "-w", "-std=c++20", f"-I{torch}/include",
        f"-I{torch}/include/torch/csrc/api/include", str(SOURCE), "-o", str(library),
        f"-L{torch}/lib", "-lc10", "-ltorch_cpu", f"-Wl,-rpath,{torch}/lib",
    ]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True, text=True)
    return library
