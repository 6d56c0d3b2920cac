"""Objects of an array are read one at a time; damage is told with its place, and nothing fills the memory."""

from __future__ import annotations

import gzip
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from audit.errors import UsageError
from audit.importers import json_items
from audit.importers.json_items import items_of


def read(folder: Path, content: str) -> list[dict[str, Any]]:
    path = folder / "trace.json"
    path.write_text(content)
    return list(items_of(path, "nodes"))


@pytest.mark.parametrize("chunk", [1, 2, 7, 1 << 20])
def test_items_are_whole_wherever_the_file_is_cut_into_chunks(
    chunk: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    content = '{"schema": "1", "nodes": [{"a": [1, {"b": "]},{"}]},\n {"c": "\u00e4\\n"} , {}], "end": 1}'
    beginning = content.index("[") + 1
    monkeypatch.setattr(json_items, "_CHUNK", max(chunk, beginning))
    assert read(tmp_path, content) == [{"a": [1, {"b": "]},{"}]}, {"c": "ä\n"}, {}]


def test_a_gzip_file_is_read_as_what_it_holds(tmp_path: Path):
    path = tmp_path / "trace.json.gz"
    path.write_bytes(gzip.compress(b'{"nodes": [{"a": 1}]}'))
    assert list(items_of(path, "nodes")) == [{"a": 1}]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"nodes": [{"a": 1}', "from character 19 on: it is cut off"),
        ('{"nodes": [{"a": 1}, {"b"', "from character 21 on: it is cut off, or Expecting ':' delimiter"),
        ('{"nodes": [{"a": 1}, 7]}', "from character 22 on: expected an object, got int"),
        ('{"nodes": [{"a": NaN}]}', "from character 11 on: NaN is no JSON"),
        ('{"other": [{"nodes": []}]}', 'it does not begin as an object with a list "nodes"'),
        ('{"nodes": [{"a": ' + "[" * 100_000, "maximum recursion depth exceeded"),
        ('{"nodes": [{"a": ' + "9" * 5_000 + "}]}", "Exceeds the limit"),
    ],
    ids=["cut off between", "cut off within", "no object", "no JSON", "other array", "deep", "long number"],
)
def test_damage_is_told_in_one_sentence(content: str, message: str, tmp_path: Path):
    with pytest.raises(UsageError) as caught:
        read(tmp_path, content)
    assert message in str(caught.value)
    assert str(caught.value).endswith("[bad-recording]")


def test_a_gzip_stream_that_is_cut_off_is_told(tmp_path: Path):
    path = tmp_path / "trace.json.gz"
    path.write_bytes(gzip.compress(b'{"nodes": [{"a": 1}, ' + b" " * 9999)[:-12])
    with pytest.raises(UsageError, match=r"\[unreadable-recording\]$"):
        list(items_of(path, "nodes"))


def test_an_item_without_end_does_not_fill_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(json_items, "MAX_ITEM", 1 << 20)
    with pytest.raises(UsageError, match="an item of more than 1 MiB"):
        read(tmp_path, '{"nodes": [{"a": "' + "x" * (1 << 24))


def test_a_large_file_is_read_in_the_memory_of_a_few_chunks(tmp_path: Path):
    path = tmp_path / "trace.json"
    item = b'{"id": 1, "values": [' + b"1234, " * 200 + b"0]},"
    path.write_bytes(b'{"nodes": [' + item * 6_000 + b"{}]}")
    assert path.stat().st_size > 7 << 20
    tracemalloc.start()
    try:
        n_items = sum(1 for _ in items_of(path, "nodes"))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert n_items == 6_001
    assert peak < 5 << 20
