"""Strange names and numbers put into every corner of a program occur in no byte of its private trace, or of its run.

Each is looked for in the plain trace as well, and found: a search that finds nothing anywhere shows nothing.
"""

from __future__ import annotations

import json
import os
import re
import stat
import struct
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from audit.opset import read_opset
from audit.privacy.name_map import read_map
from tests.session.conftest import ENVIRONMENT, Cli, cli  # noqa: F401 - a fixture

#: Texts, by where the program has them.
TEXTS = {
    "folder": "qzfolder", "file": "qzfile", "class": "QzClass", "module": "qzmodule", "argument": "qzargument",
    "custom op": "qzop", "namespace": "qzspace", "exception class": "QzError", "exception text": "qzmessage",
    "op text": "qztext", "variable": "qzsetting", "unicode": "qzß漢字",
}  # fmt: skip
#: Numbers, by where it has them. Their bytes as fp16 and bf16 are no ASCII, so that chance does not find them in JSON.
FLOATS = {"weight": -2713.6501, "input": -37712.503, "double": -8.8123456789e-5}
INTEGERS = {"index": 73912847, "token": 58214}

PROGRAM = f"""
import sys
import torch

@torch.library.custom_op("{TEXTS["namespace"]}::{TEXTS["custom op"]}", mutates_args=())
def own(x: torch.Tensor) -> torch.Tensor:
    return x.clone()

class {TEXTS["class"]}(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.{TEXTS["module"]} = torch.nn.Linear(3, 2)
        self.add_module("{TEXTS["unicode"]}", torch.nn.Embedding(60000, 3))
        self.{TEXTS["module"]}.weight.data.copy_(torch.tensor([{FLOATS["weight"]}]))

    def forward(self, tokens, x):
        rows = self.get_submodule("{TEXTS["unicode"]}")(tokens) + x
        own(rows.detach())
        return self.{TEXTS["module"]}(rows)

class {TEXTS["exception class"]}(Exception):
    pass

assert sys.argv[1] == "--name={TEXTS["argument"]}"
model = {TEXTS["class"]}()
torch.ops.aten._assert_async.msg(torch.ones(1), "{TEXTS["op text"]}")
torch.tensor([{INTEGERS["index"]}, 3, 5]).remainder(7)
torch.tensor([{FLOATS["double"]}, 0.5], dtype=torch.float64).exp()
x = torch.tensor([[{FLOATS["input"]}, 1.0, 2.0]])
for dtype in (torch.float32, torch.float16, torch.bfloat16):
    x.to(dtype).exp()
    model.{TEXTS["module"]}.weight.detach().to(dtype).neg()
model(torch.tensor([{INTEGERS["token"]}, 2]), x).sum().backward()
raise {TEXTS["exception class"]}("{TEXTS["exception text"]} {INTEGERS["index"]}")
"""
VARIABLES = {
    "TORCH_QZ": TEXTS["variable"],
    "MIOPEN_USER_DB_PATH": f"/home/{TEXTS['variable']}",
    "HIP_QZ": "73912847",
}


@dataclass(frozen=True)
class Made:
    """What a private and a plain trace of the program left."""

    folder: Path
    private: Path
    plain: Path
    run: Path


@pytest.fixture(scope="module")
def made(cli: Cli, tmp_path_factory: pytest.TempPathFactory) -> Made:  # noqa: F811
    folder = tmp_path_factory.mktemp("canaries") / TEXTS["folder"]
    folder.mkdir()
    (folder / f"{TEXTS['file']}.py").write_text(PROGRAM)
    environment = {**ENVIRONMENT, **VARIABLES}

    def traced(*words: str) -> None:
        program = [f"{TEXTS['file']}.py", *words, "--", f"--name={TEXTS['argument']}"]
        done = cli(*program, cwd=folder, env=environment)
        assert done.returncode == 3, done.stderr  # the program raises at its end
        assert TEXTS["exception text"] not in done.stdout

    traced("--device", "none", "-o", "out", "--private", "--format", "html,json,csv,markdown,junit")
    done = cli(
        "trace", f"{TEXTS['file']}.py", "-o", "plain.audit", "--", f"--name={TEXTS['argument']}",
        cwd=folder, env=environment,
    )  # fmt: skip
    assert done.returncode == 3, done.stderr
    return Made(folder, folder / "out" / "cases.audit", folder / "plain.audit", folder / "out")


