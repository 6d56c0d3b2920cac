"""NUM214: random numbers of another law than they were asked for."""

from __future__ import annotations

import math
from collections.abc import Iterator

from audit.comparison import ChanceTest, Comparison, Distribution
from audit.rules.thresholds import Thresholds
from audit.rules.wording import number
from audit.run_records import RunHeader
from audit.schema import Case, Measurement
from audit.verdicts import Finding


def another_law(case: Case, measurement: Measurement, header: RunHeader, thresholds: Thresholds) -> Iterator[Finding]:
    """NUM214: numbers that the law cannot give, or that right ones look like once in a very long time."""
    if measurement.device.kind != "ok" or measurement.n_damaged_inputs:
        return
    for comparison in measurement.comparisons:
        law = comparison.distribution
        if law is None:
            continue
        if law.n_outside:
            problem = f"{law.n_outside} of its numbers are none that {law.law} can give"
            yield _finding(comparison, law, problem, None)
        elif (worst := least_likely(law, thresholds)) is not None:
            problem = (
                f"its {law.n} numbers are not {law.law}: {worst.name} {number(worst.statistic)}, as bad as which right "
                f"ones look once in 10^{-worst.log10_chance:.0f} times"
            )
            yield _finding(comparison, law, problem, worst)


def least_likely(law: Distribution, thresholds: Thresholds) -> ChanceTest | None:
    """The test with the smallest chance, if that is below the allowed one, shared by all tests of the output."""
    if not law.tests or thresholds.random_chance <= 0:
        return None
    worst = min(law.tests, key=lambda test: test.log10_chance)
    return worst if worst.log10_chance < math.log10(thresholds.random_chance / len(law.tests)) else None


def _finding(comparison: Comparison, law: Distribution, problem: str, test: ChanceTest | None) -> Finding:
    return Finding(
        "NUM214",
        "divergent",
        f"{comparison.name}: {problem}",
        {
            "output": comparison.name,
            "law": law.law,
            "n": law.n,
            "n_outside": law.n_outside,
            "test": None if test is None else test.name,
            "statistic": None if test is None else test.statistic,
            "log10_chance": None if test is None else test.log10_chance,
        },
    )
