"""The reference side: builds a case's inputs, runs it on the CPU, and measures the device's outputs against that."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from audit.codec import encode
from audit.comparison import Comparison, TensorFact
from audit.replay import widen
from audit.replay.compare import Expected, fact_of, flat
from audit.replay.cpu_time import cpu_time
from audit.replay.dequantised import formula_of, result_dtype
from audit.replay.equivalents import equivalent_of
from audit.replay.execute import Produced, call, in_phase, mutated_name, with_mutated
from audit.replay.expectation import change, expected_of
from audit.replay.explain import explained
from audit.replay.factors import recomposed, with_recomposed, with_terms_that_cancel
from audit.replay.forwards import with_own_forward
from audit.replay.host_memory import refusal
from audit.replay.inputs import (
    Bound,
    InputError,
    ValueFile,
    bind,
    materialise,
    missing_values,
    seed_generators,
    storages_of,
    torch_dtype,
)
from audit.replay.noise import LOW_PRECISION, Locality, locality_of, rounds_once
from audit.replay.on_cpu import cpu_op, note_of
from audit.replay.operands import narrow_operands, single_operands, spooled_operands
from audit.replay.outcomes import attempt
from audit.replay.overload import operand_names, resolve, written_operands
from audit.replay.returned import (
    elements_returned,
    returned,
    shaped,
    with_distributions,
    without_reference,
    worse_elements,
)
from audit.replay.sampled.blocks import read_together
from audit.replay.sampled.plan import Spooled, expectations
from audit.replay.spool import bytes_of, read_spool, write_spool
from audit.replay.standards import OpStandard, standard_of
from audit.replay.third_opinion import disagrees, seconded, third_way
from audit.replay.threads import set_threads_for
from audit.replay.ties import tie_of
from audit.replay.undetermined import undetermined
from audit.replay.winograd import winograd_of
from audit.schema import Case, Outcome, TensorSpec, Timing

#: Above this time for one fp64 run the second, perturbed one is left out.
PERTURB_LIMIT_S = 2.0
#: Likewise for operands of more bytes than this (an optimizer step over all weights of a large model).
PERTURB_LIMIT_BYTES = 1 << 29
_CPU = torch.device("cpu")


@dataclass
class Prepared:
    """What the reference side keeps of a case until the device's outputs arrive."""

    case: Case
    outcome: Outcome
    device_may_run: bool
    expected: dict[str, Expected] = field(default_factory=dict)
    mutated: list[int] = field(default_factory=list)
    index: dict[str, tuple[int, int]] = field(default_factory=dict)
    timing: Timing | None = None
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class CpuRun:
    """One run on the CPU: what it gave, on what it ran, how long the call took."""

    produced: list[Produced]
    bound: Bound
    seconds: float


