"""What is expected of a case that is run whole on the CPU: once as it is, and in fp64 with and without moved inputs."""

from __future__ import annotations

import dataclasses

import torch

from audit.device.guarded import address
from audit.replay import widen
from audit.replay.attention_rounding import attention_rounding
from audit.replay.compare import Expected, fact_of, flat
from audit.replay.cpu_runs import REPEAT_LIMIT_BYTES, Contents, CpuRun, CpuRuns, Outputs, n_bytes
from audit.replay.cpu_time import cpu_time
from audit.replay.dequantised import formula_of, result_dtype
from audit.replay.equivalents import equivalent_of
from audit.replay.expectation import change, expected_of
from audit.replay.factors import recomposed, with_terms_that_cancel
from audit.replay.inputs import Bound, storages_of
from audit.replay.layout import promised_layout, with_alias
from audit.replay.noise import LOW_PRECISION, Locality, locality_of, rounds_once, rounds_scalars
from audit.replay.on_cpu import cpu_op, note_of
from audit.replay.overload import resolve, written_operands
from audit.replay.prepared import Prepared
from audit.replay.rounding_kinds import rounding_of, spread_of
from audit.replay.sampled.plan import moves_of
from audit.replay.spool import bytes_of
from audit.replay.standards import OpStandard, standard_of
from audit.replay.ties import tie_of
from audit.replay.undetermined import undetermined
from audit.schema import Case, Outcome

#: Above this time for one fp64 run the second, perturbed one is left out. Of the CPU, since the clock of a machine with
#: other work would leave it out where an idle one does not; and more than what modules take that a first call imports.
PERTURB_LIMIT_CPU_S = 8.0


def expect_whole(prepared: Prepared, contents: Contents, runs: CpuRuns) -> None:
    """Runs the case on the CPU, and says in ``prepared`` how that went and what is expected."""
    case, standard = prepared.case, standard_of(prepared.case)
    run = runs.run(case, lambda: cpu_op(case), contents)
    if note := note_of(case):
        prepared.notes.append(note)
    if isinstance(run, CpuRun):
        prepared.mutated = _mutated(case, run.bound, contents)
        prepared.timing = cpu_time(case, run.bound, run.seconds, prepared.mutated)
        _expect(prepared, run, contents, standard, runs)
        return
    prepared.outcome = run
    prepared.device_may_run = run.missing_kernel
    if run.missing_kernel:
        prepared.mutated = written_operands(case)
        _expect_without_kernel(prepared, contents, standard, runs)


def _mutated(case: Case, bound: Bound, contents: Contents) -> list[int]:
    """Positions of the operands that the run wrote: by schema, or because their bytes changed (running statistics)."""
    declared = set(written_operands(case))
    for storage in storages_of(case):
        if any(position in declared for position, _ in storage.members):
            continue
        position = storage.members[0][0]
        if not torch.equal(bytes_of(bound.operands[position]), contents[storage.name]):
            declared.update(position for position, _ in storage.members)
    return sorted(declared)


# --- with a kernel on the CPU ------------------------------------------------------------------------------------


def _expect(prepared: Prepared, run: CpuRun, contents: Contents, standard: OpStandard, runs: CpuRuns) -> None:
    case = prepared.case
    own = {item.name for item in run.produced}
    wide: Outputs = {}
    moved: list[Outputs] = []
    locality: Locality = "output"
    if standard.standard == "numeric":
        locality = locality_of(case, resolve(case.op))
        wide, moved = _wide_and_moved(prepared, contents, locality, runs)
    outputs = run.by_name(case, prepared.mutated)
    wide, *moved = ({**found, **recomposed(case, found)} for found in (wide, *moved))
    inside = attention_rounding(case, run.bound) if wide else {}
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
        if expected.standard == "numeric" and expected.wide is not None:
            changed = [flat(run[name]) for run in moved if name in run and run[name].numel() == tensor.numel()]
            prepared.expected[name] = _with_rounding(
                prepared.expected[name], case, locality, tensor.dtype, changed, inside.get(name)
            )
        if name in own and name in outputs and known:
            prepared.expected[name] = _with_layout(prepared.expected[name], tensor, case, run.bound)


def _with_rounding(
    expected: Expected, case: Case, locality: Locality, dtype: torch.dtype, moved: list[torch.Tensor],
    inside: torch.Tensor | None,
) -> Expected:  # fmt: skip
    """``inside``: the deviation of what the op rounds on its way, where that is known."""
    kind = rounding_of(case, locality, rounds_once(case), dtype)
    if not kind or expected.wide is None:
        return expected
    spread = spread_of(kind, expected.wide, moved, dtype)
    spread = spread if inside is None else torch.hypot(spread, inside)
    return dataclasses.replace(expected, rounding=kind, spread=spread)


