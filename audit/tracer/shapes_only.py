"""``--fake``: the program runs on tensors that have a shape and no memory, so that a 70B model is traced on a laptop.

Torch's own FakeTensorMode does it. What that cannot tell without values (``nonzero``, ``item``, an op without a shape
function) is run for real on tensors full of ones, where they are small, and named in the trace.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.optim import optimizer
from torch.utils import _foreach_utils
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_leaves, tree_map

from audit.tracer.virtual_gpu import here, real_devices

#: What the stand-in of one call may take: with it a trace stays far below the memory of a laptop.
STAND_IN_BYTES = 256 << 20
_DEVICE = torch.ops.prim.device.default


class ShapesOnly(FakeTensorMode):
    """A fake mode that answers what depends on values, and counts the ops that it did so for in ``answered``."""

    #: Higher-order ops come here too: torch looks their rules up by the exact class of a mode.
    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__(allow_non_fake_inputs=True)  # constants that a library made before the trace began
        self.answered: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if isinstance(func, torch._ops.HigherOrderOperator):
            with real_devices():
                return func.python_key_table[FakeTensorMode](self, *args, **(kwargs or {}))
        if func is _DEVICE:
            return torch.device("meta") if self.in_kernel_invocation else args[0].fake_device
        try:
            here.kernels += 1  # as real_devices() does, on the way of every op
            try:
                return super().__torch_dispatch__(func, types, args, kwargs)
            finally:
                here.kernels -= 1
        except RuntimeError:  # values are needed, there is no shape function, or it is stricter than the op
            tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
            if sum(tensor.numel() * tensor.dtype.itemsize for tensor in tensors) > STAND_IN_BYTES:
                raise
            try:
                answer = self._stand_in(func, args, kwargs or {})
            except Exception:  # noqa: BLE001 - no better on real tensors: the first error is the program's
                answer = None
            if answer is None:
                raise
            self.answered[str(func)] += 1
            return answer

    def _stand_in(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What ``func`` gives for ones: everything is selected, every length is 1; and no condition is met.

        The last, since programs ask more often whether something went wrong (NaN, overflow) than whether all is well.
        """
        with _disable_current_modes():
            if func is torch.ops.aten._local_scalar_dense.default:
                return _ones(args[0]).item() if args[0].dtype is not torch.bool else False
            if func is torch.ops.aten._ctc_loss.Tensor and args[1].dim() == 1:  # as many targets as lengths of 1
                args = (args[0], args[1].new_ones(args[3].numel()), *args[2:])
            result = func(*tree_map(_ones, args), **tree_map(_ones, kwargs))
        if func._schema.is_mutable:
            return args[0]
        return tree_map(lambda item: self.from_tensor(item) if isinstance(item, torch.Tensor) else item, result)

    @contextmanager
    def tracing(self) -> Iterator[ShapesOnly]:
        """The mode, and answers for the functions that read a tensor's memory without an op."""
        patched: list[tuple[Any, str, Any]] = [
            *((torch.Tensor, name, self._reading(name, getattr(torch.Tensor, name))) for name in ("numpy", "tolist")),
            (torch, "save", lambda *args, **kwargs: self._not_saved()),
            (torch.utils, "swap_tensors", _swap(torch.utils.swap_tensors)),
        ]
        originals = [(owner, name, getattr(owner, name)) for owner, name, _ in patched]
        for owner, name, function in patched:
            setattr(owner, name, function)
        # The type of a fake parameter is not that of a real one, by which torch chooses list ops.
        lists: tuple[list[Any], ...] = (optimizer._foreach_supported_types, _foreach_utils._foreach_supported_types)
        for types in lists:
            types.append(FakeTensor)
        try:
            with self:
                yield self
        finally:
            for types in lists:
                types.remove(FakeTensor)
            for owner, name, function in originals:
                setattr(owner, name, function)

    def _reading(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def read(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            if not isinstance(tensor, FakeTensor):
                return original(tensor, *args, **kwargs)
            self.answered[f"Tensor.{name}"] += 1
            with _disable_current_modes():
                return original(_ones(tensor), *args, **kwargs)

        return read

    def _not_saved(self) -> None:
        """A checkpoint of nothing must not replace a real one."""
        self.answered["torch.save (nothing was written)"] += 1

    def notes(self) -> Iterator[str]:
        """What the trace must say about itself."""
        yield "traced with --fake: shapes only, no values; the replay makes them up"
        for op, n_calls in sorted(self.answered.items()):
            yield (
                f"--fake: {op} depends on values or has no shape function; {n_calls} calls were answered as if every "
                "number were 1 and every condition false"
            )


def _swap(original: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
    """How ``Module.to`` converts a parameter: as with real tensors, by ``.data``.

    For fake ones torch swaps the objects, and refuses since its own fake mode holds weak references to them (2.13).
    """

    def swap(parameter: torch.Tensor, converted: torch.Tensor) -> None:
        if (
            isinstance(parameter, FakeTensor)
            and isinstance(converted, FakeTensor)
            and parameter.fake_device == converted.fake_device
        ):
            parameter.data = converted.detach()
        else:
            original(parameter, converted)

    return swap


def _ones(item: Any) -> Any:
    """A tensor full of ones with the shape and strides of a fake one; other arguments as they are."""
    if not isinstance(item, FakeTensor):
        return item
    return torch.empty_strided(item.size(), item.stride(), dtype=item.dtype).fill_(1)
