"""The reference side: builds a case's inputs, runs it on the CPU, and measures the device's outputs against that."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch

from audit.codec import encode
from audit.comparison import TensorFact
from audit.replay.compare import Expected, fact_of, flat
from audit.replay.cpu_runs import Contents, CpuRuns, n_bytes
from audit.replay.execute import mutated_name
from audit.replay.explain import with_explanations
from audit.replay.explain_parts import explained_in_parts
from audit.replay.factors import with_recomposed
from audit.replay.host_memory import refusal
from audit.replay.inputs import Bound, InputError, ValueFile, materialise, missing_values, torch_dtype
from audit.replay.operands import spooled_operands
from audit.replay.overload import operand_names
from audit.replay.prepared import Prepared
from audit.replay.returned import (
    elements_returned,
    returned,
    shaped,
    with_distributions,
    without_reference,
    worse_elements,
)
from audit.replay.sampled.blocks import read_together
from audit.replay.sampled.plan import Spooled, expectations, written
from audit.replay.spool import read_spool, write_spool
from audit.replay.standards import standard_of
from audit.replay.third_opinion import with_third_opinions
from audit.replay.threads import set_threads_for
from audit.replay.whole import expect_whole
from audit.schema import Case, Outcome


class Reference:
    """Prepares cases and compares their outputs. ``folder`` receives the inputs; ``n_threads`` None: all cores."""

    def __init__(self, values: Path | None, folder: Path, seed: int, n_threads: int | None = None) -> None:
        self._stored = ValueFile(values)
        self._folder = folder
        self._seed = seed
        self._runs = CpuRuns(seed)
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
            set_threads_for(n_bytes(contents), self._n_threads)
        except InputError as error:
            message = f"the recorded inputs cannot be rebuilt: {error}"
            return Prepared(case, Outcome("not_run", error_type="InputError", message=message), device_may_run=False)
        prepared = Prepared(case, Outcome("ok"), device_may_run=True)
        if missing := missing_values(case, self._stored):
            prepared.notes.append(f"stored values of operands {missing} are not in the value file: synthesised instead")
        prepared.index = write_spool(self._folder / f"{case.key}.inputs", contents)
        contents = self._contents(prepared)  # from here on they are the file's pages, which can be dropped
        if (sampled := self._sampled(case, prepared, contents)) is not None:
            prepared.expected, prepared.mutated = sampled, written(case)
            return prepared
        expect_whole(prepared, contents, self._runs)
        return prepared

    def _sampled(self, case: Case, prepared: Prepared, contents: Contents) -> dict[str, Expected] | None:
        """What is expected of a case that is too large to be run whole; the inputs are read where they were spooled."""
        expected = self._in_parts(case, contents)
        if expected is not None:
            prepared.notes.append("too large to be computed whole on the CPU: compared in parts, and not timed there")
        return expected

    def _in_parts(self, case: Case, contents: Contents) -> dict[str, Expected] | None:
        return expectations(case, Spooled(spooled_operands(case, contents), contents, self._measured, self._seed))

    def _measured(self, case: Case, contents: Mapping[str, torch.Tensor]) -> dict[str, Expected]:
        """What is expected of a small case that is a part of another."""
        part = Prepared(case, Outcome("ok"), device_may_run=True)
        expect_whole(part, dict(contents), self._runs)
        return part.expected

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

        def actual(name: str) -> torch.Tensor:
            return worse_elements(prepared.expected[name], outputs, spans, name)

        contents = self._contents(prepared)
        if not changed:
            comparisons = with_third_opinions(prepared, contents, comparisons, spans, actual, self._runs)
        known = {comparison.name for comparison in comparisons}
        comparisons += [
            without_reference(prepared.case, name, item) for name, item in outputs.items() if name not in known
        ]
        if standard_of(prepared.case).tested:
            values = {name: shaped(outputs, spans, name) for name in outputs}
            comparisons = with_distributions(prepared.case, self._operands(prepared), comparisons, values)
        expected = prepared.expected
        if not any(_is_cast(expected[name], item) for name, item in outputs.items() if name in expected):
            comparisons = with_explanations(prepared, contents, comparisons, actual, self._runs)
            again = partial(self._in_parts, prepared.case)
            comparisons = explained_in_parts(prepared.case, comparisons, contents, actual, again)
        return [encode(comparison) for comparison in comparisons]

    def _contents(self, prepared: Prepared) -> Contents:
        """The bytes of the case's storages as they were spooled."""
        return read_spool(self._folder / f"{prepared.case.key}.inputs", prepared.index)

    def _operands(self, prepared: Prepared) -> Bound:
        """The call bound to its operands as they were spooled, which are not to be written."""
        return self._runs.bound(prepared.case, spooled_operands(prepared.case, self._contents(prepared)))

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


def _is_cast(expected: Expected, output: dict[str, Any]) -> bool:
    """Whether the output is of another dtype than the case gives: so were its operands, and no mechanism fits."""
    return torch_dtype(output["stored_dtype"]) != torch_dtype(expected.fact.dtype)


def _fact_bytes(fact: TensorFact) -> int:
    n = 1
    for size in fact.sizes:
        n *= size
    return n * torch_dtype(fact.dtype).itemsize
