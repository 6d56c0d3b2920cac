"""The sample inputs that torch's own tests have for every op, as calls forward and backward."""

from __future__ import annotations

import importlib.util
import itertools
import sys
import types
import unittest
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

#: The dtypes of the published table, in the order in which they are recorded.
DTYPES = (
    "float32", "float16", "bfloat16", "complex64", "float64", "int64", "bool", "int32", "uint8", "complex128", "int8",
    "int16",
)  # fmt: skip

#: Samples of one op and dtype are chosen among at most so many: some ops list a thousand.
_N_LISTED = 400
#: Samples with more elements than this cost seconds and say what small ones say.
_N_ELEMENTS = 1 << 18


@dataclass(frozen=True)
class Sample:
    """One sample of an entry of OpInfo; ``run`` makes its calls. Raises what the op raises."""

    op: Any
    dtype: str
    given: Any

    def run(self) -> None:
        """The call, and the backward of all its differentiable outputs for gradients of ones and halves."""
        given = self.given
        out = given.output_process_fn_grad(self.op(given.input, *given.args, **given.kwargs))
        outs = [leaf for leaf in tree_leaves(out) if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
        if outs:
            torch.autograd.backward(outs, [_gradient(leaf) for leaf in outs])


def _gradient(out: torch.Tensor) -> torch.Tensor:
    """1, 1/2, 1, 1/2, ...: exact in every dtype, and not the same everywhere."""
    line = torch.ones(out.numel(), dtype=out.dtype)
    line[1::2] = 0.5
    return line.reshape(out.shape)


def entries(patterns: Sequence[str] = ("*",), shard: int = 0, n_shards: int = 1) -> list[Any]:
    """Those of OpInfo whose name fits one of the globs, every ``n_shards``-th of them."""
    _without_expecttest()
    from torch.testing._internal.common_methods_invocations import op_db

    found = [op for op in op_db if any(fnmatchcase(op.name, pattern) for pattern in patterns)]
    return found[shard::n_shards]


def _without_expecttest() -> None:
    """OpInfo's module wants this package, of which the samples use nothing, so that any torch can have them."""
    if "expecttest" not in sys.modules and importlib.util.find_spec("expecttest") is None:
        stand_in = types.ModuleType("expecttest")
        stand_in.TestCase = unittest.TestCase  # type: ignore[attr-defined]  # torch derives its test class from this
        sys.modules["expecttest"] = stand_in


def samples(ops: Sequence[Any], dtypes: Sequence[str], n_samples: int) -> Iterator[Sample]:
    """At most ``n_samples`` of each op and dtype, the first and others spread over the list; dtype after dtype."""
    for dtype in dtypes:
        for op in ops:
            yield from (Sample(op, dtype, given) for given in _chosen(op, getattr(torch, dtype), n_samples))


def _chosen(op: Any, dtype: torch.dtype, n_samples: int) -> list[Any]:
    if dtype not in op.dtypes:
        return []
    grad = op.supports_autograd and (dtype.is_floating_point or dtype.is_complex)
    torch.manual_seed(0)
    try:
        listed = list(itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=grad), _N_LISTED))
    except Exception:  # noqa: BLE001  # whatever a sample that only a GPU can make raises
        return []
    small = [given for given in listed if _n_elements(given) <= _N_ELEMENTS]
    step = max(1, len(small) / n_samples)
    return [small[int(place * step)] for place in range(min(n_samples, len(small)))]


def _n_elements(given: Any) -> int:
    leaves = tree_leaves((given.input, given.args, given.kwargs))
    return sum(leaf.numel() for leaf in leaves if isinstance(leaf, torch.Tensor))
