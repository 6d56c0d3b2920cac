"""Completion for shells: asked as bash asks it, and refused where what makes it is not there."""

from __future__ import annotations

import subprocess
import sys

import pytest

from audit.cli import main

#: What readline does with a word that is not finished; prints the candidates.
_ASK = """
eval "$1"; shift
function=$(complete -p rocm-audit | sed 's/.*-F \\([^ ]*\\).*/\\1/')
COMP_WORDS=(rocm-audit "$@"); COMP_CWORD=$#; COMP_LINE="rocm-audit $*"; COMP_POINT=${#COMP_LINE}
$function; printf '%s\\n' "${COMPREPLY[@]}"
"""


def candidates(code: str, *words: str) -> set[str]:
    command = ["bash", "-c", _ASK, "bash", code, *words]
    return set(subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.split())


def test_bash_completes_commands_options_and_values(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("shtab", reason="the extra `completion` is not installed")
    with pytest.raises(SystemExit) as ended:
        main(["--print-completion", "bash"])
    assert ended.value.code == 0
    code = capsys.readouterr().out
    assert candidates(code, "ga") == {"gate"}
    assert candidates(code, "gate", "--allow-other") == {"--allow-other-evidence", "--allow-other-gpu"}
    assert candidates(code, "run", "--mode", "") == {"infer", "train"}


def test_without_what_makes_it_the_sentence_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert main(["--print-completion", "zsh"]) == 2
    assert capsys.readouterr().err.rstrip().endswith("pip install shtab [no-package]")
    assert main(["--print-completion", "fish"]) == 2
