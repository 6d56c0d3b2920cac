"""``rocm-audit trace show|diff|merge``: results on stdout, exit codes, and no torch."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from audit.cli import _parse as parse
from audit.cli import main
from audit.opset import read_opset, write_opset
from audit.schema import Copy, NotAudited, Source, Trace
from tests.opset.test_merging import EXP, SIN, TRACE, write

HOSTILE = "m\x1b[31mod\u202eule [bold]x[/bold]"


@pytest.fixture
def two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``a.audit`` with values for exp, and ``b.audit`` without sin."""
    monkeypatch.chdir(tmp_path)
    write(Path("a.audit"), TRACE, exp_0=(1.0, 2.0))
    write_opset(Path("b.audit"), replace(TRACE, cases=(EXP,), n_recorded=5), None)


def shown(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> str:
    assert main(["trace", *words]) == code
    return capsys.readouterr().out


def shown_json(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> Any:
    return json.loads(shown(capsys, *words, "--json", code=code))


def test_what_an_op_of_the_programs_own_copied_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    copied = NotAudited("mine::op.default", "custom op", 1, copies=(Copy("DtoH", 64), Copy("HtoD", 64)))
    write_opset(tmp_path / "c.audit", Trace(Source("script", "x.py"), {}, (), (copied,), 1), None)
    [item] = shown_json(capsys, "show", str(tmp_path / "c.audit"))["not_audited"]
    assert item["copies"] == [
        {"direction": "DtoH", "nbytes": 64, "count": 1},
        {"direction": "HtoD", "nbytes": 64, "count": 1},
    ]


@pytest.mark.usefixtures("two")
def test_show_lists_ops_and_what_is_not_audited(capsys: pytest.CaptureFixture[str]) -> None:
    record = shown_json(capsys, "show", "a.audit")
    assert record["ops"] == [
        {"op": "aten::exp.default", "n_cases": 1, "n_calls": 3, "phases": {"forward": 3}, "dtypes": ["float32"],
         "value_bytes": 8},
        {"op": "aten::sin.default", "n_cases": 1, "n_calls": 1, "phases": {"forward": 1}, "dtypes": ["float32"],
         "value_bytes": 0},
    ]  # fmt: skip
    wanted = {**asdict(NotAudited("y", "z", 2)), "copies": []}
    assert record["not_audited"] == [{name: value for name, value in wanted.items() if name != "kernels"}]
    assert (record["n_cases"], record["n_recorded"], record["environment"]["torch"]) == (2, 6, "2.13.0")
    text = shown(capsys, "show", "a.audit")
    assert "a.audit: x.py (script), 2 cases of 4 calls, 6 recorded" in text
    assert "exp" in text


@pytest.mark.usefixtures("two")
@pytest.mark.parametrize(
    ("words", "keys"),
    [
        (["exp-0"], ["exp-0"]),
        (["s"], ["sin-0"]),
        (["--op", "exp"], ["exp-0"]),
        (["--op", "aten::*"], ["exp-0", "sin-0"]),
        (["e", "--op", "*"], ["exp-0"]),
    ],
)
def test_show_gives_single_cases_in_full(capsys: pytest.CaptureFixture[str], words: list[str], keys: list[str]) -> None:
    assert [case["key"] for case in shown_json(capsys, "show", "a.audit", *words)] == keys
    text = shown(capsys, "show", "a.audit", *words)
    assert all(f"{key}  aten::" in text for key in keys)
    assert "storage 0, 0 + 2" in text


@pytest.mark.usefixtures("two")
def test_diff_exits_0_for_equal_traces_and_1_for_others(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown_json(capsys, "diff", "a.audit", "a.audit")["equal"] is True
    record = shown_json(capsys, "diff", "a.audit", "b.audit", code=1)
    assert [(case["key"], case["n_calls_a"], case["n_calls_b"]) for case in record["cases"]] == [("sin-0", 1, 0)]
    assert "differ in 1 case, and have 1 in common" in shown(capsys, "diff", "a.audit", "b.audit", code=1)


@pytest.mark.usefixtures("two")
def test_merge_writes_one_trace_and_replaces_nothing_unasked(capsys: pytest.CaptureFixture[str]) -> None:
    assert "c.audit: 2 cases from 11 calls" in shown(capsys, "merge", "a.audit", "b.audit", "-o", "c.audit")
    assert {case.key: case.n_calls for case in read_opset(Path("c.audit")).cases} == {"exp-0": 6, "sin-0": 1}
    shown(capsys, "merge", "a.audit", "b.audit", "-o", "c.audit", code=2)
    shown(capsys, "merge", "c.audit", "b.audit", "-o", "c.audit", "--force")
    assert read_opset(Path("c.audit")).n_recorded == 16


@pytest.mark.usefixtures("two")
@pytest.mark.parametrize(
    ("words", "slug"),
    [
        (["show"], "bad-arguments"),
        (["show", "nowhere.audit"], "unreadable-opset"),
        (["show", "a.audit", "tan"], "no-such-case"),
        (["show", "a.audit", "--op", "tan*"], "no-such-case"),
        (["diff", "a.audit"], "bad-arguments"),
        (["diff", "a.audit", "nowhere.audit"], "unreadable-opset"),
        (["merge", "a.audit", "b.audit"], "bad-arguments"),
        (["merge", "a.audit", "-o", "c.audit"], "bad-arguments"),
        (["merge", "a.audit", "b.audit", "-o", "b.audit"], "exists"),
    ],
)
def test_wrong_use_is_one_sentence_and_exit_code_2(
    capsys: pytest.CaptureFixture[str], words: list[str], slug: str
) -> None:
    assert main(["trace", *words]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.endswith(f"[{slug}]\n")


def test_a_verb_is_told_by_its_word_alone_and_a_script_of_that_name_by_its_folder() -> None:
    assert parse(["trace", "show", "m.audit"]).file == Path("m.audit")
    assert parse(["trace", "./show", "-o", "m.audit"]).target == "./show"
    assert parse(["trace", "show.py"]).target == "show.py"
    assert parse(["show"]).target == "show"


def test_names_from_a_stranger_stay_text_on_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    case = replace(EXP, modules=(HOSTILE,), sources=(HOSTILE,) * 30, args=(*EXP.args, HOSTILE))
    trace = replace(
        TRACE,
        source=replace(TRACE.source, name=HOSTILE, error=HOSTILE),
        environment={HOSTILE: HOSTILE},
        cases=(case, SIN),
        not_audited=(NotAudited(HOSTILE, HOSTILE, 1),),
        notes=(HOSTILE,),
    )
    write_opset(Path("a.audit"), trace, None)
    write_opset(Path("b.audit"), TRACE, None)
    for words, code in ((["show", "a.audit"], 0), (["show", "a.audit", "e"], 0), (["diff", "a.audit", "b.audit"], 1)):
        text = shown(capsys, *words, code=code)
        assert "[bold]x[/bold]" in text
        assert not {"\x1b", "\u202e"} & set(text)


@pytest.mark.usefixtures("two")
def test_the_verbs_load_no_torch(checkout: Path, tmp_path: Path) -> None:
    run = (
        "import sys; from audit.cli import main; "
        "codes = [main(['trace', *words.split()]) for words in sys.argv[1:]]; "
        "print(codes, 'torch' in sys.modules, file=sys.stderr)"
    )
    words = ["show a.audit", "diff a.audit b.audit", "merge a.audit b.audit -o c.audit"]
    done = subprocess.run(
        [sys.executable, "-c", run, *words], capture_output=True, text=True, check=True, timeout=120,
        env={"PYTHONPATH": str(checkout)},
    )  # fmt: skip
    assert done.stderr.strip() == "[0, 1, 0] False"
