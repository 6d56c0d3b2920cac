"""Programs traced without any values replay: calls have valid inputs, and no finding that they do not deserve."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from audit.replay.engine import ReplaySettings
from audit.replay.pool import Pool
from audit.replay.reference import Reference
from audit.rules.judge import judge
from audit.run_records import Run, RunEnd, RunHeader
from audit.schema import Case, Measurement, Source, Trace
from audit.tracer.recorder import Recorder
from audit.tracer.values import ValueRecorder
from audit.verdicts import Judgement
from tests import architectures
from tests.architectures import ARCHITECTURES

#: Two that are quick: packed sequences, whose lengths must add up, and the encoder's fused layer.
IN_SHORT = (architectures.gru_packed, architectures.encoder_fast_path)
#: What the simulated device does on purpose: attention by its parts where a GPU would, too.
DESERVED = {"FBK302"}


def traced(program: Callable[[], object], values: ValueRecorder | None) -> Trace:
    torch.manual_seed(0)
    recorder = Recorder(values)
    recorder.start()
    try:
        program()
    finally:
        recorder.stop()
    return recorder.build(Source("script", "test"), {})[0]


@pytest.fixture(scope="module")
def pool(simulated_device: None) -> Iterator[Pool]:
    with Pool(ReplaySettings(device="sim", first_call_limit_s=60.0, steady_limit_s=30.0, timing_budget_s=0.0)) as pool:
        yield pool


def judged(trace: Trace, pool: Pool) -> Judgement:
    measured = {event.key: event for event in pool.replay(trace.cases) if isinstance(event, Measurement)}
    device = pool.device_info()
    header = RunHeader("simulated", trace.source, device, {}, {}, "", "", len(trace.cases), trace.n_recorded)
    return judge(Run(header, trace.cases, measured, frozenset(measured), RunEnd(complete=True)))


def check(program: Callable[[], object], pool: Pool) -> None:
    judgement = judged(traced(program, None), pool)
    n_calls = sum(verdict.n_calls for verdict in judgement.verdicts)
    inconclusive = [verdict for verdict in judgement.verdicts if verdict.status == "inconclusive"]
    assert sum(verdict.n_calls for verdict in inconclusive) <= 0.005 * n_calls, inconclusive
    findings = [
        (verdict.op, finding.code, finding.message)
        for verdict in judgement.verdicts
        for finding in verdict.findings
        if finding.status not in ("supported", "inconclusive") and finding.code not in DESERVED
    ]
    assert findings == []


@pytest.mark.parametrize("program", IN_SHORT, ids=lambda program: program.__name__)
def test_a_program_replays_on_the_simulated_device(program: Callable[[], object], pool: Pool):
    check(program, pool)


@pytest.mark.slow
@pytest.mark.parametrize("program", [p for p in ARCHITECTURES if p not in IN_SHORT], ids=lambda p: p.__name__)
def test_every_program_replays_on_the_simulated_device(program: Callable[[], object], pool: Pool):
    check(program, pool)


def answers(case: Case, reference: Reference) -> tuple[bool, bool]:
    """Whether the CPU takes the inputs, and whether what it gives is free of NaN."""
    valid = reference.prepare(case)["outcome"]["kind"] == "ok"
    expected = reference._prepared[case.key].expected.values() if valid else ()
    numbers = [e.wide if e.wide is not None else e.same for e in expected]
    reference.forget(case.key)
    return valid, not any(x is not None and bool(x.isnan().any()) for x in numbers)


@pytest.mark.parametrize("described", [False, True], ids=["nothing known", "statistics known"])
@pytest.mark.parametrize("program", [architectures.llama_generation, architectures.lstm_ctc], ids=lambda p: p.__name__)
def test_made_inputs_give_numbers(program: Callable[[], object], described: bool, tmp_path: Path):
    trace = traced(program, ValueRecorder(total_bytes=0) if described else None)
    reference = Reference(None, tmp_path, seed=0, n_threads=1)
    assert [case.op for case in trace.cases if answers(case, reference) != (True, True)] == []
