"""Errors in ULP as a line of bars."""

from __future__ import annotations

from audit.report.ulp_bars import bars, bars_label


def test_heights_follow_the_logarithm_and_nothing_is_a_dot():
    assert bars((1023, 0, 31, 1)) == "█·▅▂"
    assert bars_label((1023, 0, 31, 1)) == "errors from 0 to 2^3 ULP"


def test_no_histogram_has_no_bars():
    assert (bars(()), bars((0, 0)), bars_label(())) == ("", "", "")


def test_a_strange_file_shows_at_most_64_bars():
    assert len(bars((-1, *(2**70,) * 500))) == 64
