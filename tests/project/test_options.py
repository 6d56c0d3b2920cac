"""Options and docs are held together: every option is described, every option that a page names exists."""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from audit.cli import _parse as parse
from audit.cli import _parser
from audit.errors import UsageError

#: Options of others that pages name, by whom they belong to.
OF_OTHERS = {
    "--rocm-audit": "pytest, by our plugin",
    "--rocm-audit-device": "pytest, by our plugin",
    "--help": "all",
    "--version": "rocm-audit itself",
    "--print-completion": "rocm-audit itself",
    "--attempt": "a repro script",
    "--timeout": "a repro script",
}


def parsers() -> dict[str, argparse.ArgumentParser]:
    parser, _ = _parser()
    actions = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    return dict(actions[0].choices)


def options(parser: argparse.ArgumentParser) -> set[str]:
    return {name for action in parser._actions for name in action.option_strings}


PARSERS = parsers()
COMMANDS = sorted(PARSERS)
SHARED = {"-h", "--help", "--json", "-q", "--quiet", "-v", "--verbose"}


def section(checkout: Path, heading: str) -> str:
    page = (checkout / "docs/command-line.md").read_text()
    found = re.search(rf"^##+ {re.escape(heading)}\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
    assert found is not None, f"docs/command-line.md has no heading {heading!r}"
    return found[1]


def named_options(text: str) -> set[str]:
    """Options in the code spans of a text, long and short."""
    spans = " ".join(re.findall(r"`([^`\n]+)`", text))
    return set(re.findall(r"(?<![\w-])--?[a-zA-Z][\w-]*", spans))


def test_there_are_the_commands_of_the_design() -> None:
    assert {"run", "trace", "trace show", "trace diff", "trace merge", "report", "gate", "doctor"} <= set(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_of_a_command_is_described_under_its_heading(checkout: Path, command: str) -> None:
    described = named_options(section(checkout, command)) | SHARED
    assert sorted(options(PARSERS[command]) - described) == []


@pytest.mark.parametrize("command", COMMANDS)
def test_no_option_is_described_that_a_command_does_not_have(checkout: Path, command: str) -> None:
    others = {"--", "--op"} if command == "trace" else {"--"}
    assert sorted(named_options(section(checkout, command)) - options(PARSERS[command]) - others) == []


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_json_quiet_and_verbose(checkout: Path, command: str) -> None:
    assert options(PARSERS[command]) >= SHARED
    assert named_options(section(checkout, "What a command prints")) >= SHARED


def pages(checkout: Path) -> Iterator[Path]:
    yield checkout / "README.md"
    for folder in ("docs", "examples", "opsets"):
        yield from (checkout / folder).rglob("*.md")


def test_no_page_names_an_option_that_does_not_exist(checkout: Path) -> None:
    known = set().union(*map(options, PARSERS.values())) | set(OF_OTHERS)
    unknown = []
    for page in pages(checkout):
        for span in re.findall(r"`(--[a-z][^`\n]*)`", page.read_text()):
            name = re.split(r"[ =,]", span)[0]
            if name not in known:
                unknown.append(f"{page.relative_to(checkout)}: {name}")
    assert unknown == []


def test_every_example_of_a_command_is_understood() -> None:
    n_examples = 0
    for command, parser in PARSERS.items():
        lines = [line.strip() for line in (parser.epilog or "").splitlines() if line.startswith("  rocm-audit")]
        assert lines, f"rocm-audit {command} --help has no example"
        for line in lines:
            words = shlex.split(re.split(r"  +", line)[0])[1:]
            assert " ".join(words).startswith(command), line
            assert hasattr(parse(words), "command"), line
            n_examples += 1
    assert n_examples > 20


@pytest.mark.parametrize("command", COMMANDS)
def test_quiet_and_verbose_are_not_given_together(command: str) -> None:
    with pytest.raises(UsageError, match="argument -v/--verbose: not allowed with argument -q/--quiet"):
        parse([*command.split(), "x", "-q", "-v"])
