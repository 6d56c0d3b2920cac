"""Which parts of a call have nothing to do with each other: elements, rows of a norm or softmax, entries of lists."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass

import torch

from audit.replay.overload import base_of, named_arguments, resolve
from audit.schema import Arg, Case, TensorSpec

#: Ops over rows, each with the operands that have the rows; all other operands belong to every row.
_ROWS = {
    "_softmax": "self",
    "_log_softmax": "self",
    "softmax": "self",
    "log_softmax": "self",
    "_softmax_backward_data": "grad_output output",
    "_log_softmax_backward_data": "grad_output output",
    "native_layer_norm": "input",
    "layer_norm": "input",
    "native_layer_norm_backward": "grad_out input mean rstd",
    "_fused_rms_norm": "input",
    "rms_norm": "input",
    "_fused_rms_norm_backward": "grad_out input rstd",
    "sum": "self",
    "mean": "self",
    "logsumexp": "self",
    "linalg_vector_norm": "self",
    "var": "self",
    "std": "self",
    "cumsum": "self",
}
#: Of these, outputs without rows are sums over all blocks.
_WITH_SUMS = ("native_layer_norm_backward", "_fused_rms_norm_backward", "layer_norm", "rms_norm")
#: Ops over lists that look at a tensor as a whole.
_WHOLE_TENSORS = ("_foreach_norm", "_foreach_max", "_foreach_powsum")
_FUSED = ("_fused_adam", "_fused_adamw", "_fused_sgd", "_fused_adagrad")


@dataclass(frozen=True)
class Independent:
    """``dim`` is the one that rows are along in the widest operand, of ``rank`` dimensions and ``n`` rows; -1: none.

    ``names``: operands with rows by argument name, None: all that broadcast. ``lists``: arguments that are split by
    entry together.
    """

    dim: int
    rank: int
    n: int
    names: frozenset[str] | None
    lists: frozenset[str] = frozenset()

    def entries(self, case: Case) -> list[int] | None:
        """Bytes of each entry of the lists, over all of them; None without lists."""
        if not self.lists:
            return None
        given = [arg for name, arg in _named(case) if name in self.lists and isinstance(arg, tuple)]
        return [sum(_nbytes(arg[i]) for arg in given) for i in range(len(given[0]))]

    def nbytes(self, case: Case, entry: int) -> int:
        entries = self.entries(case)
        if entries is not None:
            return entries[entry]
        return sum(_nbytes(arg) for _, arg in _named(case))

    def n_rows(self, case: Case, entry: int) -> int:
        if not self.lists:
            return self.n
        sizes = self._largest(case, entry).sizes
        return sizes[0] if self.dim == 0 and sizes else 1

    def _largest(self, case: Case, entry: int) -> TensorSpec:
        found = (arg[entry] for name, arg in _named(case) if name in self.lists and isinstance(arg, tuple))
        return max((spec for spec in found if isinstance(spec, TensorSpec)), key=_nbytes)

    def part(self, case: Case, entries: tuple[int, int], rows: tuple[int, int] | None) -> Case:
        """The case for some entries of its lists, and some rows."""
        n = self.n_rows(case, entries[0])
        rank = len(self._largest(case, entries[0]).sizes) if self.lists else self.rank

        def cut(name: str, arg: Arg) -> Arg:
            if name in self.lists and isinstance(arg, tuple):
                return tuple(narrowed(name, item) for item in arg[slice(*entries)])
            return narrowed(name, arg)

        def narrowed(name: str, arg: Arg) -> Arg:
            if rows is None or not isinstance(arg, TensorSpec):
                return arg
            named = self.names is not None and not self.lists
            if named and self.names is not None and name not in self.names:
                return arg
            dim = self.dim if named else len(arg.sizes) - (rank - self.dim)
            return _narrowed(arg, dim, n, rows)

        parameters = _parameters(case)
        args = tuple(cut(parameters[i], arg) for i, arg in enumerate(case.args))
        kwargs = tuple((name, cut(name, arg)) for name, arg in case.kwargs)
        grads = case.grads
        if grads is not None and rows is not None:
            grads = tuple(None if g is None else _narrowed(g, self.dim, n, rows) for g in grads)
        key = f"{case.key}-{entries[0]}" + (f"-{rows[0]}" if rows else "")
        return dataclasses.replace(case, key=key, args=args, kwargs=kwargs, grads=grads, values={})


def _narrowed(spec: TensorSpec, dim: int, n: int, rows: tuple[int, int]) -> TensorSpec:
    if not 0 <= dim < len(spec.sizes) or spec.sizes[dim] != n:
        return spec
    sizes = (*spec.sizes[:dim], rows[1] - rows[0], *spec.sizes[dim + 1 :])
    return dataclasses.replace(spec, sizes=sizes, offset=spec.offset + rows[0] * spec.strides[dim])


def independent_parts(case: Case, out: tuple[int, ...]) -> Independent | None:
    """How the case comes apart, where its first output has sizes ``out``; None where it does not."""
    base = base_of(case.op)
    try:
        op = resolve(case.op)
    except AttributeError:
        return None
    if base.startswith("_foreach_") or base in _FUSED:
        return _lists(case, base, op)
    if base in _ROWS:
        return _rows(case, base)
    if torch.Tag.pointwise in op.tags and case.grads is None:
        dim = next((d for d, size in enumerate(out) if size > 1), None)
        return None if dim is None else Independent(dim, len(out), out[dim], None)
    return None


def _lists(case: Case, base: str, op: torch._ops.OpOverload) -> Independent | None:
    given = dict(_named(case))
    kinds = {a.name: str(a.type) for a in op._schema.arguments}
    lists = {n: a for n, a in given.items() if isinstance(a, tuple) and a and kinds.get(n, "").startswith("List")}
    lengths = {len(arg) for name, arg in lists.items() if any(isinstance(item, TensorSpec) for item in arg)}
    if len(lengths) != 1 or any(len(arg) not in lengths for arg in lists.values()):
        return None
    return Independent(-1 if base in _WHOLE_TENSORS else 0, 0, 0, None, frozenset(lists))


def _rows(case: Case, base: str) -> Independent | None:
    given, names = dict(_named(case)), _ROWS[base].split()
    first = given.get(names[0])
    if not isinstance(first, TensorSpec):
        return None
    rank = len(first.sizes)
    dim = next((d for d, size in enumerate(first.sizes) if size > 1), rank)
    if dim >= rank or dim in _bound_together(case, rank) or (case.grads is not None and base not in _WITH_SUMS):
        return None
    return Independent(dim, rank, first.sizes[dim], frozenset(names))


def _bound_together(case: Case, rank: int) -> set[int]:
    """Dimensions along which the op goes."""
    a = named_arguments(case.op, case.args, dict(case.kwargs))
    if isinstance(shape := a.get("normalized_shape"), (tuple, list)):
        return set(range(rank - len(shape), rank))
    dims = a.get("dim")
    if isinstance(dims, int):
        return {dims % rank}
    return {d % rank for d in dims} if dims else set(range(rank))


def has_sums(case: Case) -> bool:
    """Whether outputs without rows are sums over the blocks."""
    return base_of(case.op) in _WITH_SUMS


def _parameters(case: Case) -> list[str]:
    return [argument.name for argument in resolve(case.op)._schema.arguments]


def _named(case: Case) -> list[tuple[str, Arg]]:
    return [*zip(_parameters(case), case.args, strict=False), *case.kwargs]


def _nbytes(arg: Arg) -> int:
    if isinstance(arg, tuple):
        return sum(_nbytes(item) for item in arg)
    if not isinstance(arg, TensorSpec):
        return 0
    n = 1
    for size, stride in zip(arg.sizes, arg.strides, strict=True):
        n *= size if stride else 1
    digits = re.search(r"\d+", arg.dtype)
    return n * max(1, int(digits.group()) // 8 if digits else 1)
