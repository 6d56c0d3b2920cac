"""A case run on the CPU: as it was recorded, in fp64, with moved inputs, and by other ways of computing the same."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from audit.replay import widen
from audit.replay.batch_norm_by_squares import by_squares_of
from audit.replay.equivalents import equivalent_of
from audit.replay.execute import Produced, call, in_phase, with_mutated
from audit.replay.forwards import with_own_forward
from audit.replay.inputs import Bound, bind, seed_generators
from audit.replay.noise import rounds_once
from audit.replay.on_cpu import cpu_op
from audit.replay.operands import Operand, narrow_operands, single_operands
from audit.replay.outcomes import attempt
from audit.replay.overload import resolve
from audit.replay.winograd import winograd_of
from audit.schema import Case, Outcome

#: For operands of more bytes than this (an optimizer step over all weights of a large model) one fp64 run is enough.
REPEAT_LIMIT_BYTES = 1 << 29
_CPU = torch.device("cpu")

#: What to call, made where it may raise.
Op = Callable[[], Callable[..., Any]]
#: The bytes of a case's storages, by their names.
Contents = dict[str, torch.Tensor]
#: Outputs, changed arguments and gradients by name.
Outputs = dict[str, torch.Tensor]


@dataclass(frozen=True)
class CpuRun:
    """One run on the CPU: what it gave, on what it ran, how long the call took by the clock and of all threads."""

    produced: list[Produced]
    bound: Bound
    seconds: float
    cpu_seconds: float

    def by_name(self, case: Case, mutated: list[int]) -> Outputs:
        """The tensors of it, with the operands at the positions ``mutated``."""
        outputs = with_mutated(case, self.bound, self.produced, mutated)
        return {item.name: item.tensor for item in outputs if item.tensor is not None}


@dataclass(frozen=True)
class CpuRuns:
    """Runs cases, with random numbers and synthesised values from ``seed``."""

    seed: int

    def run(self, case: Case, op: Op, contents: Contents, operand: Operand | None = None) -> CpuRun | Outcome:
        """One run on ``operand``, or on fresh copies of the operands; the outcome if it raises."""

        def run() -> CpuRun:
            function = op()
            bound = self.bound(case, operand or narrow_operands(case, contents))
            bound, _ = with_own_forward(case, bound, operator)
            seed_generators(self.seed, _CPU)
            start, cpu_start = time.perf_counter(), time.process_time()
            produced = in_phase(case.phase, case, lambda: call(case, function, bound))
            return CpuRun(produced, bound, time.perf_counter() - start, time.process_time() - cpu_start)

        return attempt(run)

    def bound(self, case: Case, operand: Operand) -> Bound:
        """The call bound to its operands."""
        return bind(case, operand, _CPU, self.seed)

    def outputs(
        self, case: Case, op: Op, contents: Contents, mutated: list[int], operand: Operand | None = None
    ) -> Outputs:
        """What ``run`` gave, by name; nothing where it failed."""
        run = self.run(case, op, contents, operand)
        return run.by_name(case, mutated) if isinstance(run, CpuRun) else {}

    def wide(
        self, case: Case, op: Op, contents: Contents, mutated: list[int], move: bool, only: str | None = None
    ) -> tuple[Outputs, float]:
        """fp64 outputs by name (none where that fails) and the CPU seconds; ``only``: the storage to be moved."""
        wide_case = widen.widened(case)
        operand = widen.operands(case, contents, self.seed if move else None, only, rounds_once(case))
        run = self.run(wide_case, op, contents, operand)
        return (run.by_name(case, mutated), run.cpu_seconds) if isinstance(run, CpuRun) else ({}, 0.0)

    def shifted(self, case: Case, op: Op, contents: Contents, mutated: list[int]) -> list[Outputs]:
        """fp64 outputs with all of one operand some rounding steps larger, and smaller; for each operand."""
        wide_case = widen.widened(case)
        by = ((name, shift) for name in widen.movable(case) for shift in (1, -1))
        return [
            self.outputs(wide_case, op, contents, mutated, widen.operands(case, contents, None, name, shift=shift))
            for name, shift in by
        ]

    def moved_narrow(self, case: Case, contents: Contents, mutated: list[int]) -> Outputs:
        """What moved inputs give in the case's own dtypes."""
        moved = widen.moved_contents(case, contents, self.seed)
        return self.outputs(case, lambda: cpu_op(case), moved, mutated)

    def otherwise(self, case: Case, contents: Contents) -> list[Outputs]:
        """What other ways of computing the same give in the case's own precision: as noisy as any device's may be.

        In float32 before the rounding to half precision, also where terms cancel that the CPU's own run happens to have
        exactly.
        """
        single = single_operands(case, contents)
        found = {} if single is None else self.outputs(case, lambda: resolve(case.op), contents, [], single)
        return [found] if found else []

    def as_libraries(self, case: Case, contents: Contents, mutated: list[int]) -> list[Outputs]:
        """What a convolution by Winograd's algorithm gives, or a batch norm by squares; none for all other calls."""
        way = winograd_of(case) or by_squares_of(case)
        found = {} if way is None else self.outputs(case, lambda: way, contents, mutated)
        return [found] if found else []


def operator(name: str) -> Callable[..., Any]:
    """The op on the CPU, by its equivalent where it has no kernel there."""
    return equivalent_of(name) or resolve(name)


def n_bytes(contents: Contents) -> int:
    """Of all storages together."""
    return sum(content.numel() for content in contents.values())
