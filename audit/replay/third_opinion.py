"""A third way of computing what the device and the CPU disagree about: two cannot tell which of them is wrong.

torch's own decomposition into simpler ops where it has one in Python, else the same op on contiguous operands and
without oneDNN; in double precision, or in the case's own dtype where bits count.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Container, Iterable, Mapping
from typing import Any

import torch
from torch._decomp import decomposition_table
from torch.utils._pytree import tree_map_only

from audit.comparison import Comparison
from audit.replay.compare import Expected, compare, flat
from audit.replay.cpu_runs import REPEAT_LIMIT_BYTES, Contents, CpuRuns, n_bytes
from audit.replay.factors import recomposed
from audit.replay.overload import resolve
from audit.replay.prepared import Prepared

#: From this error ratio on, which is the allowance of a default judgement, a third way is tried.
SUSPICIOUS_RATIO = 8.0


def disagrees(comparison: Comparison) -> bool:
    """Whether device and reference are too far apart to let it stand between the two of them."""
    if comparison.standard == "exact":
        return comparison.n_different > 0
    mismatches = comparison.n_nan_mismatch + comparison.n_inf_mismatch
    return comparison.standard == "numeric" and (comparison.worst_ratio > SUSPICIOUS_RATIO or mismatches > 0)


def with_third_opinions(
    prepared: Prepared,
    contents: Contents,
    comparisons: Iterable[Comparison],
    returned: Container[str],
    actual: Callable[[str], torch.Tensor],
    runs: CpuRuns,
) -> list[Comparison]:
    """With a third way's word on the outputs that device and reference disagree about; where it costs little.

    ``returned``: the names of what the device gave; ``actual``: its elements of one of them, flat.
    """
    found = list(comparisons)
    doubted = [item for item in found if disagrees(item)]
    case = prepared.case
    is_large = n_bytes(contents) > REPEAT_LIMIT_BYTES or any(e.sampled for e in prepared.expected.values())
    if not doubted or is_large or prepared.mutated or prepared.outcome.missing_kernel:
        return found
    way, how = third_way(resolve(case.op))
    if any(item.standard == "numeric" for item in doubted):
        third, _ = runs.wide(case, lambda: way, contents, prepared.mutated, move=False)
    else:
        third = runs.outputs(case, lambda: way, contents, prepared.mutated)
    third = {**third, **recomposed(case, third)}
    return [
        seconded(item, expected, actual(item.name), third, how)
        if (expected := prepared.expected.get(item.name)) and disagrees(item) and item.name in returned
        else item
        for item in found
    ]


def third_way(op: torch._ops.OpOverload) -> tuple[Callable[..., Any], str]:
    """What to run the call by, and that in words. Neither writes to an operand."""
    if op in decomposition_table:
        return decomposition_table[op], "torch's decomposition"
    return _plainly(op), "the same op on contiguous operands, without oneDNN"


def _plainly(op: torch._ops.OpOverload) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        plain_args, plain_kwargs = tree_map_only(torch.Tensor, lambda tensor: tensor.contiguous(), (args, kwargs))
        with torch.backends.mkldnn.flags(enabled=False):
            return op(*plain_args, **plain_kwargs)

    return run


def seconded(
    comparison: Comparison, expected: Expected, actual: torch.Tensor, third: Mapping[str, torch.Tensor], how: str
) -> Comparison:
    """The comparison with what the third way says of the device's output; as it was where it does not tell."""
    answer = third.get(comparison.name)
    if answer is None or answer.numel() != actual.numel():
        return comparison
    in_bits = comparison.standard == "exact"
    said = (
        dataclasses.replace(expected, same=flat(answer))
        if in_bits
        else dataclasses.replace(expected, wide=flat(answer))
    )
    again = compare(said, actual, comparison.actual)
    off = again.n_different if in_bits else again.n_nan_mismatch + again.n_inf_mismatch
    return dataclasses.replace(comparison, third=how, third_ratio=again.worst_ratio, third_n_different=off)
