"""Every message slug in the code is explained in docs/messages.md, and every explanation has its message."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

SLUG = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")


def raised_slugs(source: str) -> Iterator[str]:
    """The slugs of calls of error classes, of ``super().__init__`` in classes that derive from them, and at the end of
    a message that is printed as it stands."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from re.findall(r" \[([a-z]+(?:-[a-z]+)+)\]$", node.value)
        if not isinstance(node, ast.Call):
            continue
        if len(node.args) == 2 and (_is_error_class(node.func) or _is_super_init(node.func, node.args[1])):
            yield _literal(node.args[1])
        yield from (_literal(word.value) for word in node.keywords if word.arg == "slug")


def _is_error_class(function: ast.expr) -> bool:
    return isinstance(function, ast.Name) and function.id in ("AuditError", "UsageError", "UnfinishedError")


def _is_super_init(function: ast.expr, slug: ast.expr) -> bool:
    """``super().__init__(message, "slug")``; with a variable for the slug it is the base class itself."""
    return isinstance(function, ast.Attribute) and function.attr == "__init__" and isinstance(slug, ast.Constant)


def _literal(node: ast.expr) -> str:
    if isinstance(node, ast.IfExp):
        raise AssertionError(f"line {node.lineno}: write two raises, so that each slug stands beside its message")
    assert isinstance(node, ast.Constant), f"line {node.lineno}: a slug is a literal, so that it can be searched for"
    assert isinstance(node.value, str)
    return node.value


def documented_slugs(page: Path) -> list[str]:
    return re.findall(r"^## `?([a-z0-9-]+)`?$", page.read_text(), re.MULTILINE)


def slugs_in_code(checkout: Path) -> set[str]:
    return {slug for file in (checkout / "audit").rglob("*.py") for slug in raised_slugs(file.read_text())}


def test_the_finder_sees_every_way_in_which_a_message_is_raised() -> None:
    source = """
raise UsageError(f"no {x}", "no-x")
raise UnfinishedError("full", slug="disk-full")
class DecodeError(AuditError):
    def __init__(self, message):
        super().__init__(message, "malformed-record")
print(f"{error} [system-error]")
"""
    assert set(raised_slugs(source)) == {"no-x", "disk-full", "malformed-record", "system-error"}


def test_every_slug_in_the_code_is_explained(checkout: Path) -> None:
    assert sorted(slugs_in_code(checkout) - set(documented_slugs(checkout / "docs/messages.md"))) == []


def test_every_explained_slug_is_in_the_code(checkout: Path) -> None:
    assert sorted(set(documented_slugs(checkout / "docs/messages.md")) - slugs_in_code(checkout)) == []


def test_slugs_are_explained_once_in_alphabetical_order(checkout: Path) -> None:
    documented = documented_slugs(checkout / "docs/messages.md")
    assert documented == sorted(set(documented))
    assert all(SLUG.fullmatch(slug) for slug in documented)
