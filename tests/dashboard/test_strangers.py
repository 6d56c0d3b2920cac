"""Run files of strangers, damaged at random or hostile by design: a site comes of them, or a sentence."""

from __future__ import annotations

import datetime
import json
import os
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from audit.cli import main
from audit.dashboard.arrange import arrange
from audit.dashboard.catalog import Catalog
from audit.dashboard.change_rows import LeftOut
from audit.dashboard.database import Database
from audit.dashboard.digest import Digest
from audit.dashboard.gather import RunFile
from audit.dashboard.judging import judge_file, judge_files
from audit.dashboard.registry import all_files
from audit.dashboard.site_file import SiteFile
from tests.dashboard.made_runs import MI300X, healthy_keys, write_run
from tests.opset.test_mutations import ODD, QUICK, Places

NOW = datetime.datetime(2026, 12, 1, tzinfo=datetime.timezone.utc)
KEYS = healthy_keys(4)
SLUGS = {"not-a-run", "malformed-record", "newer-format"}
SAFE_PATH = re.compile(r"([a-z0-9][a-z0-9.-]*/)?[a-z0-9][a-z0-9._-]*")


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    folder = write_run(tmp_path_factory.mktemp("run"), keys=KEYS, wrong=KEYS[:1], raising=KEYS[1:2], left_out=KEYS[2:3])
    return [json.loads(line) for line in (folder / "run.jsonl").read_text().splitlines()]


def file_of(path: Path) -> RunFile:
    return RunFile(path, "x/run.jsonl", "", "", path.stat().st_size)


def site_of(digest: Digest) -> list[SiteFile]:
    """Every file of the site of one run, made."""
    database = Database.open(None, "test")
    try:
        database.add("a" * 64, "h", digest)
        arrange(database, [], {}, NOW)
        files = list(all_files(Catalog(database, "0.1.0")))
        for file in files:
            made = file.make()
            assert isinstance(made, (str, bytes)) or all(isinstance(piece, str) for piece in made)
        return files
    finally:
        database.close()


def check(path: Path) -> None:
    """A digest of which a site can be made, or a reason why not."""
    judged = judge_file(file_of(path))
    if isinstance(judged, LeftOut):
        assert judged.slug in SLUGS, judged
        assert judged.reason.isprintable()
        assert len(judged.reason) <= 400
    else:
        assert all(SAFE_PATH.fullmatch(file.path) for file in site_of(judged[2]))


@settings(QUICK, max_examples=30)
@given(data=st.data())
def test_any_value_swapped_for_another(records: list[dict[str, Any]], tmp_path: Path, data: st.DataObject) -> None:
    changed = json.loads(json.dumps(records))
    places = Places(changed).found
    node, key = places[data.draw(st.integers(0, len(places) - 1), label="place")]
    if data.draw(st.booleans()):
        node[key] = data.draw(st.sampled_from(ODD))
    else:
        other, where = places[data.draw(st.integers(0, len(places) - 1), label="other place")]
        node[key] = json.loads(json.dumps(other[where]))
    (tmp_path / "run.jsonl").write_text("".join(json.dumps(record) + "\n" for record in changed))
    check(tmp_path / "run.jsonl")


@settings(QUICK, max_examples=30)
@given(data=st.data())
def test_any_byte_changed_or_any_piece_missing(
    records: list[dict[str, Any]], tmp_path: Path, data: st.DataObject
) -> None:
    whole = "".join(json.dumps(record) + "\n" for record in records).encode()
    at = data.draw(st.integers(0, len(whole) - 1), label="place")
    length = data.draw(st.sampled_from([1, 1, 2, 100, 5000]), label="length")
    put = data.draw(st.sampled_from([b"", b"\n", b"\0", b"\xff", b"[", b"-", b"9"]))
    (tmp_path / "run.jsonl").write_bytes(whole[:at] + put + whole[at + length :])
    check(tmp_path / "run.jsonl")


HOSTILE = (
    "../../../etc/passwd", "/etc/passwd", "..\\..\\x", "C:\\x", "CON", "nul.html", "a" * 10_000, "\0", "\n\r\t", " ",
    ".", "..", "\u202egnp.exe", "<script>alert(1)</script>", "</script><img src=x onerror=alert(1)>", "{{ 7 * 7 }}",
    "javascript:alert(1)", "\u2028\u2029", "'; DROP TABLE run; --", "%s%n", "=1+1", "\ufffe\uffff", "𝕏🦄",
)  # fmt: skip


