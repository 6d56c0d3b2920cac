"""Configuration files: what they set, who has the last word, and what is wrong with them in one sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from audit.cli import _parse as parse
from audit.config import OPTIONS, find_options
from audit.errors import UsageError


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_file_sets_what_the_command_line_does_not(folder: Path) -> None:
    (folder / "rocm-audit.toml").write_text(
        '[run]\ndevice = "sim"\nsteps = 5\nfail-on = ["divergent", "slow"]\n[gate]\npolicy = "ci/policy.toml"\n'
    )
    options = parse(["run", "model.py", "--steps", "3"])
    assert (options.device, options.steps, options.fail_on) == ("sim", 3, {"divergent", "slow"})
    assert parse(["model.py"]).steps == 5
    assert parse(["gate", "a", "b"]).policy == Path("ci/policy.toml")
    assert parse(["report", "out"]).folder == Path("out")


def test_pyproject_is_read_where_there_is_no_file_of_our_own(folder: Path) -> None:
    (folder / "pyproject.toml").write_text('[tool.rocm-audit.run]\ntime-budget = "15m"\n')
    assert parse(["run", "m.py"]).time_budget == 900.0
    (folder / "rocm-audit.toml").write_text("")
    assert parse(["run", "m.py"]).time_budget is None


def test_a_project_without_configuration_is_left_alone(folder: Path) -> None:
    assert find_options(folder) == ("", {})
    (folder / "pyproject.toml").write_text("[project]\nname = 'x'\n[tool.ruff]\n")
    assert find_options(folder) == ("", {})


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[runs]", "rocm-audit.toml has an unknown key 'runs'; did you mean 'run'?"),
        (
            '[run]\ntime-budgets = "1m"',
            "rocm-audit.toml: run has an unknown key 'time-budgets'; did you mean 'time-budget'?",
        ),
        ("[run]\nqqq = 1", "known are device, gpu, steps"),
        ("run = 3", "run is a table of options"),
        ("[run]\nsteps = [1]", "run.steps is a text, a number or a list of texts"),
        ("[run]\nsteps = 0", "rocm-audit.toml: argument --steps: expected a positive number"),
        ('[run]\ndevice = "--force"', ""),
        ("[run", "rocm-audit.toml is no TOML"),
        ("[run]\n" + "#" * (1 << 20), "bytes, and is no configuration"),
    ],
)
def test_a_bad_file_is_one_sentence(folder: Path, text: str, sentence: str) -> None:
    (folder / "rocm-audit.toml").write_text(text)
    if not sentence:  # a value is a value, whatever it looks like
        assert parse(["run", "m.py"]).device == "--force"
        return
    with pytest.raises(UsageError, match=r"\[bad-configuration\]$") as caught:
        parse(["run", "m.py"])
    assert sentence in str(caught.value)


def test_a_link_to_a_configuration_that_is_gone_is_not_taken_for_none(folder: Path) -> None:
    (folder / "rocm-audit.toml").symlink_to("nowhere.toml")
    with pytest.raises(UsageError, match=r"a link to none.*\[bad-configuration\]"):
        parse(["run", "m.py"])


def test_help_needs_no_sound_configuration(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "rocm-audit.toml").write_text("[run")
    with pytest.raises(SystemExit):
        parse(["run", "--help"])
    assert "--time-budget" in capsys.readouterr().out


def test_what_was_typed_wrong_is_blamed_on_the_typing(folder: Path) -> None:
    (folder / "rocm-audit.toml").write_text('[run]\ndevice = "sim"\n')
    with pytest.raises(UsageError, match=r"\[bad-arguments\]$"):
        parse(["run", "m.py", "--steps", "0"])


def test_every_option_that_a_file_may_set_is_one_of_the_command() -> None:
    for command, names in OPTIONS.items():
        options = parse([command, "a"])
        assert [name for name in names if not hasattr(options, name.replace("-", "_"))] == []
