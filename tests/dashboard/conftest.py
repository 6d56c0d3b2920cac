"""A catalog of made runs, for tests that ask it."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from audit.dashboard.arrange import arrange
from audit.dashboard.catalog import Catalog
from audit.dashboard.change_rows import LeftOut
from audit.dashboard.database import Database
from audit.dashboard.gather import gather
from audit.dashboard.judging import judge_files

NOW = datetime.datetime(2026, 12, 1, 12, tzinfo=datetime.timezone.utc)


@pytest.fixture
def catalog_of() -> Iterator[Callable[[Path], Catalog]]:
    """Gathers, judges and arranges the runs below a folder, as of noon on the first of December 2026."""
    opened = []

    def make(folder: Path) -> Catalog:
        gathered = gather([folder])
        database = Database.open(None, "test")
        opened.append(database)
        left_out = list(gathered.left_out)
        for _, judged in judge_files(gathered.files):
            if isinstance(judged, LeftOut):
                left_out.append(judged)
            else:
                database.add(*judged)
        database.commit()
        arrange(database, gathered.files, gathered.copies, NOW)
        return Catalog(database, "0.1.0", left_out)

    yield make
    for database in opened:
        database.close()
