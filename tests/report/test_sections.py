"""What the charts, the tree and the comparison show, on rows: places, counts, sums."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pytest

from audit.comparison import Comparison
from audit.report.page import SECTIONS, parts, render
from audit.report.rows import case_rows
from audit.report.sections.axis import LogAxis
from audit.report.sections.beside import beside
from audit.report.sections.errors import HIGHEST, LOWEST, bin_of, errors
from audit.report.sections.module_tree import Node, module_tree
from audit.report.sections.modules import MAX_NODES, WIDTH, leaves, modules
from audit.report.sections.roofline import LEFT, LETTER, roofline
from audit.report.sections.section import Material
from audit.report.sections.shapes import mark_path
from audit.rules.judge import judge
from audit.run_records import Run, RunEnd
from audit.schema import STATUSES, Ceilings, Measurement, Outcome, Rate
from audit.verdicts import Judgement
from tests.report.gpu_runs import ADD, MM, gpu_run, spec

# --- the page --------------------------------------------------------------------------------------------------


def test_every_section_has_an_anchor_of_its_own_and_its_template() -> None:
    anchors = [section.anchor for section in SECTIONS]
    assert len(set(anchors)) == len(anchors) == 14


def test_a_run_shows_the_sections_that_it_has_something_for(make_judgement: Callable[..., Judgement]) -> None:
    shown = [part.anchor for part in parts(Material(make_judgement(20)))]
    assert "beside" not in shown
    assert "limits" not in shown
    assert {"coverage", "roofline", "errors", "modules", "operators", "left-out"} <= set(shown)


# --- against the device's limits -------------------------------------------------------------------------------


def test_a_mark_stands_at_its_intensity_and_its_rate(make_judgement: Callable[..., Judgement]) -> None:
    found = roofline(Material(judge(gpu_run(make_judgement, (MM, 500.0), (ADD, 40.0)))))
    assert found.arithmetic is not None
    assert found.traffic is not None
    [mark] = found.arithmetic.marks
    flops, nbytes = 2 * 4096**3, 3 * 4096 * 4096 * 2
    assert (mark.x, mark.y) == (pytest.approx(flops / nbytes), pytest.approx(flops / 500e-6))
    assert "275 TFLOP/s at 1.37e+03 FLOP/B" in mark.label
    [mark] = found.traffic.marks
    assert (mark.x, mark.y) == (nbytes, pytest.approx(nbytes / 40e-6))
    assert found.rates.startswith("the datasheet peaks of AMD Instinct MI300X")


def test_ceilings_are_those_that_were_measured_where_they_were(make_judgement: Callable[..., Judgement]) -> None:
    run = gpu_run(make_judgement, (MM, 500.0))
    ceilings = Ceilings(Rate(4000.0, 1.0, 9), {"bfloat16": Rate(654.0, 1.0, 9)}, Rate(6.0, 0.5, 9))
    found = roofline(Material(judge(replace(run, header=replace(run.header, ceilings=ceilings)))))
    assert found.arithmetic is not None
    assert [line.name for line in found.arithmetic.lines] == ["4.00 TB/s", "bfloat16 654 TFLOP/s"]
    assert found.rates.startswith("measured on AMD Instinct MI300X")


def test_no_name_of_a_line_leaves_the_drawing(make_judgement: Callable[..., Judgement]) -> None:
    small = replace(ADD, args=(spec(2048, 2048), spec(2048, 2048)))  # the slope of a launch ends right of the axis
    run = gpu_run(make_judgement, (small, 40.0))
    ceilings = Ceilings(Rate(4000.0, 1.0, 9), {}, Rate(6.0, 0.5, 9))
    found = roofline(Material(judge(replace(run, header=replace(run.header, ceilings=ceilings)))))
    assert found is not None
    assert found.traffic is not None
    names = [line.name for line in found.traffic.lines]
    assert names == ["copy 4.00 TB/s", "one launch, 6.00 µs"]
    for line in found.traffic.lines:
        assert line.x - LETTER * len(line.name) >= LEFT


def test_a_device_of_which_no_rate_is_known_has_marks_and_no_lines(make_judgement: Callable[..., Judgement]) -> None:
    run = gpu_run(make_judgement, (MM, 500.0))
    unknown = replace(run.header, device=replace(run.header.device, name="AMD Radeon Next", arch="gfx9999"))
    judgement = judge(replace(run, header=unknown))
    found = roofline(Material(judgement))
    assert found is not None
    assert found.arithmetic is not None
    assert (found.arithmetic.lines, found.rates) == ((), "")
    assert "No rates of AMD Radeon Next are known" in render(judgement)


@pytest.mark.parametrize(("backend", "why"), [("sim", "a simulated device ran"), ("none", "nothing ran")])
def test_where_no_gpu_was_timed_it_says_so_and_draws_nothing(
    make_judgement: Callable[..., Judgement], backend: str, why: str
) -> None:
    found = roofline(Material(make_judgement(20, backend=backend)))
    assert (found.arithmetic, found.traffic) == (None, None)
    assert why in found.why_none


def test_every_status_has_a_shape_of_its_own() -> None:
    paths = {mark_path(status, 0.0, 0.0, 10.0) for status in STATUSES}
    assert len(paths) == 6
    assert len({path.count("L") + 10 * path.count("a") for path in paths}) >= 5


def test_a_logarithmic_axis_holds_what_is_zero_or_endless() -> None:
    axis = LogAxis.over([0.0, math.inf, 3.0, 4000.0], 100.0, 500.0)
    assert (axis.low, axis.high) == (0, 4)
    assert [axis.place(value) for value in (0.0, 1.0, 100.0, 1e9)] == [100.0, 100.0, 300.0, 500.0]
    assert LogAxis.over([], 0.0, 100.0).ticks() == [(0.0, 1.0), (30.1, 2.0), (69.9, 5.0), (100.0, 10.0)]
    assert [value for _, value in LogAxis(0, 12, 0.0, 1.0).ticks()] == [1.0, 1e2, 1e4, 1e6, 1e8, 1e10, 1e12]


# --- errors ----------------------------------------------------------------------------------------------------


def compared(make_judgement: Callable[..., Judgement], *outputs: Comparison) -> Judgement:
    """A run in which each case has one of these outputs."""
    header = replace(make_judgement(1, backend="hip").run.header, preflight=())
    cases = tuple(replace(MM, key=f"mm-{i}") for i in range(len(outputs)))
    measurements = {
        case.key: Measurement(case.key, Outcome("ok"), Outcome("ok"), (output,))
        for case, output in zip(cases, outputs, strict=True)
    }
    return judge(Run(header, cases, measurements, end=RunEnd(True)))


def output(ratio: float, n_different: int = 5, **fields: object) -> Comparison:
    counts = tuple(int(ratio > 2**i) for i in range(12))
    made = Comparison(
        "output", "numeric", None, None, reference="fp64", n_elements=100, n_different=n_different, worst_ratio=ratio,
        noise=1e-3, eps=1e-3, max_abs_error=ratio * 1e-3, ratio_counts=counts, worst_index=(0,), worst_actual="1.5",
        worst_expected="1.0",
    )  # fmt: skip
    return replace(made, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("ratio", "place"),
    [(0.0, LOWEST), (1e-9, LOWEST), (0.75, -1), (1.0, 0), (8.0, 3), (9e9, HIGHEST), (math.inf, HIGHEST)],
)
def test_a_ratio_falls_between_its_powers_of_two(ratio: float, place: int) -> None:
    assert bin_of(ratio) == place


def test_the_histogram_counts_each_case_once_and_sets_apart_what_has_no_ratio(
    make_judgement: Callable[..., Judgement],
) -> None:
    exact = Comparison("output", "exact", None, None, n_elements=100, n_different=3)
    judgement = compared(
        make_judgement, output(0.75), output(0.8), output(3.0), output(300.0), output(0.0, n_different=0),
        output(0.5, n_nan_mismatch=2), exact,
    )  # fmt: skip
    found = errors(Material(judgement))
    assert found is not None
    drawn = [(c.name, c.n_within, c.n_differ) for c in found.columns if c.n_within or c.n_differ]
    assert drawn == [("1/2 to 1", 2, 0), ("2 to 4", 1, 0), ("256 to 512", 0, 1)]
    assert dict(found.apart) == {
        "the same, bit for bit": 1,
        "different otherwise: NaN, Inf, bits, shape or elements that were never written": 2,
    }
    assert [label for _, label in found.allowed] == ["8"]
    assert found.nearest[0].ratio == 300.0


def test_the_allowance_stands_between_the_columns_that_it_parts(make_judgement: Callable[..., Judgement]) -> None:
    found = errors(Material(compared(make_judgement, output(7.9), output(8.1))))
    assert found is not None
    inside, beyond = (c for c in found.columns if c.n_within or c.n_differ)
    [(line, _)] = found.allowed
    assert inside.x + inside.width < line < beyond.x


# --- modules ---------------------------------------------------------------------------------------------------


def rows_in(make_judgement: Callable[..., Judgement], *modules: tuple[str, ...]) -> Judgement:
    judgement = make_judgement(len(modules), backend="hip")
    verdicts = tuple(
        replace(v, modules=places, phase="forward", total_us=100.0, n_calls=4, status="supported", findings=())
        for v, places in zip(judgement.verdicts, modules, strict=True)
    )
    return replace(judgement, verdicts=verdicts)


def flat(nodes: tuple[Node, ...]) -> list[Node]:
    return [found for node in nodes for found in (node, *flat(node.children))]


def paths(nodes: tuple[Node, ...]) -> list[str]:
    return [path for node in nodes for path in (node.path, *paths(node.children))]


def test_layers_that_differ_by_number_are_one_and_lone_modules_one_line(
    make_judgement: Callable[..., Judgement],
) -> None:
    judgement = rows_in(
        make_judgement, ("net.layers.0.q", "net.layers.1.q"), ("net.layers.0.k",), ("net.head",), (),
    )  # fmt: skip
    tree = module_tree(case_rows(judgement))
    assert paths(tree) == [
        "net",
        "net.layers.*",
        "net.layers.*.k",
        "net.layers.*.q",
        "net.head",
        "(outside of modules)",
    ]
    assert tree[0].us == 300.0
    assert tree[0].children[0].name == "layers.*"


def test_times_add_up_though_modules_share_a_case(make_judgement: Callable[..., Judgement]) -> None:
    judgement = rows_in(make_judgement, ("a.x", "b"), ("a.y",), ("b",))
    tree = module_tree(case_rows(judgement))
    assert {node.path: node.us for node in tree} == {"a": 150.0, "b": 150.0}
    assert sum(node.us for node in tree) == 300.0
    assert {node.path: node.n_cases for node in tree} == {"a": 2, "b": 2}


def test_the_worst_status_goes_up_to_the_root(make_judgement: Callable[..., Judgement]) -> None:
    judgement = rows_in(make_judgement, ("a.x.p",), ("a.x.q",), ("b",))
    verdicts = (replace(judgement.verdicts[0], status="divergent"), *judgement.verdicts[1:])
    tree = module_tree(case_rows(replace(judgement, verdicts=verdicts)))
    a, b = tree
    assert (a.status, a.n_by_status) == ("divergent", (("divergent", 1), ("supported", 1)))
    assert b.status == "supported"


def test_cases_of_one_op_in_a_module_are_one_leaf_and_none_is_lost(llama_judgement: Judgement) -> None:
    nodes = [node for node in flat(module_tree(case_rows(llama_judgement))) if node.own]
    grouped = [leaves(node) for node in nodes]
    assert [sum(leaf.n for leaf in found) for found in grouped] == [len(node.own) for node in nodes]
    assert all(len({(leaf.status, leaf.op) for leaf in found}) == len(found) for found in grouped)
    assert any(leaf.n > 1 for found in grouped for leaf in found)


def test_the_icicle_fills_its_width_and_no_piece_leaves_its_parent(llama_judgement: Judgement) -> None:
    found = modules(Material(llama_judgement))
    assert found is not None
    top = [piece for piece in found.pieces if piece.y == 0]
    assert sum(piece.width + 1 for piece in top) == pytest.approx(WIDTH, abs=4)
    for piece in found.pieces:
        assert piece.x + piece.width <= WIDTH + 0.1
        if piece.y:
            above = [
                p for p in found.pieces if p.y < piece.y and p.x - 0.2 <= piece.x and piece.x < p.x + p.width + 0.2
            ]
            assert above


def test_a_tree_of_many_thousand_modules_is_bounded(make_judgement: Callable[..., Judgement]) -> None:
    judgement = rows_in(make_judgement, *((f"net.part{i // 40}.leaf{i}",) for i in range(3000)))
    found = modules(Material(judgement))
    assert found is not None
    [net] = found.tree
    listed = sum(len(part.children) for part in net.children if part.anchor not in found.left)
    assert 0 < listed <= MAX_NODES
    assert found.left


# --- beside another device -------------------------------------------------------------------------------------


def test_ops_are_summed_over_their_kinds_and_the_faster_side_is_named(
    make_judgement: Callable[..., Judgement],
) -> None:
    small = replace(MM, key="mm-2", args=(spec(64, 64), spec(64, 64)))
    here = gpu_run(make_judgement, (MM, 500.0), (small, 20.0), (ADD, 40.0))
    there = gpu_run(make_judgement, (MM, 400.0), (small, 20.0), (ADD, 41.0), backend="cuda")
    found = beside(Material(judge(here, other=there)))
    assert found is not None
    mm, add = found.duels
    assert (mm.op, mm.here_us, mm.there_us, mm.winner) == ("mm", 260.0, 210.0, "there")
    assert mm.here_width == 100
    assert (add.op, add.winner) == ("add", "even")
    assert found.in_common == (280.0, pytest.approx(230.5))
