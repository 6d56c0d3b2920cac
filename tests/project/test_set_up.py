"""Setting up never replaces a torch that is there, nor anything else, and says what it needs where it cannot go on."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

#: The Python below the one that runs the tests: it stands for a system Python.
#: The Python below this environment; ``sys._base_executable`` is the environment's own before Python 3.11.
SYSTEM_PYTHON = Path(sys.base_prefix, "bin", f"python{sys.version_info[0]}.{sys.version_info[1]}")


def write_wheel(folder: Path, name: str, version: str) -> Path:
    """A wheel with one module that says its version."""
    info = f"{name}-{version}.dist-info"
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{name}/__init__.py", f"__version__ = {version!r}\n")
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")
    return path


def run(*command: object, **variables: str) -> str:
    """Runs a command to its end; its standard output. Fails the test with everything it printed."""
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, env={**os.environ, **variables}, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def install(python: Path, *wheels: Path) -> None:
    run(python, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", *wheels)


def freeze(python: Path) -> set[str]:
    return set(run(python, "-m", "pip", "freeze", "--all").split("\n")) - {""}


@pytest.fixture
def rocm_python(tmp_path: Path) -> Path:
    """A Python as in ROCm's container images: a virtual environment with a ROCm torch and triton in it."""
    folder = tmp_path / "rocm python"
    venv.create(folder, with_pip=True, symlinks=True)
    python = folder / "bin" / "python"
    wheels = [("torch", "2.12.7+rocm7.2"), ("triton", "3.6.7+rocm7.2"), ("pandas", "2.0.99")]
    install(python, *(write_wheel(tmp_path, name, version) for name, version in wheels))
    return python


def test_a_torch_inside_a_virtual_environment_is_seen_and_held(
    checkout: Path, rocm_python: Path, tmp_path: Path
) -> None:
    said = run(rocm_python, checkout / ".make/set_up.py", tmp_path / "made", "torch==0.0.0")
    assert "using the torch 2.12.7+rocm7.2 of" in said
    assert run(tmp_path / "made/bin/python", "-c", "import torch; print(torch.__version__)") == "2.12.7+rocm7.2\n"
    constraints = (tmp_path / "made/constraints.txt").read_text().splitlines()
    assert {"torch==2.12.7+rocm7.2", "triton==3.6.7+rocm7.2", "pandas==2.0.99"} <= set(constraints)


def test_a_torch_in_the_user_site_of_a_system_python_is_seen(checkout: Path, tmp_path: Path) -> None:
    # Not `-m site --user-site`, whose exit code says whether the user site is there yet.
    code = "import site; print(site.getusersitepackages())"
    user = run(SYSTEM_PYTHON, "-c", code, PYTHONUSERBASE=str(tmp_path / "user")).strip()
    with zipfile.ZipFile(write_wheel(tmp_path, "torch", "2.11.7+rocm7.1")) as archive:
        archive.extractall(user)
    said = run(
        SYSTEM_PYTHON,
        checkout / ".make/set_up.py",
        tmp_path / "made",
        "torch==0.0.0",
        PYTHONUSERBASE=str(tmp_path / "user"),
    )
    assert "using the torch 2.11.7+rocm7.1 of" in said
    code = "import torch; print(torch.__version__)"
    assert run(tmp_path / "made/bin/python", "-c", code, PYTHONUSERBASE=str(tmp_path / "user")) == "2.11.7+rocm7.1\n"


def test_where_there_is_no_torch_the_named_one_is_installed(checkout: Path, tmp_path: Path) -> None:
    folder = tmp_path / "bare"
    venv.create(folder, with_pip=False, symlinks=True)
    wheel = write_wheel(tmp_path, "torch", "2.10.7")
    run(folder / "bin/python", checkout / ".make/set_up.py", tmp_path / "made", wheel, PIP_NO_INDEX="1")
    assert run(tmp_path / "made/bin/python", "-c", "import torch; print(torch.__version__)") == "2.10.7\n"
    assert (tmp_path / "made/constraints.txt").read_text() == ""


@pytest.mark.slow
def test_versions_that_pip_refuses_are_left_out_of_the_constraints(
    checkout: Path, rocm_python: Path, tmp_path: Path
) -> None:
    site_packages = next((rocm_python.parent.parent / "lib").glob("python*/site-packages"))
    (site_packages / "odd-1.dist-info").mkdir()
    (site_packages / "odd-1.dist-info/METADATA").write_text(
        "Metadata-Version: 2.1\nName: odd\nVersion: 1.16-unknown~deb\n"
    )
    run(rocm_python, checkout / ".make/set_up.py", tmp_path / "made", "torch==0.0.0")
    assert "odd" not in (tmp_path / "made/constraints.txt").read_text()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_installing_changes_what_is_there_by_additions_only(checkout: Path, rocm_python: Path, tmp_path: Path) -> None:
    """Needs the package registry: installs the project with its test dependencies beside a ROCm torch."""
    clone = tmp_path / "a clone"
    wanted = shutil.ignore_patterns(
        ".git", ".venv", "reports", "__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache"
    )
    shutil.copytree(checkout, clone, ignore=wanted)
    before_there = freeze(rocm_python)
    run("make", "-C", clone, ".venv/.test", f"PYTHON={rocm_python}")
    after = freeze(clone / ".venv/bin/python")
    assert freeze(rocm_python) == before_there
    assert "torch @ file" in str(before_there)
    assert before_there - after <= {line for line in before_there if line.startswith(("pip==", "setuptools=="))}
    assert run(clone / ".venv/bin/python", "-c", "import torch; print(torch.__version__)") == "2.12.7+rocm7.2\n"


def test_a_python_that_is_too_old_is_named_with_what_to_do(checkout: Path, tmp_path: Path) -> None:
    code = (
        "import runpy, sys; sys.version_info = (3, 9, 18, 'final', 0); sys.argv = ['set_up.py', 'made', 'torch'];"
        f"runpy.run_path({str(checkout / '.make/set_up.py')!r}, run_name='__main__')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 2
    assert "Python 3.10 to 3.13 is needed" in done.stdout
    assert not (tmp_path / "made").exists()
