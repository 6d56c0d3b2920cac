"""README and docs are held to the code: links, commands, statuses, devices, exit codes."""

from __future__ import annotations

import ast
import re
import shlex
from pathlib import Path

import pytest

from audit import errors
from audit.cli import _parse as parse
from audit.schema import EVIDENCE_BY_BACKEND, STATUSES

PAGES = ("README.md", "docs", "examples", "opsets")


def pages(checkout: Path) -> list[Path]:
    found = [checkout / "README.md", *(page for folder in PAGES[1:] for page in (checkout / folder).rglob("*.md"))]
    assert len(found) > 8
    return found


def anchors(page: Path) -> set[str]:
    """Anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def first_column(text: str, header: str) -> list[str]:
    """Code spans in the first column of the table whose header row starts with ``header``."""
    rows = text[text.index(f"| {header} |") :].split("\n\n")[0].splitlines()[2:]
    return [span for row in rows for span in re.findall(r"`([^`]+)`", row.split("|")[1])]


def make_targets(checkout: Path) -> set[str]:
    return set(re.findall(r"^([a-z]+):.*## ", (checkout / "Makefile").read_text(), re.MULTILINE))


def test_every_link_leads_to_a_file_and_a_heading(checkout: Path) -> None:
    broken = []
    for page in pages(checkout):
        for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
            if re.match(r"[a-z]+:", link):
                continue
            path, _, anchor = link.partition("#")
            target = (page.parent / path).resolve() if path else page
            if not target.exists() or (anchor and anchor not in anchors(target)):
                broken.append(f"{page.relative_to(checkout)}: {link}")
    assert broken == []


def test_every_make_command_in_the_docs_exists(checkout: Path) -> None:
    named = {word for page in pages(checkout) for word in re.findall(r"\bmake ([a-z]+)\b(?=[ `\n])", code_of(page))}
    assert named - make_targets(checkout) == set()
    assert {"demo", "test", "lint", "bench", "evidence", "gpu", "help"} <= named


def code_of(page: Path) -> str:
    """The code spans and code blocks of a page, a line each."""
    text = page.read_text()
    return "\n".join(re.findall(r"```[a-z]*\n(.*?)```", text, re.DOTALL) + re.findall(r"`([^`\n]+)`", text)) + "\n"


def audit_commands(page: Path) -> list[list[str]]:
    """Every ``rocm-audit ...`` of a page, without its comment and what is optional, as words."""
    spans = [re.split(r"  +| #| \|\| ", line)[0] for line in code_of(page).splitlines()]
    commands = [re.sub(r"\[[^\]]*\]", "", span) for span in spans if re.match(r"rocm-audit \S", span)]
    # Those that print and end as soon as they are parsed have tests of their own.
    return [shlex.split(command)[1:] for command in commands if not re.search("--help|--print-completion", command)]


def test_every_audit_command_in_the_docs_is_understood(checkout: Path) -> None:
    commands = [(page.name, words) for page in pages(checkout) for words in audit_commands(page)]
    assert len(commands) > 12
    for page, words in commands:
        assert hasattr(parse(words), "command"), f"{page}: rocm-audit {' '.join(words)}"


def test_readme_opens_with_the_demo_and_the_tests(checkout: Path) -> None:
    blocks = re.findall(r"```\n(.*?)```", (checkout / "README.md").read_text(), re.DOTALL)
    assert [line.split("#")[0].strip() for line in blocks[0].splitlines()] == ["make demo", "make test"]


def test_ci_runs_the_test_command_of_the_readme(checkout: Path) -> None:
    script = (checkout / ".ci/run").read_text()
    assert script.rstrip().splitlines()[-1] == "make test"
    packages = re.search(r"apt-get install (chromium [a-z-]+)", (checkout / "README.md").read_text())
    assert packages is not None
    assert packages[1] in script


def test_the_status_table_has_every_status_from_best_to_worst(checkout: Path) -> None:
    assert first_column((checkout / "README.md").read_text(), "status") == list(STATUSES)


@pytest.mark.parametrize("page", ["README.md", "docs/devices.md"])
def test_the_device_table_has_every_backend_with_its_evidence(checkout: Path, page: str) -> None:
    text = (checkout / page).read_text()
    header = "device" if page == "README.md" else "`--device`"
    named = {name.split(":")[0] for name in first_column(text, header)}
    assert {name for name in named if name not in ("auto", "auto (default)")} == set(EVIDENCE_BY_BACKEND) - {"cpu"}
    for backend, evidence in EVIDENCE_BY_BACKEND.items():
        if backend != "cpu":
            row = next(line for line in text.splitlines() if line.startswith(f"| `{backend}`"))
            assert f"`{evidence}`" in row


def exit_code_by_slug(checkout: Path) -> dict[str, set[int]]:
    """Exit codes with which each slug is raised in the code."""
    found: dict[str, set[int]] = {  # not raised by these classes
        "malformed-record": {2}, "program-ended": {3}, "device-specific-op": {3}
    }  # fmt: skip
    for file in (checkout / "audit").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or len(node.args) != 2:
                continue
            error = getattr(errors, node.func.id, None)
            if error is not None and isinstance(slug := node.args[1], ast.Constant):
                found.setdefault(str(slug.value), set()).add(error.exit_code)
    return found


def test_exit_codes_of_bad_input_are_those_of_the_code(checkout: Path) -> None:
    raised = exit_code_by_slug(checkout)
    rows = re.findall(
        r"^\| [^|]+ \| [^|]+ \| (`[^|]+) \| ([^|]+) \|$", (checkout / "docs/exit-codes.md").read_text(), re.M
    )
    assert len(rows) >= 12
    for slugs, codes in rows:
        documented = {int(code) for code in re.findall(r"\d", codes)}
        for slug in re.findall(r"`([^`]+)`", slugs):
            assert raised.get(slug) == documented, f"{slug}: documented {documented}, raised {raised.get(slug)}"


def test_docs_say_never_run_on_amd(checkout: Path) -> None:
    """Until a selftest file has come back from an AMD machine; then this test goes, with the sentences."""
    for page in ("README.md", "docs/devices.md", "docs/measurements.md"):
        assert "never run on amd" in (checkout / page).read_text().lower()
