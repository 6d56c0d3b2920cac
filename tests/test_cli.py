"""The command line by itself: parsing, and what happens without torch."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import audit
from audit.cli import _parse as parse
from audit.cli import main
from audit.errors import UsageError


def test_a_bare_script_is_the_run_command_and_its_own_arguments_follow_two_dashes() -> None:
    options = parse(["model.py", "--steps", "3", "--", "--batch", "8"])
    assert (options.target, options.steps, options.program_arguments) == ("model.py", 3, ("--batch", "8"))


def test_sizes_durations_and_lists_are_read_with_their_units() -> None:
    options = parse(["run", "m.py", "--values", "512M", "--time-budget", "15m", "--fail-on", "divergent, slow"])
    assert options.values == 512 << 20
    assert options.time_budget == 900.0
    assert options.fail_on == {"divergent", "slow"}


@pytest.mark.parametrize("bad", ["--values=lots", "--time-budget=-3", "--format=pdf", "--steps=many"])
def test_a_bad_option_is_one_sentence(bad: str) -> None:
    with pytest.raises(UsageError, match=r"see `rocm-audit run --help` \[bad-arguments\]"):
        parse(["run", "m.py", bad])


def test_without_torch_the_sentence_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ModuleNotFoundError(\"No module named 'torch'\", name='torch')\n")
    (tmp_path / "model.py").write_text("print('hello')\n")
    root = Path(audit.__file__).resolve().parents[1]
    done = subprocess.run(
        [sys.executable, "-m", "audit", "run", "model.py", "--device", "sim"],
        cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False,
        env={**os.environ, "PYTHONPATH": f"{tmp_path}:{root}"},
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.startswith("rocm-audit: tracing and replaying need torch")
    assert done.stderr.rstrip().endswith("[no-torch]")


@pytest.mark.parametrize("words", [["report", ""], ["gate", "", ""], ["run", "m.py", "--output="], [""]])
def test_an_empty_argument_is_a_variable_that_was_not_set(words: list[str]) -> None:
    """Taken for a path it would be the folder one works in: ``report "$DIR"`` would write there."""
    with pytest.raises(UsageError, match=r"an argument is empty.*\[bad-arguments\]"):
        parse(words)


@pytest.mark.parametrize(
    "words",
    [["run", "{}"], ["report", "{}"], ["gate", "{}", "."], ["trace", "m.py", "-o", "{}"], ["trace", "show", "{}"]],
)
def test_a_name_that_no_file_system_takes_is_wrong_use(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([word.format("n" * 300) for word in words]) == 2
    assert re.search(r"\[(name-too-long|unreadable-[a-z]+|no-target)\]$", capsys.readouterr().err.rstrip())


@pytest.mark.parametrize(
    ("raised", "slug"),
    [
        (MemoryError(), "out-of-memory"),
        (KeyError("\x1b[31m"), "own-fault"),
        (ModuleNotFoundError(name="audit.x"), "own-fault"),
    ],
)
def test_what_nobody_foresaw_is_no_tripped_gate(
    raised: Exception, slug: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Python's own exit code for it is 1."""

    def fail(_: Path) -> None:
        raise raised

    monkeypatch.setattr("audit.store.read_run", fail)
    assert main(["gate", "a", "b"]) == 3
    told = capsys.readouterr().err
    assert told.rstrip().endswith(f"[{slug}]")
    assert ("in fail" in told) == (slug == "own-fault"), "where it came from"
    assert "\x1b" not in told


@pytest.mark.parametrize("words", [["report"], ["run", "--device", "none"], ["gate", "p.json"]])
def test_a_named_pipe_is_not_waited_for(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("p.json", "p.jsonl"):
        os.mkfifo(name)
        assert main([*words, name]) == 2
        assert re.search(r"\[(unreadable-run|not-a-run|no-target|not-a-baseline)\]$", capsys.readouterr().err.rstrip())


def test_a_trace_into_a_file_taken_for_a_folder_is_refused_before_the_program_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program = tmp_path / "m.py"
    program.write_text("raise SystemExit('it ran')\n")
    assert main(["trace", str(program), "-o", str(program / "m.audit")]) == 2
    assert capsys.readouterr().err.rstrip().endswith("[unwritable-output]")