def _with_layout(expected: Expected, tensor: torch.Tensor, case: Case, bound: Bound) -> Expected:
    fact = with_alias(expected.fact, tensor, case, bound.operands, address)
    layout = promised_layout(case, resolve(case.op), bound.operands, tensor)
    return dataclasses.replace(expected, fact=fact, layout=layout)


def _wide_and_moved(
    prepared: Prepared, contents: Contents, locality: Locality, runs: CpuRuns
) -> tuple[Outputs, list[Outputs]]:
    """The outputs in fp64, none where there is no such form, and those of the runs that show the noise."""
    case, mutated = prepared.case, prepared.mutated
    op, formula = resolve(case.op), formula_of(case)
    wide, cpu_seconds = runs.wide(case, lambda: formula or op, contents, mutated, move=False)
    if not wide:
        prepared.notes.append("no fp64 form of this op on the CPU: compared in its own dtype")
        return {}, [runs.moved_narrow(case, contents, mutated)]
    if formula is not None:
        prepared.notes.append("reference by the documented formula, dequantised; noise from the CPU's own error")
        return wide, []
    if cpu_seconds <= PERTURB_LIMIT_CPU_S and n_bytes(contents) <= REPEAT_LIMIT_BYTES:
        apart = widen.movable(case) if locality == "element" else [None]
        moved = [runs.wide(case, lambda: op, contents, mutated, True, name)[0] for name in apart]
        moved = [further(case, wide, run) for run in moved]
        if locality == "jump":
            moved += runs.shifted(case, lambda: op, contents, mutated)
        if rounds_scalars(case):
            moved.append(runs.wide(widen.with_single_scalars(case), lambda: op, contents, mutated, move=False)[0])
        others = [] if mutated else runs.otherwise(case, contents)
        return wide, [*moved, *others, *runs.as_libraries(case, contents, mutated)]
    if others := runs.as_libraries(case, contents, mutated):
        return wide, others
    if note_of(case):  # whose own error is that of one rounding
        return wide, [runs.moved_narrow(case, contents, mutated)]
    prepared.notes.append("noise from the CPU's own error alone: too large to run in fp64 twice")
    return wide, []


def further(case: Case, wide: Outputs, moved: Outputs) -> Outputs:
    """What ``moved`` inputs give, with long sums as far from ``wide`` as a plain order of summation may carry them."""
    moves = moves_of(case) if moved else {}
    return {
        name: wide[name] + (tensor - wide[name]) * moves[name]
        if name in moves and name in wide and tensor.shape == wide[name].shape
        else tensor
        for name, tensor in moved.items()
    }


# --- without one -------------------------------------------------------------------------------------------------


def _expect_without_kernel(prepared: Prepared, contents: Contents, standard: OpStandard, runs: CpuRuns) -> None:
    """The reference where the CPU has no kernel: an equivalent in fp64, or the op itself if it has that kernel."""
    case = prepared.case
    if _expect_by_formula(prepared, contents, standard, runs):
        return
    equivalent = equivalent_of(case.op)
    op = (lambda: equivalent) if equivalent is not None else (lambda: resolve(case.op))
    wide, _ = runs.wide(case, op, contents, prepared.mutated, move=False)
    if not wide:
        prepared.notes.append("no CPU kernel and no CPU equivalent: the numbers are not compared")
        return
    how = "its CPU equivalent" if equivalent is not None else "the same op"
    prepared.outcome = Outcome("ok", message=f"no CPU kernel for this dtype or op; compared with {how} in fp64")
    # However long it takes: there is no same-dtype run whose error could stand in for the noise.
    moved, _ = runs.wide(case, op, contents, prepared.mutated, move=True)
    moved = further(case, wide, moved)
    others = runs.as_libraries(case, contents, prepared.mutated)
    for name, tensor in wide.items():
        kind, why = standard.of_output(name)
        noise = max(change([run], name, flat(tensor)) for run in (moved, *others))
        values = None if kind == "metadata" else flat(tensor)
        prepared.expected[name] = Expected(name, fact_of(tensor), kind, why, None, values, noise, facts_known=False)


def _expect_by_formula(prepared: Prepared, contents: Contents, standard: OpStandard, runs: CpuRuns) -> bool:
    """The reference of a quantised op without a CPU kernel, whose noise is that of the formula in single precision;
    false where there is none."""
    case, mutated = prepared.case, prepared.mutated
    exact, single = formula_of(case), formula_of(case, torch.float32)
    if exact is None or single is None:
        return False
    wide, _ = runs.wide(case, lambda: exact, contents, mutated, move=False)
    rough, _ = runs.wide(case, lambda: single, contents, mutated, move=False)
    if not wide:
        return False
    prepared.outcome = Outcome("ok", message="no CPU kernel for this op; compared with its formula in fp64")
    for name, tensor in rough.items():
        same = tensor.to(result_dtype(case)) if tensor.dtype.is_floating_point else tensor
        expected = expected_of(name, same, wide, [], standard, "output")
        prepared.expected[name] = dataclasses.replace(expected, facts_known=False)
    return True
