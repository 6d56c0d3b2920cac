"""Which parts of a call have nothing to do with each other: elements, rows of a norm or softmax, entries of lists."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch

from audit.replay.overload import arguments_of, base_of, named_arguments, resolve
from audit.schema import Arg, Case, TensorSpec

#: How what the blocks of an output without rows gave is put together: ``moments`` are the variance and mean of each,
#: ``weighted`` sums are divided by those of their weights.
Reduced = Literal["sum", "mean", "norm", "moments", "weighted"]

#: Ops over rows, each with the operands that have the rows; all other operands belong to every row. Rows are along the
#: first dimension that the op does not go along.
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
    "var_mean": "self",
    "std_mean": "self",
    "cumsum": "self",
    "cumprod": "self",
    "logcumsumexp": "self",
    "nll_loss_backward": "self target grad_output",
    "nll_loss2d_backward": "self target grad_output",
    "avg_pool2d": "self",
    "avg_pool3d": "self",
    "_adaptive_avg_pool2d": "self",
    "_adaptive_avg_pool3d": "self",
    "_adaptive_avg_pool2d_backward": "grad_output self",
    "_adaptive_avg_pool3d_backward": "grad_output self",
    "upsample_bilinear2d": "self",
    "upsample_bicubic2d": "self",
}
#: Of these, how many of the last dimensions the op goes along, where no argument of the call says it.
_LAST = {"nll_loss_backward": 1, "nll_loss2d_backward": 3, "avg_pool2d": 2, "avg_pool3d": 3,
         "_adaptive_avg_pool2d": 2, "_adaptive_avg_pool3d": 3, "_adaptive_avg_pool2d_backward": 2,
         "_adaptive_avg_pool3d_backward": 3, "upsample_bilinear2d": 2,
         "upsample_bicubic2d": 2}  # fmt: skip
_BATCH_NORM = "input:1 weight:0 bias:0 running_mean:0 running_var:0"
_BATCH_NORM_BACKWARD = "input:1 weight:0 running_mean:0 running_var:0 save_mean:0"
#: Ops over channels (of the gradient of an embedding: columns), each with the dimension of every operand that has them.
_CHANNELS = {
    **dict.fromkeys(("native_batch_norm", "_native_batch_norm_legit", "_batch_norm_with_update"), _BATCH_NORM),
    "batch_norm": _BATCH_NORM,
    **dict.fromkeys(("miopen_batch_norm", "cudnn_batch_norm"), _BATCH_NORM),
    "native_batch_norm_backward": f"{_BATCH_NORM_BACKWARD} grad_out:1 save_invstd:0",
    "batch_norm_backward": f"{_BATCH_NORM_BACKWARD} grad_out:1 save_var:0",
    "miopen_batch_norm_backward": f"{_BATCH_NORM_BACKWARD} grad_output:1 save_var:0",
    "cudnn_batch_norm_backward": f"{_BATCH_NORM_BACKWARD} grad_output:1 save_var:0",
    "embedding_dense_backward": "grad_output:-1",
}
#: Of these, calls that are traced with their gradients, which have the same channels.
_WITH_CHANNELS = ("batch_norm",)
#: Reductions over everything: how what the blocks give is put together.
_REDUCED: Mapping[str, Reduced] = {"sum": "sum", "mean": "mean", "linalg_vector_norm": "norm"}
#: Those of which a block gives its variance and mean, whatever the whole asks for.
_MOMENTS = frozenset({"var", "std", "var_mean", "std_mean"})
#: Losses with operands that have a row for each sample, by the number that asks for their mean or sum.
_LOSSES = frozenset({"nll_loss_forward", "nll_loss2d_forward"})
_SUM = 2
#: Ops that move or add along one dimension, by indices into it: all others are independent. Operands that have these
#: too, in the same place or, with ``-1``, at the end alone.
_INDEXED = {
    "scatter_add": "self index src", "scatter": "self index src", "scatter_reduce": "self index src",
    "index_add": "self source", "index_copy": "self source", "index_put": "self values",
    "_index_put_impl": "self values", "_unsafe_index_put": "self values",
}  # fmt: skip
#: So many rows can be cut into blocks of any size.
_MANY_ROWS = 256
#: Ops on each element that torch does not tag so.
_POINTWISE = frozenset({"_to_copy", "copy", "fill"})
#: Of these, outputs without rows are sums over all blocks.
_WITH_SUMS = ("native_layer_norm_backward", "_fused_rms_norm_backward", "layer_norm", "rms_norm")
#: Ops over lists that look at a tensor as a whole.
_WHOLE_TENSORS = ("_foreach_norm", "_foreach_max", "_foreach_powsum")
_FUSED = ("_fused_adam", "_fused_adamw", "_fused_sgd", "_fused_adagrad")


@dataclass(frozen=True)
class Independent:
    """``dim`` is the one that rows are along in the widest operand, of ``rank`` dimensions and ``n`` rows; -1: none.

    ``names``: the operands with rows, a multiple of ``n`` long, each by its name with its dimension; None: all that
    broadcast. ``lists``: arguments that are split by entry together. ``counts``: integers that say how many rows there
    are, or a multiple. ``reduced``: how an output without rows is made of those of the blocks. ``out_bytes``: of all
    outputs.
    """

    dim: int
    rank: int
    n: int
    names: Mapping[str, int] | None
    lists: frozenset[str] = frozenset()
    counts: frozenset[str] = frozenset()
    reduced: Reduced = "sum"
    out_bytes: int = 0

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
        return sum(_nbytes(arg) for _, arg in _named(case)) + self.out_bytes

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
            if rows is not None and name in self.counts and isinstance(arg, int):
                return arg * (rows[1] - rows[0]) // n
            if rows is None or not isinstance(arg, TensorSpec):
                return arg
            if self.names is None or self.lists:
                return _narrowed(arg, len(arg.sizes) - (rank - self.dim), n, rows)
            return _narrowed(arg, self.names[name], n, rows) if name in self.names else arg

        parameters = _parameters(case)
        args = tuple(cut(parameters[i], arg) for i, arg in enumerate(case.args))
        kwargs = tuple((name, cut(name, arg)) for name, arg in case.kwargs)
        grads = case.grads
        if grads is not None and rows is not None:
            grads = tuple(None if g is None else _narrowed(g, self.dim, n, rows) for g in grads)
        key = f"{case.key}-{entries[0]}" + (f"-{rows[0]}" if rows else "")
        part = dataclasses.replace(case, key=key, args=args, kwargs=kwargs, grads=grads, values={})
        return _with_parts_told(part, self.reduced)


def _with_parts_told(block: Case, reduced: Reduced) -> Case:
    """A block of a reduction over everything, by a call that tells all that the whole is made of."""
    if reduced == "moments":
        told = (("correction", 0), ("keepdim", False))
        return dataclasses.replace(block, op="aten::var_mean.correction", args=(block.args[0], None), kwargs=told)
    if reduced == "weighted":
        names = _parameters(block)
        args = tuple(_SUM if name == "reduction" else arg for name, arg in zip(names, block.args, strict=False))
        return dataclasses.replace(block, args=args)
    return block


def _narrowed(spec: TensorSpec, dim: int, n: int, rows: tuple[int, int]) -> TensorSpec:
    if not 0 <= dim < len(spec.sizes) or spec.sizes[dim] % n or not spec.sizes[dim]:
        return spec
    each = spec.sizes[dim] // n
    sizes = (*spec.sizes[:dim], (rows[1] - rows[0]) * each, *spec.sizes[dim + 1 :])
    return dataclasses.replace(spec, sizes=sizes, offset=spec.offset + rows[0] * each * spec.strides[dim])


def independent_parts(case: Case, out: tuple[int, ...], out_bytes: int) -> Independent | None:
    """How the case comes apart; None where it does not. Its first output has sizes ``out``, all have ``out_bytes``."""
    found = _independent_parts(case, out)
    return None if found is None else dataclasses.replace(found, out_bytes=out_bytes)


def _independent_parts(case: Case, out: tuple[int, ...]) -> Independent | None:
    base = base_of(case.op)
    try:
        op = resolve(case.op)
    except AttributeError:
        return None
    if base.startswith("_foreach_") or base in _FUSED:
        return _lists(case, base, op)
    if base in _ROWS:
        return _rows(case, base)
    if case.grads is None and base in _LOSSES:
        return _loss(case)
    if case.grads is None and base in _INDEXED:
        return _beside_indices(case, base)
    if base in _CHANNELS and (case.grads is None or base in _WITH_CHANNELS):
        return _channels(case, base)
    if base == "group_norm" or (case.grads is None and base.startswith("native_group_norm")):
        return _groups(case)
    if (torch.Tag.pointwise in op.tags or base in _POINTWISE) and case.grads is None:
        free = [d for d, size in enumerate(out) if size > 1]
        dim = _finest(out, free) if free else 0
        return Independent(dim, len(out), out[dim], None) if free else None
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
    bound = _bound_together(case, base, rank)
    long = [dim for dim, size in enumerate(first.sizes) if size > 1]
    free = [dim for dim in long if dim not in bound]
    if not long or (case.grads is not None and (base not in _WITH_SUMS or free[:1] != long[:1])):
        return None
    if free:
        dim = free[0] if case.grads is not None else _finest(first.sizes, free)
        return Independent(dim, rank, first.sizes[dim], dict.fromkeys(names, dim))
    if base in _MOMENTS:
        return _over_everything(first, names[0], long, "moments")
    if base not in _REDUCED or arguments_of(case).get("ord", 2) != 2:
        return None
    return _over_everything(first, names[0], long, _REDUCED[base])


def _over_everything(spec: TensorSpec, name: str, long: list[int], reduced: Reduced) -> Independent:
    dim = _finest(spec.sizes, long)
    return Independent(dim, len(spec.sizes), spec.sizes[dim], {name: dim}, reduced=reduced)


def _loss(case: Case) -> Independent | None:
    """Of samples: [samples, classes, ...] and [samples, ...]."""
    given = arguments_of(case)
    first, target, reduction = (given.get(name) for name in ("self", "target", "reduction"))
    if not isinstance(first, TensorSpec) or not isinstance(target, TensorSpec) or len(first.sizes) < 2:
        return None
    reduced: Reduced = "weighted" if reduction == 1 else "sum"
    return Independent(0, len(first.sizes), first.sizes[0], {"self": 0, "target": 0}, reduced=reduced)


def _beside_indices(case: Case, base: str) -> Independent | None:
    """Along the longest dimension that no index goes along, and that all other operands have."""
    given = arguments_of(case)
    specs = {n: spec for n in _INDEXED[base].split() if isinstance(spec := given.get(n), TensorSpec)}
    first = given.get("self")
    if not isinstance(first, TensorSpec):
        return None
    rank, indices = len(first.sizes), given.get("indices", ())
    if not isinstance(indices, tuple) or not all(_is_one_dimension(item) for item in indices):
        return None
    free = [d for d in range(len(indices), rank) if d != _dim_of(given, rank)]
    behind = {d: rank - d for d in free}
    free = [
        d
        for d in free
        if all(len(s.sizes) >= behind[d] and s.sizes[-behind[d]] == first.sizes[d] for s in specs.values())
    ]
    dim = max(free, key=lambda d: first.sizes[d], default=None)
    if dim is None or first.sizes[dim] < 2:
        return None
    return Independent(dim, rank, first.sizes[dim], {n: len(s.sizes) - behind[dim] for n, s in specs.items()})


def _channels(case: Case, base: str) -> Independent | None:
    given, dims = dict(_named(case)), {n: int(d) for n, d in (pair.split(":") for pair in _CHANNELS[base].split())}
    first = next((given.get(name) for name, dim in dims.items() if dim), None)
    if not isinstance(first, TensorSpec) or len(first.sizes) < 2:
        return None
    rank = len(first.sizes)
    dim = max(dims.values()) % rank
    if first.sizes[dim] < 2:
        return None
    return Independent(dim, rank, first.sizes[dim], {name: at % rank for name, at in dims.items()})


def _groups(case: Case) -> Independent | None:
    """Of a group norm: its images, or of a single one its groups."""
    given = dict(_named(case))
    first, n_groups = given.get("input"), given.get("group", given.get("num_groups"))
    n_images = given.get("N", first.sizes[0] if isinstance(first, TensorSpec) and first.sizes else 0)
    if not isinstance(first, TensorSpec) or not isinstance(n_images, int) or not isinstance(n_groups, int):
        return None
    rank, placed = len(first.sizes), ("input", "grad_out", "mean", "rstd")
    if rank < 2 or first.sizes[0] != n_images or max(n_images, n_groups) < 2:
        return None
    if n_images > 1:
        return Independent(0, rank, n_images, dict.fromkeys(placed, 0), counts=frozenset(("N",)))
    names = {**dict.fromkeys(placed, 1), "weight": 0, "bias": 0}
    return Independent(1, rank, n_groups, names, counts=frozenset(("C", "group", "num_groups")))


def _finest(sizes: tuple[int, ...], free: list[int]) -> int:
    """The first dimension of ``free``, whose rows lie side by side; of few rows, which are long, the longest one."""
    return next((dim for dim in free if sizes[dim] >= _MANY_ROWS), max(free, key=lambda dim: sizes[dim]))


def _is_one_dimension(index: Arg) -> bool:
    """Whether an index stands for one dimension of its operand: numbers, not a mask."""
    return isinstance(index, TensorSpec) and index.dtype not in ("bool", "uint8")


def _dim_of(given: Mapping[str, Arg], rank: int) -> int:
    dim = given.get("dim")
    return dim % rank if isinstance(dim, int) and rank else -1


def _bound_together(case: Case, base: str, rank: int) -> set[int]:
    """Dimensions along which the op goes."""
    if base in _LAST:
        return set(range(max(0, rank - _LAST[base]), rank))
    a = named_arguments(case.op, case.args, dict(case.kwargs))
    if isinstance(shape := a.get("normalized_shape"), (tuple, list)):
        return set(range(rank - len(shape), rank))
    dims = a.get("dim")
    if isinstance(dims, int):
        return {dims % rank}
    return {d % rank for d in dims} if isinstance(dims, tuple) and dims else set(range(rank))


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
