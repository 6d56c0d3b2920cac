"""Pages as files: they lead to each other, say their evidence, forbid scripts in them, and leave no row out."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import get_args
from urllib.parse import unquote

import pytest

from audit.dashboard.change_rows import LeftOut
from audit.dashboard.links import op_slug
from audit.dashboard.pages import site_files
from audit.dashboard.pages.evidence import banner_of
from audit.dashboard.pages.grid import GridCell, grid_of
from audit.dashboard.pages.kinds import KINDS, Trouble, kind_rows, shown_devices, troubles
from audit.dashboard.pages.listing import FIRST_ROWS, Listing
from audit.dashboard.pages.markup import facets, ratio_text, segments
from audit.dashboard.pages.ops import StackNumbers, numbers_by_stack
from audit.dashboard.rows import OpOnGpu, Stack, Tally
from audit.knowledge.op_classes import OpClass
from audit.schema import Status
from tests.dashboard.made_contents import DEVICES, MadeContents
from tests.dashboard.sample_site import sample_site
from tests.dashboard.site_on_disk import text_of, write_site


class Links(HTMLParser):
    """Addresses of a page, its ids, and elements that a content security policy would have to allow."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.ids: list[str] = []
        self.inline: list[str] = []
        self.titles = 0
        self.shards: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.addresses += [value for name in ("href", "src") if (value := found.get(name))]
        self.ids += [value for name, value in attrs if name == "id" and value]
        self.titles += tag == "h1"
        self.shards += [address.partition("?")[0] for address in (found.get("data-shards") or "").split()]
        handlers = [name for name in found if name.startswith("on") or name == "style"]
        if handlers or tag == "style" or (tag == "script" and "src" not in found):
            self.inline.append(f"<{tag} {handlers}>")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_site(MadeContents(), tmp_path_factory.mktemp("site"))


def pages(site: Path) -> Iterator[tuple[Path, str]]:
    for path in sorted(site.rglob("*.html")):
        yield path, path.read_text(encoding="utf-8")


