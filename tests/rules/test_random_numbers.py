"""NUM214: random numbers of another law; NUM208: another result for the same seed."""

from __future__ import annotations

import pytest

from audit.comparison import ChanceTest, Distribution


def judged(build, **law):
    comparison = build.comparison(standard="metadata", distribution=Distribution("uniform(0, 1)", 5000, **law))
    return build.findings(build.measurement(comparison))


def test_right_numbers_are_supported_without_a_note(build):
    assert judged(build, tests=(ChanceTest("mean", -3.0, 2.9),)) == []


def test_numbers_that_are_right_once_in_ten_thousand_million_times_are_not(build):
    [finding] = judged(build, tests=(ChanceTest("mean", -0.5, 0.4), ChanceTest("goodness of fit", -12.0, 0.06)))
    assert (finding.code, finding.status) == ("NUM214", "divergent")
    assert finding.message == (
        "output 0: its 5000 numbers are not uniform(0, 1): goodness of fit 0.06, as bad as which right ones look once "
        "in 10^12 times"
    )


@pytest.mark.parametrize(("chance", "n_findings"), [(-9.2, 0), (-9.4, 1)])
def test_the_chance_is_shared_by_the_tests_of_an_output(build, chance, n_findings):
    assert len(judged(build, tests=(ChanceTest("mean", chance, 6.0), ChanceTest("variance", -0.5, 0.4)))) == n_findings


def test_a_number_that_the_law_cannot_give_is_enough(build):
    [finding] = judged(build, n_outside=3)
    assert finding.message == "output 0: 3 of its numbers are none that uniform(0, 1) can give"


def test_another_result_for_the_same_seed_is_divergent(build):
    comparison = build.comparison(
        standard="metadata", distribution=Distribution("uniform(0, 1)", 5000), n_not_repeated=5, n_elements=5000
    )
    [finding] = build.findings(build.measurement(comparison))
    assert (finding.code, finding.status) == ("NUM208", "divergent")
    assert finding.message.endswith("the same seed must give the same numbers")
