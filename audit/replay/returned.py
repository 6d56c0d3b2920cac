"""The outputs that the device left in the spool, each set beside what is expected of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from audit.codec import decode
from audit.comparison import Comparison, TensorFact
from audit.places import Places
from audit.replay.compare import Expected, compare, worse
from audit.replay.distributions import distribution_of
from audit.replay.inputs import Bound, torch_dtype
from audit.replay.overload import named_arguments
from audit.replay.spool import second_run
from audit.replay.standards import standard_of
from audit.schema import Case


def elements_returned(outputs: dict[str, Any], spans: dict[str, torch.Tensor], name: str) -> torch.Tensor:
    """All elements of the output of the run that was compared, flat."""
    return spans[name].view(torch_dtype(outputs[name]["stored_dtype"]))


def shaped(outputs: dict[str, Any], spans: dict[str, torch.Tensor], name: str) -> torch.Tensor:
    """The output in its shape."""
    return elements_returned(outputs, spans, name).reshape(decode(TensorFact, outputs[name]["fact"]).sizes)


def worse_elements(
    expected: Expected, outputs: dict[str, Any], spans: dict[str, torch.Tensor], name: str
) -> torch.Tensor:
    """Those of the run that ``returned`` tells of: a device is not right because it once was."""
    first, fact = elements_returned(outputs, spans, name), decode(TensorFact, outputs[name]["fact"])
    if second_run(name) not in spans:
        return first
    second = spans[second_run(name)].view(first.dtype)
    results = [compare(expected, run, fact) for run in (first, second)]
    return first if worse(results) is results[0] else second


def returned(
    expected: Expected, output: dict[str, Any] | None, spans: dict[str, torch.Tensor], changed: bool
) -> Comparison:
    """The comparison of what the device wrote to the spool, ``spans``, as its message tells of it, ``output``.

    Of a ``changed`` case it is first rounded to the dtype that the case itself gives. Of two runs that differ the worse
    one is compared, and takes the place of the first in ``spans``.
    """
    if output is None:
        return compare(expected, None, None)
    fact = decode(TensorFact, output["fact"])
    stored = torch_dtype(output["stored_dtype"])
    names = [name for name in (expected.name, second_run(expected.name)) if name in spans]
    runs = [spans[name].view(stored) for name in names]
    wanted = torch_dtype(expected.fact.dtype)
    if changed and wanted.is_floating_point and stored.is_floating_point and stored != wanted:
        runs, fact = [run.to(wanted) for run in runs], dataclasses.replace(fact, dtype=expected.fact.dtype)
    if changed:
        expected = dataclasses.replace(expected, layout="")  # other operands, other strides
    results = [compare(expected, run, fact) for run in runs]
    worst = worse(results)
    spans[expected.name] = spans[names[results.index(worst)]]
    return _with_memory_facts(worst, output)


def without_reference(case: Case, name: str, output: dict[str, Any]) -> Comparison:
    """An output that the reference does not have: one of the device's own, or all where there is no reference."""
    fact = decode(TensorFact, output["fact"])
    kind, why = standard_of(case).of_output(name)
    result = Comparison(name, "metadata", None, fact, why=why if kind == "metadata" else "no reference for this output")
    return _with_memory_facts(result, output)


def with_distributions(
    case: Case, bound: Bound, comparisons: Sequence[Comparison], values: Mapping[str, torch.Tensor]
) -> list[Comparison]:
    """The comparisons of a random op, with what its numbers, ``values`` by output, look like."""
    arguments = {**named_arguments(case.op, bound.args, bound.kwargs), "gradient": next(iter(bound.grads), None)}
    return [
        dataclasses.replace(c, distribution=distribution_of(case.op, c.name, values, arguments))
        if c.name in values
        else c
        for c in comparisons
    ]


def _with_memory_facts(result: Comparison, output: dict[str, Any]) -> Comparison:
    return dataclasses.replace(
        result,
        n_unwritten=output["n_unwritten"],
        first_unwritten=tuple(output["first_unwritten"]),
        n_not_repeated=output["n_not_repeated"],
        unwritten=_places(output["unwritten"]),
        not_repeated=_places(output["not_repeated"]),
        n_runs=output["n_runs"],
        n_runs_differing=output["n_runs_differing"],
    )


def _places(found: Any) -> Places | None:
    return None if found is None else decode(Places, found)
