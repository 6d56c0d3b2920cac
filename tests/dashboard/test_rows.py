"""Shares and changes in words: what a percentage must name, and what only a measured run may say."""

from __future__ import annotations

from audit.dashboard.rows import CaseSet, Share, Tally, efficiency
from audit.schema import Evidence

TALLY = Tally((("divergent", 3), ("inconclusive", 2), ("supported", 193)))
CASES = CaseSet("llama_train.py", "5f0c6d1a2b3c", 198, ("0.1.0",))


def share(evidence: Evidence, is_imported: bool = False) -> str:
    return Share(evidence, is_imported, TALLY, CASES).text


def test_a_share_of_a_measured_run_has_its_denominator_and_what_is_not_known() -> None:
    assert share("measured") == "97.5 % supported: 193 of 198 cases; 1 % inconclusive"


def test_no_other_evidence_has_a_support_percentage() -> None:
    assert share("simulated") == "simulated: findings in 3 of 198 cases; 1 % inconclusive"
    assert share("stand-in") == "stand-in: findings in 3 of 198 cases; 1 % inconclusive"
    assert share("predicted") == "predicted: findings in 3 of 198 cases; 1 % inconclusive"
    assert share("measured", is_imported=True) == (
        "imported, measured: findings in 3 of 198 cases; 1 % inconclusive, since no number was compared"
    )


def test_a_share_of_no_case_says_so() -> None:
    assert Share("measured", True, Tally(), CASES).text == "imported, measured: no case"
    assert Share("simulated", False, Tally(), CASES).text == "simulated: no case"


def test_the_set_of_cases_is_named_with_its_version() -> None:
    assert CASES.text == "198 cases of llama_train.py (set 5f0c6d1a2b3c, rocm-audit 0.1.0)"


def test_efficiency_is_at_most_one_and_known_only_where_both_times_are() -> None:
    assert efficiency(200.0, 50.0) == 0.25
    assert efficiency(10.0, 12.0) == 1.0
    assert efficiency(None, 12.0) is None
    assert efficiency(0.0, 12.0) is None