def text_forms(text: str) -> Iterator[bytes]:
    for encoding in ("utf-8", "utf-16-le", "utf-16-be"):
        yield text.encode(encoding)
    yield json.dumps(text)[1:-1].encode()


def stands_in(content: bytes, number: int) -> bool:
    """Whether an integer is there as text, apart from the digits of a key, or as its eight bytes."""
    texts = "|".join((str(number), f"{number:,}"))
    found = re.search(rb"(?<![0-9a-z])(?:%s)(?![0-9a-z])" % texts.encode(), content)
    return found is not None or struct.pack("<q", number) in content


def float_forms(number: float) -> Iterator[bytes]:
    """Decimal text of every dtype that holds it, and its bytes in each, in both byte orders."""
    single = np.float32(number)
    bits = struct.unpack("<I", struct.pack("<f", number))[0]
    rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16  # to bfloat16, to nearest even
    brain = struct.unpack("<f", struct.pack("<I", rounded << 16))[0]
    for value in (number, float(single), float(np.float16(number)), brain):
        texts = {repr(abs(value)), f"{abs(value):.4f}", f"{abs(value):.6g}"}
        yield from (text.encode() for text in texts if _n_digits(text) >= 5)
    for pattern in (struct.pack("<d", number), struct.pack("<f", number), np.float16(number).tobytes()):
        yield from (pattern, pattern[::-1])
    yield struct.pack("<H", rounded)


def _n_digits(text: str) -> int:
    """Significant digits: 0.0001 is found by chance."""
    return len(text.partition("e")[0].replace(".", "").lstrip("0"))


