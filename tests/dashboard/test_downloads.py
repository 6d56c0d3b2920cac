"""Files for machines: what stands in them, in a form that every reader takes and no spreadsheet runs."""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas

from audit.dashboard.catalog import Catalog
from audit.dashboard.downloads import site_files
from tests.dashboard.made_runs import MI300X, healthy_keys, write_run

CatalogOf = Callable[[Path], Catalog]
KEYS = healthy_keys(2)


def files(catalog: Catalog) -> dict[str, Any]:
    found = {}
    for file in site_files(catalog):
        made = file.make()
        found[file.path] = made if isinstance(made, (str, bytes)) else "".join(made)
    return found


def test_the_matrix_as_csv_has_a_line_for_each_cell(catalog_of: CatalogOf, tmp_path: Path) -> None:
    write_run(tmp_path / "a", keys=KEYS, wrong=KEYS[:1])
    text = files(catalog_of(tmp_path))["downloads/cells.csv"]
    assert text.splitlines()[1:] == [
        "aten::arange.start_step,float32,measured,False,AMD Instinct MI300X,gfx942,ROCm 7.2.1,2.13.0+rocm7.2,divergent,"
        "1,0,0,0,1,0,0,1,False,2026-11-20,ops/arange-start-step-bb9623dd.html",
        "aten::div.Tensor,float32,measured,False,AMD Instinct MI300X,gfx942,ROCm 7.2.1,2.13.0+rocm7.2,supported,"
        "1,1,0,0,0,0,0,1,False,2026-11-20,ops/div-tensor-58159bc6.html",
    ]
    table = pandas.read_csv(io.StringIO(text))
    assert list(table["divergent"]) == [1, 0]


def test_the_runs_as_csv_have_their_evidence_counts_and_set(catalog_of: CatalogOf, tmp_path: Path) -> None:
    write_run(tmp_path / "a", keys=KEYS, wrong=KEYS[:1], source="@train.py")
    [row] = csv.DictReader(io.StringIO(files(catalog_of(tmp_path))["downloads/runs.csv"]))
    assert (row["source"], row["evidence"], row["imported"], row["gpu"]) == (
        "'@train.py", "measured", "False", "AMD Instinct MI300X"
    )  # fmt: skip
    assert (row["cases"], row["supported"], row["divergent"], row["inconclusive"]) == ("2", "1", "1", "0")
    assert re.fullmatch("[0-9a-f]{12}", row["set_version"])
    assert row["page"] == f"runs/{row['run']}.html"


def test_no_cell_of_a_strangers_run_is_run_as_a_formula(catalog_of: CatalogOf, tmp_path: Path) -> None:
    name = '=HYPERLINK("http://example.org")'
    write_run(tmp_path / "a", keys=KEYS, device={**MI300X, "name": name}, environment={"torch": "@SUM(1)"})
    [first, *_] = csv.DictReader(io.StringIO(files(catalog_of(tmp_path))["downloads/cells.csv"]))
    assert (first["gpu"], first["torch"]) == (f"'{name}", "'@SUM(1)")


def test_cells_and_runs_as_json_name_their_version_and_their_sets(catalog_of: CatalogOf, tmp_path: Path) -> None:
    write_run(tmp_path / "x/a", keys=KEYS, wrong=KEYS[:1])
    found = files(catalog_of(tmp_path / "x"))
    cells, runs = (json.loads(found[f"downloads/{name}.json"]) for name in ("cells", "runs"))
    assert (cells["format_version"], runs["format_version"], len(cells["cells"])) == (1, 1, 2)
    assert cells["cells"][0]["status"] == "divergent"
    [run] = runs["runs"]
    assert (run["evidence"], run["file"], run["complete"]) == ("measured", "x/a/run.jsonl", True)
    assert run["coverage"]["total"] == 2
    assert run["coverage"]["by_status"]["divergent"] == 1
    assert run["coverage"]["cases"]["name"] == "llama_train.py"
    assert json.loads(gzip.decompress(found[run["summary"]]))["format_version"] == 1
