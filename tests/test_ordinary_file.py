"""Files that are only called so are refused at once."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from audit.ordinary_file import open_ordinary, read_ordinary


def test_a_file_is_read_up_to_its_bound(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"12345")
    assert read_ordinary(path, 5) == b"12345"
    with pytest.raises(OSError, match="it has over 4 bytes"):
        read_ordinary(path, 4)


def test_what_is_no_file_is_neither_waited_at_nor_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(OSError, match="it is no ordinary file"):
            open_ordinary(path)
    with pytest.raises(IsADirectoryError):
        open_ordinary(tmp_path)


def test_a_link_is_followed_unless_it_must_not_be(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"1")
    (tmp_path / "link").symlink_to("x")
    assert read_ordinary(tmp_path / "link", 9) == b"1"
    with pytest.raises(OSError, match="symbolic link"):
        open_ordinary(tmp_path / "link", follow=False)
