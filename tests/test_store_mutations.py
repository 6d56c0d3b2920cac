"""A real run file, damaged at random: our sentence, or a run that can be judged and shown; never another exception."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from audit.errors import UsageError
from audit.report.summary import summary
from audit.report.terminal import render_terminal
from audit.rules.judge import judge
from audit.store import read_run
from tests.opset.test_mutations import ODD, QUICK, Places


@pytest.fixture(scope="module")
def records(checkout: Path) -> list[dict[str, Any]]:
    """The header, ten cases and their measurements, and the end of the sample run."""
    lines = gzip.decompress((checkout / "tests/report/runs/llama.jsonl.gz").read_bytes()).splitlines()
    everything = [json.loads(line) for line in lines]
    cases = [record for record in everything if "case" in record][:10]
    keys = {record["case"]["key"] for record in cases}
    measured = [record for record in everything if record.get("measurement", {}).get("key") in keys]
    assert len(measured) == 10
    return [
        everything[0],
        *cases,
        *measured,
        *_tried(measured[0]),
        *(record for record in everything if "end" in record),
    ]


def _tried(measured: dict[str, Any]) -> list[dict[str, Any]]:
    """An alternative to the case, and another without an end."""
    key = measured["measurement"]["key"]
    change = {"settings": [["torch.backends.cudnn.enabled", False]], "layout": "contiguous", "dtype": "float32"}
    trial = {"key": key, "name": "contiguous", "what": "inputs made contiguous", "change": change}
    begun = [{"trying": {"key": key, "name": name}} for name in ("contiguous", "float32")]
    return [begun[0], {"alternative": {"trial": trial, **measured}}, begun[1]]


def taken(path: Path) -> bool:
    """Whether the file is read; then it can be judged and shown."""
    try:
        run = read_run(path)
    except UsageError as error:
        refusal = error
    else:
        judgement = judge(run)
        json.dumps(summary(judgement), allow_nan=False)
        assert render_terminal(judgement)
        return True
    assert refusal.slug in ("not-a-run", "malformed-record", "newer-format"), refusal
    assert str(refusal).isprintable()
    assert len(str(refusal)) < 2000
    return False


def test_the_sample_itself_is_taken(records: list[dict[str, Any]], tmp_path: Path) -> None:
    (tmp_path / "run.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    assert taken(tmp_path)


@settings(QUICK, max_examples=80)
@given(data=st.data())
def test_any_value_swapped_for_another(records: list[dict[str, Any]], tmp_path: Path, data: st.DataObject) -> None:
    changed = json.loads(json.dumps(records))
    places = Places(changed).found
    node, key = places[data.draw(st.integers(0, len(places) - 1), label="place")]
    what = data.draw(st.sampled_from(["odd", "gone", "other"]))
    if what == "odd":
        node[key] = data.draw(st.sampled_from(ODD))
    elif what == "gone":
        del node[key]
    else:
        other, where = places[data.draw(st.integers(0, len(places) - 1), label="other place")]
        node[key] = json.loads(json.dumps(other[where]))
    (tmp_path / "run.jsonl").write_text("".join(json.dumps(record) + "\n" for record in changed))
    taken(tmp_path)


@settings(QUICK, max_examples=60)
@given(data=st.data())
def test_any_byte_changed_or_any_piece_missing(
    records: list[dict[str, Any]], tmp_path: Path, data: st.DataObject
) -> None:
    whole = "".join(json.dumps(record) + "\n" for record in records).encode()
    at = data.draw(st.integers(0, len(whole) - 1), label="place")
    length = data.draw(st.sampled_from([1, 1, 2, 100, 5000]), label="length")
    put = data.draw(st.sampled_from([b"", b"\n", b"\0", b"\xff", b"[", b"-", b"9"]))
    (tmp_path / "run.jsonl").write_bytes(whole[:at] + put + whole[at + length :])
    taken(tmp_path)
