"""The wheel holds all of the package, its data and the opsets, and asks for no torch."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from email import message_from_string
from pathlib import Path

import pytest

DATA = (".csv", ".json", ".html", ".jinja", ".j2", ".css", ".js", ".audit", ".md")


@pytest.fixture(scope="module")
def wheel(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder], cwd=checkout, check=True)
    [path] = folder.glob("*.whl")
    return zipfile.ZipFile(path)


def tracked(checkout: Path, folder: str) -> set[str]:
    """Files under ``folder`` that git tracks, or will when they are added."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", folder]
    names = subprocess.run(command, cwd=checkout, check=True, capture_output=True, text=True).stdout.splitlines()
    return {name for name in names if (checkout / name).is_file()}


def test_every_module_and_data_file_is_in_the_wheel(checkout: Path, wheel: zipfile.ZipFile) -> None:
    wanted = {name for name in tracked(checkout, "audit") if name.endswith((".py", *DATA))}
    assert wanted - set(wheel.namelist()) == set()
    assert "audit/knowledge/gpus.csv" in wheel.namelist()
    assert any(name.startswith("audit/report/templates/") for name in wheel.namelist())


def test_the_opsets_are_shipped_inside_the_package(checkout: Path, wheel: zipfile.ZipFile) -> None:
    wanted = {f"audit/{name}" for name in tracked(checkout, "opsets")}
    assert wanted - set(wheel.namelist()) == set()
    assert "audit/opsets/README.md" in wheel.namelist()


def test_only_the_package_is_shipped(wheel: zipfile.ZipFile) -> None:
    assert {name.split("/")[0] for name in wheel.namelist() if ".dist-info/" not in name} == {"audit"}


def test_the_wheel_asks_for_no_torch(wheel: zipfile.ZipFile) -> None:
    [name] = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
    metadata = message_from_string(wheel.read(name).decode())
    required = [line for line in metadata.get_all("Requires-Dist", []) if "extra ==" not in line]
    assert [line for line in required if line.startswith(("torch", "triton", "transformers"))] == []
    assert metadata["Requires-Python"] == ">=3.10"


def test_the_command_is_installed(wheel: zipfile.ZipFile) -> None:
    [name] = [name for name in wheel.namelist() if name.endswith(".dist-info/entry_points.txt")]
    assert "rocm-audit = audit.__main__:start" in wheel.read(name).decode()