def files_of(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*")) if path.is_file())


@pytest.mark.parametrize("where", [where for where in TEXTS if where not in ("folder", "argument", "variable")])
def test_no_name_is_in_any_byte_and_the_map_has_it(made: Made, where: str) -> None:
    forms = list(text_forms(TEXTS[where]))
    assert any(form in made.plain.read_bytes() for form in forms), "the plain trace has it, or the search is blind"
    for path in files_of(made.run):
        assert not any(form in path.read_bytes() for form in forms), path.name
    if where != "op text":
        assert TEXTS[where] in json.dumps(json.loads(map_of(made).read_text()), ensure_ascii=False)


@pytest.mark.parametrize("where", ["folder", "argument", "variable"])
def test_what_a_plain_trace_does_not_say_a_private_one_does_not_either(made: Made, where: str) -> None:
    for path in files_of(made.run):
        assert not any(form in path.read_bytes() for form in text_forms(TEXTS[where])), path.name


@pytest.mark.parametrize("where", list(FLOATS))
def test_no_float_is_in_any_byte(made: Made, where: str) -> None:
    forms = list(float_forms(FLOATS[where]))
    assert any(form in made.plain.read_bytes() for form in forms)
    for form in forms:
        # Two bytes are found by chance in a checksum; the content is ASCII, and they are not.
        content = made.private.read_bytes() if len(form) > 2 else json_of(made.private)
        assert form not in content, form
        assert form not in (made.run / "run.jsonl").read_bytes(), form


def json_of(path: Path) -> bytes:
    with zipfile.ZipFile(path) as archive:
        assert archive.namelist() == ["trace.json"]
        content = archive.read("trace.json")
    assert content.isascii()
    return content


@pytest.mark.parametrize("where", list(INTEGERS))
def test_no_integer_is_in_any_byte(made: Made, where: str) -> None:
    assert stands_in(made.plain.read_bytes(), INTEGERS[where])
    for path in (made.private, made.run / "run.jsonl", made.run / "summary.json"):
        assert not stands_in(path.read_bytes(), INTEGERS[where]), path.name


def test_no_file_tells_when_or_by_whom_it_was_made(made: Made) -> None:
    content = made.private.read_bytes()
    assert content[10:14] == b"\0\0\x21\0", "1980-01-01 00:00"
    assert str(os.getuid()).encode() not in content[-100:]
    assert set(Path(made.run).iterdir()) >= {made.private}
    assert not list(made.run.rglob("*private-map*"))


def map_of(made: Made) -> Path:
    return made.folder / "out.private-map.json"


def test_the_map_lies_beside_the_folder_for_its_owner_alone(made: Made) -> None:
    assert stat.S_IMODE(map_of(made).stat().st_mode) == 0o600
    assert read_map(map_of(made)).id == read_opset(made.private).source.private[0]


def test_what_replay_needs_is_kept(made: Made) -> None:
    """Every case but the one with a text of the program's, with the same key; and every call is accounted for."""
    private, plain = read_opset(made.private), read_opset(made.plain)
    left_out = {case.op for case in plain.cases} - {case.op for case in private.cases}
    assert left_out == {"aten::_assert_async.msg"}
    kept = [case for case in plain.cases if case.op not in left_out]
    assert [(c.key, c.args, c.kwargs, c.phase, c.grads, c.n_calls) for c in private.cases] == [
        (c.key, c.args, c.kwargs, c.phase, c.grads, c.n_calls) for c in kept
    ]
    assert private.n_recorded == plain.n_recorded
    assert private.n_recorded == sum(c.n_calls for c in private.cases) + sum(n.n_calls for n in private.not_audited)
    [tokens] = [case.values[1] for case in private.cases if case.op == "aten::embedding.default"]
    assert (tokens.minimum, tokens.maximum) == (2, 49152), "within the recorded range, and within the 60000 rows"


@pytest.mark.slow
def test_a_private_trace_replays(made: Made, cli: Cli, tmp_path: Path) -> None:  # noqa: F811
    done = cli("run", made.private, "--device", "cpu", "-o", tmp_path / "run", "--format", "json")
    assert done.returncode == 3, "the program raised, and that stays known"
    verdicts = json.loads((tmp_path / "run" / "summary.json").read_text())["verdicts"]
    assert [(v["op"], v["findings"]) for v in verdicts if v["status"] != "supported"] == []
    assert len(verdicts) == len(read_opset(made.private).cases)


def test_a_report_shows_the_names_to_who_has_the_map(made: Made, cli: Cli, tmp_path: Path) -> None:  # noqa: F811
    done = cli("report", made.run, "--names", map_of(made), "--format", "json,html", "-o", tmp_path)
    assert done.returncode == 0, done.stderr
    summary = (tmp_path / "summary.json").read_text() + (tmp_path / "report.html").read_text()
    for where in ("file", "class", "module", "custom op", "exception text"):
        assert TEXTS[where] in summary, where
    assert '"module-' not in (tmp_path / "summary.json").read_text()
    other = tmp_path / "other.json"
    other.write_text(json.dumps({"format_version": 1, "id": "00000000", "names": {}}))
    done = cli("report", made.run, "--names", other, "-o", tmp_path)
    assert done.returncode == 2
    assert done.stderr.rstrip().endswith("[other-names]")


def test_a_private_copy_of_a_plain_trace_is_as_private(made: Made, cli: Cli, tmp_path: Path) -> None:  # noqa: F811
    done = cli("trace", made.plain, "--private", "-o", tmp_path / "copy.audit")
    assert done.returncode == 3, done.stderr
    content = (tmp_path / "copy.audit").read_bytes()
    assert not any(stands_in(content, number) for number in INTEGERS.values())
    for forms in (*map(text_forms, TEXTS.values()), *map(float_forms, FLOATS.values())):
        assert not any(form in content for form in forms if len(form) > 2)
    assert {case.key for case in read_opset(tmp_path / "copy.audit").cases} == {
        case.key for case in read_opset(made.private).cases
    }
    assert (tmp_path / "copy.private-map.json").exists()