class Reference:
    """Prepares cases and compares their outputs. ``folder`` receives the inputs; ``n_threads`` None: all cores."""

    def __init__(self, values: Path | None, folder: Path, seed: int, n_threads: int | None = None) -> None:
        self._stored = ValueFile(values)
        self._folder = folder
        self._seed = seed
        self._n_threads = n_threads or torch.get_num_threads()
        self._prepared: dict[str, Prepared] = {}

    def prepare(self, case: Case) -> dict[str, Any]:
        """Spools the inputs, runs the case, keeps what is expected; says whether the device may be touched."""
        prepared = self._prepare(case)
        if prepared.device_may_run:
            self._prepared[case.key] = prepared
        return {
            "outcome": encode(prepared.outcome),
            "device_may_run": prepared.device_may_run,
            "index": prepared.index,
            "mutated": prepared.mutated,
            "timing": None if prepared.timing is None else encode(prepared.timing),
            "notes": prepared.notes,
            "output_bytes": [_fact_bytes(e.fact) for e in prepared.expected.values()],
        }

    def _prepare(self, case: Case) -> Prepared:
        try:
            if message := refusal(case):
                return Prepared(case, Outcome("out_of_memory", message=message), device_may_run=False)
            contents = materialise(case, self._stored, self._seed)
            set_threads_for(_n_bytes(contents), self._n_threads)
        except InputError as error:
            message = f"the recorded inputs cannot be rebuilt: {error}"
            return Prepared(case, Outcome("not_run", error_type="InputError", message=message), device_may_run=False)
        prepared = Prepared(case, Outcome("ok"), device_may_run=True)
        if missing := missing_values(case, self._stored):
            prepared.notes.append(f"stored values of operands {missing} are not in the value file: synthesised instead")
        prepared.index = write_spool(self._folder / f"{case.key}.inputs", contents)
        standard = standard_of(case)
        if (sampled := self._sampled(case, prepared)) is not None:
            prepared.expected, prepared.mutated = sampled, written_operands(case)
            return prepared
        self._compute(prepared, contents, standard)
        return prepared

    def _compute(self, prepared: Prepared, contents: dict[str, torch.Tensor], standard: OpStandard) -> None:
        """Runs the case on the CPU, and says in ``prepared`` how that went and what is expected."""
        case = prepared.case
        run = self._run(case, lambda: cpu_op(case), contents)
        if note := note_of(case):
            prepared.notes.append(note)
        if isinstance(run, CpuRun):
            prepared.mutated = _mutated(case, run.bound, contents)
            prepared.timing = cpu_time(case, run.bound, run.seconds, prepared.mutated)
            self._expect(prepared, run, contents, standard)
            return
        prepared.outcome = run
        prepared.device_may_run = run.missing_kernel
        if run.missing_kernel:
            prepared.mutated = written_operands(case)
            self._expect_without_kernel(prepared, contents, standard)

    def _sampled(self, case: Case, prepared: Prepared) -> dict[str, Expected] | None:
        """What is expected of a case that is too large to be run whole; the inputs are read where they were spooled."""
        contents = read_spool(self._folder / f"{case.key}.inputs", prepared.index)
        spooled = Spooled(spooled_operands(case, contents), contents, self._measured, self._seed)
        expected = expectations(case, spooled)
        if expected is not None:
            prepared.notes.append("too large to be computed whole on the CPU: compared in parts, and not timed there")
        return expected

    def _measured(self, case: Case, contents: Mapping[str, torch.Tensor]) -> dict[str, Expected]:
        """What is expected of a small case that is a part of another."""
        part = Prepared(case, Outcome("ok"), device_may_run=True)
        self._compute(part, dict(contents), standard_of(case))
        return part.expected

    def _run(
        self,
        case: Case,
        op: Callable[[], Callable[..., Any]],
        contents: dict[str, torch.Tensor],
        operand: Callable[[int, TensorSpec], torch.Tensor] | None = None,
    ) -> CpuRun | Outcome:
        def run() -> CpuRun:
            function = op()
            bound = bind(case, operand or narrow_operands(case, contents), _CPU, self._seed)
            bound, _ = with_own_forward(case, bound, _operator)
            seed_generators(self._seed, _CPU)
            start = time.perf_counter()
            produced = in_phase(case.phase, case, lambda: call(case, function, bound))
            return CpuRun(produced, bound, time.perf_counter() - start)

        return attempt(run)

    # --- expectations ----------------------------------------------------------------------------------------------

    def _expect(self, prepared: Prepared, run: CpuRun, contents: dict[str, torch.Tensor], standard: OpStandard) -> None:
        case = prepared.case
        wide: dict[str, torch.Tensor] = {}
        moved: list[dict[str, torch.Tensor]] = []
        locality: Locality = "output"
        if standard.standard == "numeric":
            op = resolve(case.op)
            locality, formula = locality_of(case, op), formula_of(case)
            wide, seconds = self._wide(case, lambda: formula or op, contents, prepared.mutated, move=False)
            prepared.notes += [] if wide else ["no fp64 form of this op on the CPU: compared in its own dtype"]
            if not wide:
                moved = [self._moved_narrow(case, contents, prepared.mutated)]
            elif formula is not None:
                prepared.notes.append(
                    "reference by the documented formula, dequantised; noise from the CPU's own error"
                )
            elif seconds <= PERTURB_LIMIT_S and _n_bytes(contents) <= PERTURB_LIMIT_BYTES:
                apart = widen.movable(case) if locality == "element" else [None]
                moved = [self._wide(case, lambda: op, contents, prepared.mutated, True, name)[0] for name in apart]
                moved += [] if prepared.mutated else self._otherwise(case, contents)
            elif note_of(case):  # whose own error is that of one rounding
                moved = [self._moved_narrow(case, contents, prepared.mutated)]
            else:
                prepared.notes.append("noise from the CPU's own error alone: too large to run in fp64 twice")
        outputs = _by_name(case, run, prepared.mutated)
        wide, *moved = ({**found, **recomposed(case, found)} for found in (wide, *moved))
        for name, tensor in {**outputs, **recomposed(case, outputs)}.items():
            if standard.is_private(name):
                continue  # the device's own may have another shape, or none
            expected = expected_of(name, tensor, wide, moved, standard, locality)
            if name not in outputs:
                expected = with_terms_that_cancel(expected)
            tie = tie_of(case, name, run.bound) if expected.standard == "exact" else None
            free, why = undetermined(case, run.bound, tensor)
            if free is not None:
                expected = dataclasses.replace(expected, free=free.reshape(-1), why=why)
            known, once = standard.keeps_dtype(name), rounds_once(case) and tensor.dtype in LOW_PRECISION
            prepared.expected[name] = dataclasses.replace(expected, tie=tie, facts_known=known, rounded_once=once)

    def _expect_without_kernel(
        self, prepared: Prepared, contents: dict[str, torch.Tensor], standard: OpStandard
    ) -> None:
        """The reference where the CPU has no kernel: an equivalent in fp64, or the op itself if it has that kernel."""
        case = prepared.case
        if self._expect_by_formula(prepared, contents, standard):
            return
        equivalent = equivalent_of(case.op)
        op = (lambda: equivalent) if equivalent is not None else (lambda: resolve(case.op))
        wide, _ = self._wide(case, op, contents, prepared.mutated, move=False)
        if not wide:
            prepared.notes.append("no CPU kernel and no CPU equivalent: the numbers are not compared")
            return
        how = "its CPU equivalent" if equivalent is not None else "the same op"
        prepared.outcome = Outcome("ok", message=f"no CPU kernel for this dtype or op; compared with {how} in fp64")
        # However long it takes: there is no same-dtype run whose error could stand in for the noise.
        moved, _ = self._wide(case, op, contents, prepared.mutated, move=True)
        for name, tensor in wide.items():
            kind, why = standard.of_output(name)
            noise = change([moved], name, flat(tensor))
            values = None if kind == "metadata" else flat(tensor)
            prepared.expected[name] = Expected(name, fact_of(tensor), kind, why, None, values, noise, facts_known=False)

    def _expect_by_formula(self, prepared: Prepared, contents: dict[str, torch.Tensor], standard: OpStandard) -> bool:
        """The reference of a quantised op without a CPU kernel, whose noise is that of the formula in single precision;
        false where there is none."""
        case, mutated = prepared.case, prepared.mutated
        exact, single = formula_of(case), formula_of(case, torch.float32)
        if exact is None or single is None:
            return False
        wide, _ = self._wide(case, lambda: exact, contents, mutated, move=False)
        rough, _ = self._wide(case, lambda: single, contents, mutated, move=False)
        if not wide:
            return False
        prepared.outcome = Outcome("ok", message="no CPU kernel for this op; compared with its formula in fp64")
        for name, tensor in rough.items():
            same = tensor.to(result_dtype(case)) if tensor.dtype.is_floating_point else tensor
            expected = expected_of(name, same, wide, [], standard, "output")
            prepared.expected[name] = dataclasses.replace(expected, facts_known=False)
        return True

    def _wide(
        self,
        case: Case,
        op: Callable[[], Callable[..., Any]],
        contents: dict[str, torch.Tensor],
        mutated: list[int],
        move: bool,
        only: str | None = None,
    ) -> tuple[dict[str, torch.Tensor], float]:
        """fp64 outputs by name (none where that fails) and the seconds it took; ``only``: the storage to be moved."""
        wide_case = widen.widened(case)
        operand = widen.operands(case, contents, self._seed if move else None, only, rounds_once(case))
        run = self._run(wide_case, op, contents, operand)
        if not isinstance(run, CpuRun):
            return {}, 0.0
        return _by_name(case, run, mutated), run.seconds

    def _explained(
        self, prepared: Prepared, comparisons: list[Comparison], actual: Callable[[str], torch.Tensor]
    ) -> list[Comparison]:
        """With how far known mechanisms explain what is off; see ``audit.replay.explain``."""
        case = prepared.case
        contents = read_spool(self._folder / f"{case.key}.inputs", prepared.index)
        if _n_bytes(contents) > PERTURB_LIMIT_BYTES:
            return comparisons

        def run(operand: Callable[[int, TensorSpec], torch.Tensor]) -> dict[str, torch.Tensor]:
            ran = self._run(widen.widened(case), lambda: formula_of(case) or _operator(case.op), contents, operand)
            return _by_name(case, ran, prepared.mutated) if isinstance(ran, CpuRun) else {}

        def fresh() -> Callable[[int, TensorSpec], torch.Tensor]:
            return widen.operands(case, contents, None)

        return explained(case, comparisons, prepared.expected, actual, fresh, run)

    def _otherwise(self, case: Case, contents: dict[str, torch.Tensor]) -> list[dict[str, torch.Tensor]]:
        """What other ways of computing the same give in the case's own precision: as noisy as any device's may be.

        In float32 before the rounding to half precision, also where terms cancel that the CPU's own run happens to have
        exactly; by Winograd's algorithm where libraries have it.
        """
        single, winograd = single_operands(case, contents), winograd_of(case)
        runs = [] if single is None else [self._run(case, lambda: resolve(case.op), contents, single)]
        runs += [] if winograd is None else [self._run(case, lambda: winograd, contents)]
        return [_by_name(case, run, []) for run in runs if isinstance(run, CpuRun)]

    def _moved_narrow(
        self, case: Case, contents: dict[str, torch.Tensor], mutated: list[int]
    ) -> dict[str, torch.Tensor]:
        moved = widen.moved_contents(case, contents, self._seed)
        run = self._run(case, lambda: cpu_op(case), moved)
        return _by_name(case, run, mutated) if isinstance(run, CpuRun) else {}

    # --- comparison ------------------------------------------------------------------------------------------------

    def compare(
        self, key: str, outputs: dict[str, Any], path: Path, index: dict[str, tuple[int, int]], changed: bool = False
    ) -> list[Any]:
        """Comparisons (as JSON) of the outputs that the device left in the spool file ``path``.

        Those of a ``changed`` case are first rounded to the dtype of the case itself, and its reference is kept.
        """
        prepared = self._prepared[key] if changed else self._prepared.pop(key)
        set_threads_for(sum(length for _, length in index.values()), self._n_threads)
        outputs, spans = with_recomposed(prepared.case, outputs, read_spool(path, index))
        if not changed:
            stored = {name: elements_returned(outputs, spans, name) for name in outputs}
            read_together(prepared.expected, stored)
        unchanged = self._unchanged(prepared, [name for name in outputs if name not in prepared.expected])
        comparisons = [
            returned(expected, outputs.get(name), spans, changed)
            for name, expected in {**prepared.expected, **unchanged}.items()
        ]
        if not changed and any(disagrees(comparison) for comparison in comparisons):
            comparisons = self._seconded(prepared, comparisons, outputs, spans)
        known = {comparison.name for comparison in comparisons}
        comparisons += [
            without_reference(prepared.case, name, item) for name, item in outputs.items() if name not in known
        ]
        if standard_of(prepared.case).tested:
            values = {name: shaped(outputs, spans, name) for name in outputs}
            comparisons = with_distributions(prepared.case, self._operands(prepared), comparisons, values)
        expected = prepared.expected
        if not any(_is_cast(expected[name], item) for name, item in outputs.items() if name in expected):
            comparisons = self._explained(
                prepared, comparisons, lambda name: worse_elements(expected[name], outputs, spans, name)
            )
        return [encode(comparison) for comparison in comparisons]

    def _operands(self, prepared: Prepared) -> Bound:
        """The call bound to its operands as they were spooled."""
        contents = read_spool(self._folder / f"{prepared.case.key}.inputs", prepared.index)
        return bind(prepared.case, narrow_operands(prepared.case, contents), _CPU, self._seed)

    def _seconded(
        self,
        prepared: Prepared,
        comparisons: list[Comparison],
        outputs: dict[str, Any],
        spans: dict[str, torch.Tensor],
    ) -> list[Comparison]:
        """With a third way's word on the outputs that device and reference disagree about; where it costs little."""
        case = prepared.case
        contents = read_spool(self._folder / f"{case.key}.inputs", prepared.index)
        is_large = _n_bytes(contents) > PERTURB_LIMIT_BYTES or any(e.sampled for e in prepared.expected.values())
        if is_large or prepared.mutated or prepared.outcome.missing_kernel:
            return comparisons
        way, how = third_way(resolve(case.op))
        wide = any(disagrees(item) and item.standard == "numeric" for item in comparisons)
        if wide:
            third, _ = self._wide(case, lambda: way, contents, prepared.mutated, move=False)
        else:
            run = self._run(case, lambda: way, contents)
            third = _by_name(case, run, prepared.mutated) if isinstance(run, CpuRun) else {}
        third = {**third, **recomposed(case, third)}
        return [
            seconded(item, expected, worse_elements(expected, outputs, spans, item.name), third, how)
            if (expected := prepared.expected.get(item.name)) and disagrees(item) and item.name in spans
            else item
            for item in comparisons
        ]

    def _unchanged(self, prepared: Prepared, names: list[str]) -> dict[str, Expected]:
        """Expectations for operands that only the device has changed: they should be as they were."""
        case = prepared.case
        positions = {mutated_name(name): position for position, name in enumerate(operand_names(case))}
        wanted = [name for name in names if name in positions]
        if not wanted or prepared.outcome.missing_kernel:
            return {}
        bound = self._operands(prepared)
        inputs = {name: bound.operands[positions[name]].detach() for name in wanted}
        why = "the CPU leaves this argument as it was"
        return {name: Expected(name, fact_of(t), "exact", why, same=flat(t)) for name, t in inputs.items()}

    def forget(self, key: str) -> None:
        """Drops what is kept of a case whose outputs will not come."""
        self._prepared.pop(key, None)


