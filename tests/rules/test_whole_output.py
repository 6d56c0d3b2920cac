"""NUM212: the sketch of an output that was too large to be compared element by element."""

from __future__ import annotations

import dataclasses

import pytest

from audit.comparison import Comparison, Sketch, SketchScale
from audit.rules.thresholds import Thresholds
from audit.rules.whole_output import log10_chance


def scale(name="tile", n=65_536, excess=40.0, n_summed=16, place=(512, 640)) -> SketchScale:
    return SketchScale(name, n, excess, n_summed, place)


@pytest.fixture
def sketched(build):
    def make(*scales: SketchScale, typical: float = 1.0) -> Comparison:
        sketch = Sketch(width=64, n_blocks=1_000_000, made_of="one rounding", typical=typical, scales=scales)
        return build.comparison(n_elements=117_440_512, n_compared=1_600_000, sketch=sketch)

    return make


def test_errors_of_rounding_alone_are_supported_without_a_word(build, sketched):
    assert build.codes(build.measurement(sketched(scale(excess=52.8), scale("column", 128, 8472.3, 8192)))) == []


def test_a_wrong_tile_is_told_with_its_place_and_chance(build, sketched):
    [finding] = build.findings(build.measurement(sketched(scale(excess=419.6))))
    assert (finding.code, finding.status) == ("NUM212", "divergent")
    assert finding.message == (
        "output 0 is off in a tile of 16 rows and 64 columns from [512, 640] on: the errors there have 26 times the "
        "variance of one rounding, 1.2 times is allowed; a healthy output comes to this once in 10^54 "
        "(sketch of all 117440512 elements)"
    )


def test_what_most_of_the_output_has_is_allowed_everywhere_up_to_four_roundings(build, sketched):
    whole = scale("whole", 1, 3.6 * 1_000_000, 1_000_000, (0, 0))
    assert build.codes(build.measurement(sketched(whole, typical=3.6))) == []
    assert build.codes(build.measurement(sketched(whole, typical=1.0))) == [("NUM212", "divergent")]
    more = dataclasses.replace(whole, excess=9.0 * 1_000_000)
    [finding] = build.findings(build.measurement(sketched(more, typical=9.0)))
    assert "is off all over" in finding.message


def test_the_chance_is_chernoffs_for_chi_square_times_the_number_of_sums():
    # exp(-(160 - 16 - 16 ln 10) / 2) = 5.4e-24, times 1000
    assert log10_chance(scale(n=1000, excess=160.0), 1.0) == pytest.approx(-20.27, abs=0.01)
    assert log10_chance(scale(excess=15.0), 1.0) == 0.0


def test_an_infinite_excess_has_no_chance_and_an_empty_scale_no_say(build, sketched):
    assert build.codes(build.measurement(sketched(scale(excess=float("inf"))))) == [("NUM212", "divergent")]
    assert build.codes(build.measurement(sketched(scale(n=0, excess=0.0, n_summed=0)))) == []


def test_the_chance_that_is_accepted_can_be_changed(build, sketched):
    comparison = sketched(scale(excess=100.0))
    assert log10_chance(scale(excess=100.0), 1.25) == pytest.approx(-3.49, abs=0.01)
    assert build.codes(build.measurement(comparison)) == []
    loose = Thresholds(sketch_chance=1e-2)
    assert build.codes(build.measurement(comparison), thresholds=loose) == [("NUM212", "divergent")]
