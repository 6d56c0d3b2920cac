"""The layout of the repository: what stands at the top, what modules are called, what is left out of files."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

import pytest

TOP = {"audit", "docs", "examples", "opsets", "reports", "tests", "Makefile", "README.md", "pyproject.toml"}
#: Names that say nothing of what is inside.
EMPTY_WORDS = {"utils", "util", "helpers", "helper", "common", "manager", "core", "misc"}
#: Written in two halves, so that this file does not name them itself.
UNFINISHED = re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X)\b")
LONGEST_FUNCTION = 60


@pytest.fixture(scope="module")
def tracked(checkout: Path) -> list[Path]:
    """Every file that git tracks."""
    listed = subprocess.run(["git", "ls-files"], cwd=checkout, check=True, capture_output=True, text=True).stdout
    return [path for name in listed.splitlines() if (path := Path(name)) and (checkout / path).is_file()]


def test_nothing_else_stands_at_the_top(tracked: list[Path]) -> None:
    assert {path.parts[0] for path in tracked if not path.parts[0].startswith(".")} - TOP == set()


def test_a_module_is_named_after_what_it_defines(tracked: list[Path]) -> None:
    words = {path: set(re.split(r"_", path.stem)) | set(path.parts[:-1]) for path in tracked if path.suffix == ".py"}
    assert {str(path) for path, found in words.items() if found & EMPTY_WORDS} == set()


def test_every_module_says_what_it_is(checkout: Path, tracked: list[Path]) -> None:
    modules = [path for path in tracked if path.suffix == ".py" and path.parts[0] in ("audit", "tests", "examples")]
    silent = [str(path) for path in modules if ast.get_docstring(ast.parse((checkout / path).read_text())) is None]
    assert silent == []


def test_no_work_is_left_as_a_note(checkout: Path, tracked: list[Path]) -> None:
    texts = [path for path in tracked if path.suffix in (".py", ".md", ".toml", ".html", ".css", ".js")]
    assert [str(path) for path in texts if UNFINISHED.search((checkout / path).read_text())] == []


def test_a_function_fits_a_screen(checkout: Path, tracked: list[Path]) -> None:
    long = []
    for path in (path for path in tracked if path.parts[0] == "audit" and path.suffix == ".py"):
        for node in ast.walk(ast.parse((checkout / path).read_text())):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                assert node.end_lineno is not None
                if node.end_lineno - node.lineno >= LONGEST_FUNCTION:
                    long.append(f"{path}:{node.lineno} {node.name}")
    assert long == []
