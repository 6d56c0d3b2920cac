"""NUM213 of parts of a narrow output, of its scale and of results that were cut."""

from __future__ import annotations

import pytest

from audit.comparison import CoarsePart

WORST = {"worst_ratio": 3.0, "n_elements": 1600}


@pytest.mark.parametrize(
    ("part", "where"),
    [
        (CoarsePart("tile", (2, 3), 256, 12.0), "in the tile of 16 x 16 that begins at [32, 48]"),
        (CoarsePart("index", (3,), 4, 12.0, dim=0), "in row 3"),
        (CoarsePart("run", (61,), 64, 12.0), "in elements 3904 to 3967"),
        (CoarsePart("row", (1, 2), 64, 12.0), "in the row at [1, 2]"),
    ],
)
def test_a_part_that_is_coarser_than_the_rest_is_divergent(build, part, where):
    comparison = build.comparison(rounding="once", parts=(part,), typical_part=1.0, **WORST)
    [finding] = build.findings(build.measurement(comparison))
    assert (finding.code, finding.status) == ("NUM213", "divergent")
    assert where in finding.message
    assert "12.0 times that of one rounding, allowed 5" in finding.message


def test_where_a_library_rounds_more_than_once_all_over_no_part_is_told_apart(build):
    part = CoarsePart("tile", (2, 3), 256, 12.0)
    winograd = build.comparison(rounding="mostly once", parts=(part,), typical_part=4.0, **WORST)
    direct = build.comparison(rounding="mostly once", parts=(part,), typical_part=1.1, **WORST)
    assert build.codes(build.measurement(winograd)) == []
    assert build.codes(build.measurement(direct)) == [("NUM213", "divergent")]


def test_a_whole_convolution_may_be_coarser_and_a_whole_activation_may_not(build):
    part = CoarsePart("whole", (), 1600, 6.0)
    for rounding, codes in (("mostly once", []), ("elementwise", [("NUM213", "divergent")])):
        comparison = build.comparison(rounding=rounding, parts=(part,), typical_part=1.0, **WORST)
        assert build.codes(build.measurement(comparison)) == codes


def test_what_single_elements_show_is_told_once(build):
    part = CoarsePart("tile", (2, 3), 256, 40.0)
    comparison = build.comparison(rounding="once", parts=(part,), typical_part=1.0, worst_ratio=20.0, n_elements=1600)
    assert build.codes(build.measurement(comparison)) == [("NUM201", "divergent")]


@pytest.mark.parametrize(("scale", "deviation", "n", "told"), [
    (0.02, 1e-4, 1600, True), (-0.02, 1e-4, 1600, True), (0.004, 1e-4, 1600, False), (0.02, 5e-3, 1600, False),
    (0.02, 1e-4, 9, False),
])  # fmt: skip
def test_an_output_that_is_too_large_all_over_is_divergent(build, scale, deviation, n, told):
    comparison = build.comparison(
        rounding="mostly once", scale_error=scale, scale_deviation=deviation, eps=2**-7, n_elements=n, worst_ratio=3.0
    )
    found = build.findings(build.measurement(comparison))
    assert [finding.code for finding in found] == ["NUM213"] * told
    assert all(("large" if scale > 0 else "small") in finding.message for finding in found)


@pytest.mark.parametrize(("rounding", "fraction", "n", "told"), [
    ("one operation", 0.5, 1600, True), ("one operation", 0.01, 1600, False), ("elementwise", 0.5, 1600, False),
    ("one operation", 0.5, 9, False),
])  # fmt: skip
def test_results_that_are_not_the_nearest_numbers_are_divergent(build, rounding, fraction, n, told):
    comparison = build.comparison(rounding=rounding, misrounded_fraction=fraction, n_elements=n, worst_ratio=1.0)
    assert build.codes(build.measurement(comparison)) == [("NUM213", "divergent")] * told
