"""How the CPU takes a case whose arguments are made, without the runs that a comparison with a device needs."""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch

from audit.replay.execute import call, in_phase
from audit.replay.forwards import with_own_forward
from audit.replay.inputs import InputError, ValueFile, bind, materialise, seed_generators
from audit.replay.on_cpu import cpu_op
from audit.replay.operands import narrow_operands
from audit.replay.outcomes import attempt
from audit.replay.overload import resolve
from audit.replay.reference import Reference
from audit.schema import Case, Outcome

_CPU = torch.device("cpu")


def outcome_on_cpu(case: Case) -> Outcome:
    """One run in the case's own dtypes; where the CPU has no kernel for them, what the reference makes of it."""
    try:
        contents = materialise(case, ValueFile(None), seed=0)
    except InputError as error:
        return Outcome("not_run", message=str(error))

    def run() -> Outcome:
        bound, _ = with_own_forward(case, bind(case, narrow_operands(case, contents), _CPU, 0), resolve)
        seed_generators(0, _CPU)
        in_phase(case.phase, case, lambda: call(case, cpu_op(case), bound))
        return Outcome("ok")

    outcome = attempt(run)
    if not outcome.missing_kernel:
        return outcome
    with tempfile.TemporaryDirectory() as folder:
        answer = Reference(None, Path(folder), seed=0, n_threads=1).prepare(case)["outcome"]
    return Outcome(answer["kind"], message=answer.get("message", ""))
