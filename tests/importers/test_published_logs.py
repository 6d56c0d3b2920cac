"""The published operator-input logs (140 training steps): every call is accounted for, and nearly all cases replay.

They are no part of the project: looked for beside the checkout, in ``../shared/data/op_logs``.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

import audit
from audit.importers.account import ONE_DEVICE
from audit.importers.operator_log import read_recording
from audit.ordering import guessed_cost
from audit.replay.work import operand_bytes
from audit.schema import Case, Trace
from tests.importers.replayed import outcome_on_cpu

LOGS = Path(audit.__file__).resolve().parents[2] / "shared" / "data" / "op_logs"
#: The variable with the seconds to replay for, cheapest cases first (``inf``: all, in hours), and what it is unset.
BUDGET, DEFAULT_BUDGET_S = "PUBLISHED_LOGS_BUDGET_S", "600"


@pytest.fixture(scope="module")
def published() -> dict[str, Trace]:
    if not LOGS.is_dir():
        pytest.skip(f"the published logs are not in {LOGS.parent}")
    return {f"{path.parent.name}/{path.stem}": read_recording(path) for path in sorted(LOGS.glob("*/*.txt"))}


def distinct(traces: dict[str, Trace]) -> list[Case]:
    return list({case.key: case for trace in traces.values() for case in trace.cases}.values())


def test_every_call_is_in_a_case_or_listed(published: dict[str, Trace]):
    listed: dict[tuple[str, str], int] = {}
    for trace in published.values():
        n_listed = sum(item.n_calls for item in trace.not_audited)
        assert trace.n_recorded == sum(case.n_calls for case in trace.cases) + n_listed
        for item in trace.not_audited:
            listed[item.what, item.reason] = listed.get((item.what, item.reason), 0) + item.n_calls
    assert len(published) == 140
    assert sum(trace.n_recorded for trace in published.values()) == 133_823
    assert len(distinct(published)) == 17_066
    assert listed == {
        ("aten::_cudnn_rnn.default", ONE_DEVICE): 3,
        ("aten::_cudnn_rnn_backward.default", ONE_DEVICE): 3,
        ("aten::_sparse_coo_tensor_with_dims_and_tensors.default", "not strided result (sparse)"): 496,
    }


@pytest.mark.filterwarnings("ignore:ComplexHalf")
def test_the_smallest_case_of_each_op_replays(published: dict[str, Trace]):
    smallest: dict[str, Case] = {}
    for case in sorted(distinct(published), key=operand_bytes):
        smallest.setdefault(case.op, case)
    outcomes = {op: outcome_on_cpu(case) for op, case in smallest.items() if operand_bytes(case) < 1 << 24}
    assert len(outcomes) == 165
    assert {op: outcome.message for op, outcome in outcomes.items() if outcome.kind != "ok"} == {}


@pytest.mark.evidence
@pytest.mark.timeout(12 * 3600)
@pytest.mark.filterwarnings("ignore:ComplexHalf")
def test_nearly_all_cases_replay(published: dict[str, Trace]):
    """One run of each case on the CPU, at its full size, from the cheapest on (docs/measurements.md).

    What a process is killed by (memory) ends the test; no case is left out for its size.
    """
    end = time.monotonic() + float(os.environ.get(BUDGET, DEFAULT_BUDGET_S))
    n_run, failed = 0, {}
    for case in sorted(distinct(published), key=lambda case: guessed_cost(case) / case.n_calls):
        if time.monotonic() > end:
            break
        outcome = outcome_on_cpu(case)
        n_run += 1
        if outcome.kind != "ok":
            failed[case.key] = outcome.message
    print(f"{n_run} of {len(distinct(published))} cases were run, {len(failed)} failed: {failed}")
    assert n_run > 0
    assert len(failed) <= 0.01 * n_run