class Elements(HTMLParser):
    """Tags and attributes that would run something: none of them may come of a name."""

    def __init__(self) -> None:
        super().__init__()
        self.running: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = {name for name, _ in attrs}
        links = [value or "" for name, value in attrs if name in ("href", "src")]
        is_image = tag == "img" and not all(link.endswith(".svg") for link in links)
        if is_image or any(name.startswith("on") for name in names) or any("javascript:" in link for link in links):
            self.running.append(f"{tag} {attrs}")

    def handle_data(self, data: str) -> None:
        if self.cdata_elem == "script" and "alert(" in data:
            self.running.append(data)


def write_hostile(folder: Path, name: str) -> None:
    """A run that has the name wherever a run file may have one."""
    write_run(
        folder, keys=KEYS[:2], source=name, created=name, environment={name: name, "torch": name},
        device={**MI300X, "name": name, "arch": name, "properties": {name: name}},
        header={"audit_version": name, "not_audited": [{"what": name, "reason": name}], "settings": {name: name}},
    )  # fmt: skip


def test_hostile_names_decide_no_path_and_run_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for number, name in enumerate(HOSTILE):
        write_hostile(tmp_path / f"runs/{number}", name)
    assert main(["dashboard", "runs", "-q"]) == 0
    written = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()}
    site = {path.removeprefix("site/") for path in written if path.startswith("site/")}
    assert written - {f"site/{path}" for path in site} == {f"runs/{number}/run.jsonl" for number in range(len(HOSTILE))}
    assert {path for path in site if not SAFE_PATH.fullmatch(path)} == set()
    assert len([path for path in site if path.startswith("models/")]) == len(HOSTILE)
    pages = list((tmp_path / "site").rglob("*.html"))
    assert len(pages) > 3 * len(HOSTILE)
    for path in pages:
        text = path.read_text(encoding="utf-8")
        elements = Elements()
        elements.feed(text)
        assert elements.running == []
        assert not {"\u202e", "\0", "\u2028"} & set(text)


def test_a_case_that_takes_the_key_of_another_is_a_case_of_its_own(tmp_path: Path) -> None:
    """A key is a claim: who gives another op the key of a good one changes nothing of that."""
    write_run(tmp_path / "a", keys=KEYS[:1])
    text = (tmp_path / "a/run.jsonl").read_text()
    (tmp_path / "b").mkdir()
    (tmp_path / "b/run.jsonl").write_text(text.replace('"op":"aten::arange.start_step"', '"op":"aten::evil.default"'))
    database = Database.open(None, "test")
    for number, name in enumerate("ab"):
        judged = judge_file(file_of(tmp_path / name / "run.jsonl"))
        assert not isinstance(judged, LeftOut)
        database.add(str(number), "h", judged[2])
    arrange(database, [], {}, NOW)
    catalog = Catalog(database, "0.1.0")
    assert [(op.op, op.n_cases, op.n_runs) for op in catalog.ops()] == [
        ("aten::arange.start_step", 1, 1), ("aten::evil.default", 1, 1)
    ]  # fmt: skip
    database.close()


def test_a_file_that_ends_its_process_is_left_out_and_the_others_are_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ended from outside: by the module that a process of the pool imports before it reads its first file."""
    for name in "abc":
        write_run(tmp_path / name, keys=KEYS[:1], source=f"{name}.py")
    plant = tmp_path / "planted"
    plant.mkdir()
    (plant / "sitecustomize.py").write_text(
        "import builtins, os\n"
        "true_open = os.open\n"
        "def opened(path, *rest, **named):\n"
        f"    if str(path) == {str(tmp_path / 'c/run.jsonl')!r}:\n"
        "        os._exit(9)\n"
        "    return true_open(path, *rest, **named)\n"
        "os.open = opened\n"
    )
    root = Path(__file__).resolve().parents[2]
    monkeypatch.setenv("PYTHONPATH", f"{plant}{os.pathsep}{root}")
    monkeypatch.setattr("audit.dashboard.judging._FEW_BYTES", 0)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    files = [RunFile(tmp_path / name / "run.jsonl", name, "", "", 100) for name in "abc"]
    found = {file.label: judged for file, judged in judge_files(files)}
    assert sorted(found) == list("abc")
    assert {label for label, judged in found.items() if isinstance(judged, LeftOut)} == {"c"}
    assert found["c"] == LeftOut("c", "unjudged-run", "ended the process that judged it (out of memory?)")
    shutil.rmtree(plant)
