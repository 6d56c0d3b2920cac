"""Each program of the zoo computes under the tracer what it computes without, and its calls are accounted for."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from audit.schema import Trace
from audit.tracer.composites import is_vendor_op
from audit.tracer.recorder import Recorder
from audit.tracer.values import ValueRecorder
from tests.tracer.invariant import check
from tests.zoo import vision
from tests.zoo.program import ZooProgram
from tests.zoo.registry import PROGRAMS

#: Reasons for which a call of any program may have no case; a program's own are in ``ZooProgram.unaudited``.
HARMLESS = ("annotation for profilers", "meta tensor: it has no values and runs no kernel", "traced eagerly: ")


def programs(quick: bool) -> list[Any]:
    chosen = [program for program in PROGRAMS if program.quick is quick]
    return [pytest.param(program, id=program.name) for program in chosen]


def check_program(program: ZooProgram) -> None:
    if missing := program.missing():
        pytest.skip(f"needs {', '.join(missing)}: pip install 'rocm-audit[zoo]'")
    trace = check(program.step)
    assert trace.cases
    assert not [case.op for case in trace.cases if is_vendor_op(case.op)]
    allowed = (*HARMLESS, *program.unaudited)
    unexplained = {item for item in trace.not_audited if not item.reason.startswith(allowed)}
    assert unexplained == set()
    unused = [reason for reason in program.unaudited if not any(i.reason.startswith(reason) for i in trace.not_audited)]
    assert unused == []


@pytest.mark.parametrize("program", programs(quick=True))
def test_a_program_is_traced_as_it_is(program: ZooProgram) -> None:
    check_program(program)


@pytest.mark.slow
@pytest.mark.parametrize("program", programs(quick=False))
def test_every_other_program_is_traced_as_it_is(program: ZooProgram) -> None:
    check_program(program)


def test_a_vit_has_one_normal_form_under_inference_mode_no_grad_and_grad() -> None:
    """The same cases, but for the detach that autograd adds and the flag of what requires grad."""
    pytest.importorskip("transformers")

    def forward_ops(step: Any) -> dict[str, int]:
        counts: dict[str, int] = {}
        for case in record(step).cases:
            if case.modules and case.op != "aten::detach.default":
                counts[case.op] = counts.get(case.op, 0) + case.n_calls
        return counts

    inference, no_grad, grad = map(forward_ops, (vision.vit_inference_mode, vision.vit_no_grad, vision.vit_grad))
    assert inference["aten::scaled_dot_product_attention.default"] == 2
    assert inference == no_grad == grad


def record(step: Any) -> Trace:
    from audit.schema import Source

    torch.manual_seed(0)
    recorder = Recorder(ValueRecorder())
    recorder.start()
    try:
        step()
    finally:
        recorder.stop()
    return recorder.build(Source("script", step.__name__), {})[0]