def _operator(name: str) -> Callable[..., Any]:
    """The op on the CPU, by its equivalent where it has no kernel there."""
    return equivalent_of(name) or resolve(name)


def _mutated(case: Case, bound: Bound, contents: dict[str, torch.Tensor]) -> list[int]:
    """Positions of the operands that the run wrote: by schema, or because their bytes changed (running statistics)."""
    declared = set(written_operands(case))
    for storage in storages_of(case):
        if any(position in declared for position, _ in storage.members):
            continue
        position = storage.members[0][0]
        if not torch.equal(bytes_of(bound.operands[position]), contents[storage.name]):
            declared.update(position for position, _ in storage.members)
    return sorted(declared)


def _by_name(case: Case, run: CpuRun, mutated: list[int]) -> dict[str, torch.Tensor]:
    outputs = with_mutated(case, run.bound, run.produced, mutated)
    return {item.name: item.tensor for item in outputs if item.tensor is not None}


def _is_cast(expected: Expected, output: dict[str, Any]) -> bool:
    """Whether the output is of another dtype than the case gives: so were its operands, and no mechanism fits."""
    return torch_dtype(output["stored_dtype"]) != torch_dtype(expected.fact.dtype)


def _n_bytes(contents: dict[str, torch.Tensor]) -> int:
    return sum(content.numel() for content in contents.values())


def _fact_bytes(fact: TensorFact) -> int:
    n = 1
    for size in fact.sizes:
        n *= size
    return n * torch_dtype(fact.dtype).itemsize
