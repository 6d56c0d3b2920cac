"""NUM208: whether all runs over the same inputs give the same bits."""

from __future__ import annotations

from collections.abc import Iterator

from audit.comparison import Comparison
from audit.knowledge.tables import matches
from audit.rules.places import described, places_data
from audit.rules.thresholds import Thresholds
from audit.run_records import RunHeader
from audit.schema import Case, Measurement
from audit.verdicts import Finding

#: Where a program promises determinism: torch.use_deterministic_algorithms, as recorded with the trace or the run.
PROMISE = "deterministic_algorithms"

#: Exact outputs of which several are right: places of equal values, and which of several writes to one place wins.
FREE_CHOICE = tuple(
    f"aten::{op}"
    for op in """
    topk.* sort.* argsort.* max.dim* min.dim* argmax.* argmin.* median.* nanmedian.* kthvalue.* mode.* cummax.* cummin.*
    *max_pool* *unique* scatter* index_put* _index_put_impl_* index_copy* put.* put_.*
    """.split()
)


def not_repeated(case: Case, measurement: Measurement, header: RunHeader, thresholds: Thresholds) -> Iterator[Finding]:
    """Divergent where repeatability is promised: by the program, or by an output held to exact bits (one of the two
    runs is then wrong, unless the op leaves a choice). Else a note, since atomic additions may come in any order.
    Unwritten elements and random outputs are not repeatable for reasons that have codes of their own."""
    if measurement.device.kind != "ok":
        return
    promised = header.environment.get(PROMISE, header.settings.get(PROMISE, "")).lower() in ("1", "true")
    promised = promised or ("torch.use_deterministic_algorithms", True) in case.settings
    for comparison in measurement.comparisons:
        if comparison.n_not_repeated > 0 and (comparison.standard != "metadata" or comparison.distribution is not None):
            exact = comparison.standard == "exact" and not matches(case.op, FREE_CHOICE)
            yield _finding(case, comparison, promised, exact)


def _finding(case: Case, comparison: Comparison, promised: bool, exact: bool) -> Finding:
    total = comparison.n_elements
    if comparison.distribution is not None:
        verdict, total = "; the same seed must give the same numbers", comparison.distribution.n
    elif promised:
        verdict = "; torch.use_deterministic_algorithms promises that they do not"
    elif exact:
        verdict = "; exact outputs that change are wrong in one run at least"
    else:
        verdict = ""
    count = comparison.n_not_repeated
    runs, differing = comparison.n_runs or 2, comparison.n_runs_differing or 2  # older files tell of two runs
    return Finding(
        "NUM208",
        "divergent" if verdict else "supported",
        f"{comparison.name}: {differing} of {runs} runs on the same input differ, in {count:,} of {total:,} elements"
        f"{described(comparison.not_repeated, case, comparison)}{verdict}",
        {
            "output": comparison.name,
            "n_not_repeated": count,
            "n_elements": total,
            "n_runs": runs,
            "n_runs_differing": differing,
            "promised": promised,
            **places_data(comparison.not_repeated, case, comparison),
        },
    )
