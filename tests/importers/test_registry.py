"""Files are told apart by how they begin, whatever they are called."""

from __future__ import annotations

import gzip
from pathlib import Path

from audit.importers.registry import HEAD_BYTES, find_importer, head_of


def test_the_head_of_a_compressed_file_is_that_of_its_content(tmp_path: Path) -> None:
    path = tmp_path / "trace.json.gz"
    path.write_bytes(gzip.compress(b'{"schemaVersion": 1' + b" " * (1 << 20)))
    assert head_of(path)[:19] == b'{"schemaVersion": 1'
    assert len(head_of(path)) == HEAD_BYTES


def test_what_cannot_be_read_has_no_importer(tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.json.gz"
    damaged.write_bytes(b"\x1f\x8b\x08 and no more of it")
    assert find_importer(damaged) is None
    assert find_importer(tmp_path / "missing.json") is None
    assert find_importer(tmp_path) is None
