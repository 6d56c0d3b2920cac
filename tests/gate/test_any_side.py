"""Whatever a side holds: beside itself it passes, one worsened case fails, and the order of lines is of no account."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from audit.gate.outcome import gate
from audit.gate.policy import Policy
from audit.gate.side import CaseState, Side
from audit.schema import DEVICE_STATUSES, STATUSES, DeviceInfo
from tests.gate.conftest import TODAY

TIMES = st.none() | st.floats(0, 1e9)
WORDS = st.none() | st.lists(st.sampled_from(("hipBLASLt", "MIOpen", "aten::mm.default")), max_size=2).map(tuple)
STATES = st.builds(
    CaseState,
    key=st.sampled_from([f"k-{i}" for i in range(8)]),
    op=st.sampled_from(("aten::mm.default", "aten::relu.default")),
    status=st.sampled_from(STATUSES),
    n_calls=st.integers(1, 10**6),
    codes=st.lists(st.sampled_from(("SUP101", "NUM201")), max_size=2).map(tuple),
    reason=st.text(max_size=20),
    device_us=TIMES,
    iqr_us=TIMES,
    worst_ratio=st.none() | st.floats(0, allow_nan=False),
    libraries=WORDS,
    chosen_ops=WORDS,
    seen=st.lists(st.sampled_from(STATUSES), max_size=2).map(tuple),
    seen_us=st.lists(st.floats(0, 1e9), max_size=2).map(tuple),
)
CASES = st.lists(STATES, min_size=1, max_size=6, unique_by=lambda case: case.key).map(tuple)
SIDES = st.builds(
    lambda cases: Side("net.py", "measured", DeviceInfo("hip", "AMD Instinct MI300X", "gfx942"), cases), CASES
)


@settings(max_examples=40, deadline=None)
@given(SIDES)
def test_a_side_beside_itself_is_clean(side: Side) -> None:
    outcome = gate(side, side, Policy(), TODAY)
    assert (outcome.exit_code, outcome.judged, outcome.environment, outcome.trace) == (0, (), (), None)


@settings(max_examples=40, deadline=None)
@given(SIDES, st.data())
def test_any_single_worsened_case_fails(side: Side, data: Any) -> None:
    index = data.draw(st.integers(0, len(side.cases) - 1))
    case = replace(side.cases[index], seen=(), seen_us=())
    baseline = replace(side, cases=(*side.cases[:index], case, *side.cases[index + 1 :]))
    worse = [*DEVICE_STATUSES[STATUSES.index(case.status) + 1 :], "inconclusive"]
    assume(case.status != "inconclusive")  # what it becomes is news and no worsening
    worsened = replace(case, status=data.draw(st.sampled_from(worse)))
    candidate = replace(side, cases=(*side.cases[:index], worsened, *side.cases[index + 1 :]))
    outcome = gate(baseline, candidate, Policy(), TODAY)
    assert outcome.exit_code == 1
    assert {item.difference.key for item in outcome.judged if item.level == "fail"} == {case.key}


@settings(max_examples=40, deadline=None)
@given(SIDES, SIDES, st.randoms(use_true_random=False))
def test_the_order_of_lines_does_not_matter(baseline: Side, candidate: Side, random: Any) -> None:
    shuffled = replace(candidate, cases=tuple(random.sample(candidate.cases, len(candidate.cases))))
    assert gate(baseline, candidate, Policy(), TODAY).judged == gate(baseline, shuffled, Policy(), TODAY).judged