def test_every_link_of_every_page_leads_to_a_file_and_to_a_place_in_it(
    site: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    real = sample_site(tmp_path_factory.mktemp("runs"), tmp_path_factory.mktemp("real"))
    assert dead_links(real) == []
    # Cases of the made site's runs have keys of their own, which no op's page has.
    assert [link for link in dead_links(site) if "#case-" not in link] == []
    assert len(list(pages(site))) == 16 + 5 + 3 + 15 + 9  # ops, GPUs, models, runs, and those that every site has


def ids_in(file: Path) -> list[str]:
    return re.findall(r'id=\\"([^"\\]*)', file.read_text(encoding="utf-8"))


def dead_links(site: Path) -> list[str]:
    """Links of its pages that lead nowhere: to no file, or to no place in it or in the data that its script takes."""
    found = {path: Links(text) for path, text in pages(site)}
    ids = {
        path: {*links.ids, *(name for file in links.shards for name in ids_in(site / file))}
        for path, links in found.items()
    }
    dead = []
    for path, links in found.items():
        for address in links.addresses:
            if address.startswith(("https:", "data:")):
                continue
            file, _, fragment = unquote(address).partition("#")
            target = (path.parent / file.partition("?")[0]).resolve() if file else path
            if not target.is_file():
                dead.append(f"{path.name}: {address}")
            elif fragment and "=" not in fragment and fragment not in ids[target]:
                dead.append(f"{path.name}: {address} (no such place)")
    return dead


def test_no_page_has_a_script_a_style_or_a_handler_in_it_and_each_forbids_them(site: Path) -> None:
    for path, text in pages(site):
        assert Links(text).inline == [], path
        assert "script-src 'self' file:" in text, path
        assert "default-src 'none'" in text, path


def test_each_page_has_one_heading_ids_of_its_own_and_says_its_evidence_first(site: Path) -> None:
    for path, text in pages(site):
        links = Links(text)
        assert links.titles == 1, path
        assert len(links.ids) == len(set(links.ids)), path
        assert text.index('aria-label="Evidence level"') < text.index("<h1"), path


LEVEL = re.compile(r"\b(measured|stand-in|simulated|predicted)\b")


def test_whatever_shows_a_status_says_its_evidence_to_those_who_do_not_see_it(site: Path) -> None:
    silent, n_told = [], 0
    for path, text in pages(site):
        told = [
            *re.findall(r"<title>([^<]*)</title>", text),
            *re.findall(r'<svg class="bar[^>]*aria-label="([^"]*)"', text),
            *re.findall(r'<td class="c s-[^>]*><a href="[^"]*" title="([^"]*)"', text),
            *re.findall(r'</span>(?:<span class="fine">[^<]*</span>)?<span class="vh">([^<]*)</span></span>', text),
            *re.findall(r'<img src="[^"]*badges/[^"]*" alt="([^"]*)"', text),
        ]
        n_told += len(told)
        silent += [(path.name, words) for words in told if not LEVEL.search(words) and "on AMD" not in words]
    assert silent == []
    assert n_told > 1000


def stack(evidence: str, is_imported: bool = False) -> Stack:
    return Stack("s", evidence, is_imported, "sim", "a GPU", "g", "gfx942", "ROCm 7.2", "2.13.0")  # type: ignore[arg-type]


def test_only_a_page_with_nothing_but_measured_runs_has_a_calm_banner() -> None:
    assert banner_of([stack("measured")]).title == "Measured on AMD"
    assert banner_of([stack("simulated")]).title == "Simulated · not measured on AMD"
    assert banner_of([stack("measured", True)]).title == "Imported · measured on AMD by another tool"
    assert banner_of([stack("measured"), stack("simulated")]).title == "Partly measured on AMD"
    mixed = banner_of([stack("simulated"), stack("stand-in"), stack("measured", True)])
    assert mixed.title == "Not audited on AMD"
    assert mixed.explanation == (
        "This page shows results that were recorded on AMD by another tool, measured on an NVIDIA stand-in and "
        "simulated. Each is marked; none says what works on AMD."
    )
    assert banner_of([]).title == "Nothing measured"
    kinds = [
        banner_of([stack("measured"), stack("simulated")]).kind,
        mixed.kind,
        banner_of([stack("measured", True)]).kind,
    ]
    assert kinds == ["mixed", "unmeasured", "imported"]  # all but the first are warnings


def test_a_support_percentage_stands_on_pages_of_measured_devices_only(site: Path) -> None:
    simulated = MadeContents(devices=DEVICES[3:])
    for file in site_files(simulated):
        if file.path.endswith(".html") and file.path != "about.html":
            assert not re.search(r"[\d.]+ % supported", text_of(file)), file.path
    assert re.search(r"66\.7 % supported: 40 of 60 cases; 6\.7 % inconclusive", (site / "index.html").read_text())


# --- the matrix ---------------------------------------------------------------------------------------------------


def test_troubles_that_were_measured_come_before_all_others() -> None:
    grid = grid_of(MadeContents(devices=(DEVICES[0], DEVICES[3]), n_versions=1))
    order = ["unsupported", "divergent", "falling_back", "slow"]

    def rank(cells: dict[int, GridCell], column: int) -> int:
        cell = cells.get(column)
        return order.index(cell.status) if cell and cell.status in order else len(order)

    ranks = [(rank(cells, 0), rank(cells, 1)) for _, cells in grid.within((0, 1))]
    assert ranks == sorted(ranks)
    assert len({first for first, _ in ranks}) > 1


def test_a_cell_of_all_dtypes_has_the_worst_status_and_the_sum_of_counts() -> None:
    cells = (GridCell(0, "supported", 4, 0, 0, False), GridCell(0, "slow", 3, 1, 1, True))
    row = replace(grid_of(MadeContents()).rows[0], by_dtype=(("float16", cells[:1]), ("float32", cells[1:])))
    assert row.merged((0,)) == {0: GridCell(0, "slow", 7, 1, 1, True)}
    assert row.merged((0,))[0].text == "1/7"
    assert row.merged((0,))[0].words("measured") == "slow, finding in 1 of 7 cases, 1 inconclusive, runs disagree"


def test_the_data_of_the_matrix_has_every_cell_of_the_contents() -> None:
    contents = MadeContents(n_ops=700)
    files = {file.path: file for file in site_files(contents) if file.path.startswith("data/matrix")}
    assert sorted(files) == ["data/matrix-1.js", "data/matrix-2.js", "data/matrix.js"]
    found = {}
    stacks = [one["slug"] for one in data(text_of(files["data/matrix.js"]))["stacks"]]
    statuses = data(text_of(files["data/matrix.js"]))["statuses"]
    for name in ("data/matrix-1.js", "data/matrix-2.js"):
        for _, slug, by_dtype, _ in data(text_of(files[name])):
            for dtype, signs, counts in by_dtype:
                numbers = iter(counts.split(","))
                for i, sign in enumerate(signs):
                    if sign != ".":
                        total = int(next(numbers).split("/")[0])
                        rank = "abcdef".find(sign) if sign.isalpha() else int(sign)
                        found[slug, dtype, stacks[i]] = (statuses[rank], total, sign.isalpha())
    expected = {
        (cell.op_slug, cell.dtype, cell.stack_slug): (cell.status, cell.tally.total, cell.varies)
        for cell in contents.matrix()
    }
    assert found == expected


def data(text: str) -> object:
    """What a file of data puts into the page."""
    return json.loads(text[text.index("]=") + 2 : text.rindex(";")])


# --- kinds of work ------------------------------------------------------------------------------------------------


def test_every_class_of_the_knowledge_base_has_its_words() -> None:
    assert set(KINDS) == set(get_args(OpClass))


def on_gpu(op: str, op_class: str, *counts: tuple[Status, int]) -> OpOnGpu:
    return OpOnGpu("mi300x", op, f"{op}-slug", op_class, Tally(counts))


OPS_ON_GPU = (
    on_gpu("mm", "gemm", ("divergent", 2), ("supported", 8)),
    on_gpu("bmm", "gemm", ("inconclusive", 1), ("supported", 2)),
    on_gpu("add", "elementwise", ("supported", 4)),
    on_gpu("sdpa", "attention", ("divergent", 3)),
)


def test_a_kind_of_work_has_the_worst_status_and_all_cases_of_its_ops() -> None:
    rows = kind_rows(OPS_ON_GPU)
    assert [(row.label, row.n_ops) for row in rows] == [("Matrix products", 2), ("Attention", 1), ("Elementwise", 1)]
    assert rows[0].cells["mi300x"] == GridCell(0, "divergent", 13, 2, 1, False)
    assert rows[2].cells["mi300x"].words("simulated") == "supported, 4 cases"
    assert rows[2].cells["mi300x"].words("predicted") == "nothing known against, 4 cases"


def test_ops_in_trouble_are_named_by_status_those_with_most_cases_first() -> None:
    assert troubles(OPS_ON_GPU) == {"mi300x": [Trouble("divergent", 2, (("sdpa", "sdpa-slug"), ("mm", "mm-slug")))]}


def test_a_device_that_ran_is_shown_before_others_and_each_level_once_before_a_second() -> None:
    made = MadeContents(devices=(*DEVICES[3:], ("simulated device, faults of x.py", "sim", "sim", "simulated", False)))
    names = [gpu.name for gpu in shown_devices((*made.gpus(), *MadeContents(devices=DEVICES[:1]).gpus()), 2)]
    assert names == ["AMD Instinct MI300X", "simulated device (healthy)", "no device, gfx942 assumed"]


# --- lists --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "n_shards"), [(0, 0), (200, 0), (201, 1), (1200, 1), (1201, 2)])
def test_a_list_has_each_row_once_in_the_page_or_in_one_file(n: int, n_shards: int) -> None:
    listing = Listing("rows", n, "", lambda: range(n), lambda row: f"<{row}>")
    files = list(listing.files())
    assert len(files) == n_shards == len(listing.shards)
    told = "".join(listing.first()) + "".join(str(data(text_of(file))) for file in files)
    assert told == "".join(f"<{row}>" for row in range(n))
    assert sum(1 for _ in listing.first()) == min(n, FIRST_ROWS)


def test_a_long_list_of_cases_goes_on_in_files_of_data() -> None:
    contents = MadeContents(n_runs=1, n_cases=2500)
    files = {file.path: file for file in site_files(contents)}
    run = "run-run-00000-5f0c6d1a"
    assert [path for path in files if path.startswith(f"data/{run}")] == [f"data/{run}-{i}.js" for i in (1, 2, 3)]
    page = text_of(files["runs/run-00000-5f0c6d1a.html"])
    shards = re.search(r'data-shards="([^"]*)"', page)
    assert shards
    assert re.sub(r"\?[0-9a-f]{8}", "", shards[1]) == f"data/{run}-1.js data/{run}-2.js data/{run}-3.js"
    rest = "".join(str(data(text_of(files[f"data/{run}-{i}.js"]))) for i in (1, 2, 3))
    keys = re.findall(r'id="(case-[^"]*)"', page) + re.findall(r'id="(case-[^"]*)"', rest)
    assert keys == [f"case-{case.key}" for case in contents.cases("run-00000-5f0c6d1a")]


def test_signatures_that_fit_their_page_stand_there_worst_first() -> None:
    contents = MadeContents()
    slug = op_slug("aten::mm.default")
    page = next(text_of(file) for file in site_files(contents) if file.path == f"ops/{slug}.html")
    statuses = re.findall(r'<details class="case s-([a-z_]+)"', page)
    order = ["unsupported", "divergent", "falling_back", "slow", "inconclusive", "supported"]
    assert len(statuses) == 12
    assert statuses == sorted(statuses, key=order.index)


def test_an_op_has_the_largest_error_and_the_median_share_of_the_limit_on_each_stack() -> None:
    first = next(iter(MadeContents().signatures(op_slug("aten::mm.default"))))
    seen = first.observations[0]
    found = numbers_by_stack(
        replace(first, observations=(replace(seen, stack_slug=stack, worst_ratio=ratio, device_us=us, floor_us=10.0),))
        for stack, ratio, us in [("a", 2.0, 20.0), ("a", 9.5, 40.0), ("a", None, 100.0), ("b", None, None)]
    )
    assert found == {"a": StackNumbers(9.5, 0.25, 3), "b": StackNumbers(None, None, 0)}


def test_no_page_grows_with_what_a_site_or_a_file_has_any_number_of() -> None:
    contents = MadeContents(
        n_versions=40, n_ops=120, n_runs=400, n_cases=2000, n_signatures=300, n_transitions=200, n_changes=200,
        n_items=20_000, devices=DEVICES[:2],
        left=tuple(LeftOut(f"runs/{n}/run.jsonl", "not-a-run", "is no run file") for n in range(20_000)),
    )  # fmt: skip
    first = {"ops": 0, "gpus": 0, "models": 0, "runs": 0}
    heavy = {}
    for file in site_files(contents):
        kind = file.path.partition("/")[0]
        if file.path.endswith(".html") and first.get(kind, 0) < 1:
            first[kind] = first.get(kind, 0) + 1
            if (size := len(text_of(file))) > 700_000:
                heavy[file.path] = size
    assert heavy == {}
    assert {"ops", "gpus", "models", "runs", "history.html", "left-out.html", "matrix.html"} <= set(first)


# --- words --------------------------------------------------------------------------------------------------------


def test_words_of_filters_hold_no_blank_and_no_bar() -> None:
    assert facets(status="slow", dtype="a b|c:d", stack="") == "status:slow dtype:a%20b%7Cc%3Ad"


def test_an_error_beyond_its_allowance_says_what_is_allowed() -> None:
    assert ratio_text(412.5, 16.0) == "412× of 16×"
    assert ratio_text(3.0, 16.0) == "3×"
    assert ratio_text(float("inf"), 16.0) == "inf× of 16×"
    assert ratio_text(None) == "–"


def test_a_bar_fills_its_width_and_hides_no_status() -> None:
    pieces = segments(Tally((("unsupported", 1), ("supported", 99_999))))
    assert [(status, n) for status, n, _, _ in pieces] == [("supported", 99_999), ("unsupported", 1)]
    assert pieces[1][3] > 0.7
    assert sum(width for *_, width in pieces) == pytest.approx(100, abs=0.05)
    assert segments(Tally()) == []


HOSTILE = (
    "<script>document.title='taken'</script>",
    "\"onmouseover='alert(2)'",
    "javascript:alert(3)",
    "{{ 7 * 7 }}{% raw %}",
    "../../../../etc/cron.d/x",
    "</script><img src=x onerror=alert(1)>",
    "x" * 5000,
)


@pytest.fixture(scope="module")
def hostile() -> Callable[[], MadeContents]:
    def made() -> MadeContents:
        return MadeContents(n_ops=12, n_models=6, names=HOSTILE, text="".join(HOSTILE[:6]))

    return made


def test_hostile_names_and_texts_become_text(hostile: Callable[[], MadeContents]) -> None:
    n_pages = 0
    for file in site_files(hostile()):
        assert re.fullmatch(r"[a-z0-9/._-]+", file.path), file.path
        text = text_of(file)
        if file.path.endswith(".html"):
            n_pages += 1
            links = Links(text)
            assert links.inline == [], file.path
            assert [one for one in links.addresses if one.startswith("javascript")] == [], file.path
            assert "<img src=x" not in text, file.path
        elif file.path.startswith("data/"):
            assert "<" not in text, file.path
            assert "</script" not in text, file.path
    assert n_pages == 12 + 5 + 6 + 15 + 9
