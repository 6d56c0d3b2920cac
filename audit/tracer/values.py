"""What values an op's arguments held: exact copies within a budget, else their distribution.

The first calls of a signature are looked at, then calls 64, 128, 256, ..., before the op runs (``is_looked_at``).
Integers and booleans are kept exactly; the copies come from the looked-at call with the largest finite magnitude, among
those of like magnitude from the one with the most rarities (``audit.tracer.rarities``). On a GPU the work is queued
behind the program's own kernels and read when it is done, so that the program is never made to wait.
"""

from __future__ import annotations

import dataclasses
import math
import tempfile
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import torch

from audit.errors import UnfinishedError
from audit.opset.tensors import write_tensors
from audit.schema import Values
from audit.tracer.rarities import Worth, rarities_of
from audit.tracer.structure import structure_of, with_structure

#: Float tensors above this are described, not kept: a weight's distribution replays as well as its values, and the
#: copies of a 7B model's weights would fill the disk.
DEFAULT_TENSOR_BYTES = 32 << 20
DEFAULT_TOTAL_BYTES = 1 << 30
#: Kept copies beyond this move from memory to disk.
DEFAULT_MEMORY_BYTES = 256 << 20
#: Mean, deviation, zeros and subnormals come from at most this many evenly spaced elements: one pass over the whole
#: tensor (for its extremes) costs about a copy, and five would not be bookkeeping any more.
SAMPLED_ELEMENTS = 1 << 16

#: The calls of a signature that are all looked at, and the elements after which only calls 1, 2, 4, 8, ... are.
FIRST_CALLS = 32
FIRST_ELEMENTS = 1 << 22

#: A float tensor that reaches below this and not above 0 is taken for an additive mask.
_MASK_LIMIT = -1e4

_SAFETENSORS_DTYPES = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16",
    torch.int64: "I64", torch.int32: "I32", torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8",
    torch.bool: "BOOL", torch.uint16: "U16", torch.uint32: "U32", torch.uint64: "U64",
    torch.float8_e4m3fn: "F8_E4M3", torch.float8_e5m2: "F8_E5M2", torch.complex64: "C64",
}  # fmt: skip


@dataclass
class Span:
    """One tensor's kept storage, in memory or in a spilled file."""

    dtype: torch.dtype
    n_bytes: int
    memory: torch.Tensor | None
    spilled: Path | None = None


@dataclass
class KeptCall:
    """What is known of one signature's values: statistics of every sampled call, the copies of one of them.

    All copies come from the same call, since operands belong together (indices and offsets, a gradient and its output).
    """

    values: dict[int, Values] = field(default_factory=dict)
    spans: dict[int, Span] = field(default_factory=dict)
    worth: Worth = field(default_factory=Worth)
    n_elements: int = 0

    def is_looked_at(self, n_calls: int) -> bool:
        """Whether call number ``n_calls`` is: a rare one may be any, and looks at large tensors take time."""
        early = n_calls <= FIRST_CALLS and self.n_elements < FIRST_ELEMENTS
        return early or n_calls & (n_calls - 1) == 0


@dataclass
class _Look:
    """One tensor of a sample. On a GPU the tensors here are pinned host memory that is still being filled."""

    raw: torch.Tensor | None
    dtype: torch.dtype
    n_elements: int
    extremes: torch.Tensor
    n_rarities: torch.Tensor
    moments: torch.Tensor | None = None
    structure: torch.Tensor | None = None
    span: torch.Tensor | None = None


@dataclass
class _Pending:
    """A sample whose numbers the GPU still owes."""

    kept: KeptCall
    looks: dict[int, _Look]
    event: torch.cuda.Event


class ValueRecorder:
    """Samples the tensors of calls into ``KeptCall`` records and writes the copies to a safetensors file.

    ``tensor_bytes`` is the largest float tensor that is copied, ``total_bytes`` the budget of all copies,
    ``memory_bytes`` how much of them stays in memory.
    """

    def __init__(
        self,
        tensor_bytes: int = DEFAULT_TENSOR_BYTES,
        total_bytes: int = DEFAULT_TOTAL_BYTES,
        memory_bytes: int = DEFAULT_MEMORY_BYTES,
    ) -> None:
        self._tensor_bytes = tensor_bytes
        self._bytes_left = total_bytes
        self._memory_left = memory_bytes
        self._pending: list[_Pending] = []
        self._in_memory: list[Span] = []
        self._n_spilled = 0
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def sample(
        self,
        tensors: Mapping[int, torch.Tensor],
        kept: KeptCall,
        exact: Container[int] = (),
        elementwise: bool = False,
    ) -> None:
        """Looks at the tensors of one call, by position. ``exact`` positions are copied even as large floats.

        ``elementwise``: each result of the op comes from one place of its operands.
        """
        kept.n_elements += sum(tensor.numel() for tensor in tensors.values())
        self._settle(wait=False)
        # Neither the program's tensor subclasses nor its function modes (a default device) have a part in these looks.
        with torch.no_grad(), torch._C.DisableTorchFunction():
            raws = {position: _raw(tensor) for position, tensor in tensors.items() if tensor.numel()}
            wanted = {position for position, raw in raws.items() if self._affordable(raw, position in exact)}
            looks = {
                position: _look_at(raw, position in wanted, position in exact, elementwise)
                for position, raw in raws.items()
            }
            if any(raw.is_cuda for raw in raws.values()):
                self._queue(raws, looks, kept, wanted)
            else:
                self._take(raws, looks, kept, wanted)

    def _affordable(self, raw: torch.Tensor, exact: bool) -> bool:
        n_bytes = span_elements(raw) * raw.element_size()
        keep_whole = exact or not (raw.is_floating_point() or raw.is_complex())
        limit = self._bytes_left if keep_whole else min(self._bytes_left, self._tensor_bytes)
        return raw.dtype in _SAFETENSORS_DTYPES and n_bytes <= limit

    def _take(
        self, raws: Mapping[int, torch.Tensor], looks: Mapping[int, _Look], kept: KeptCall, wanted: Container[int]
    ) -> None:
        if _worth_of(looks).surpasses(kept.worth):
            for position, look in looks.items():
                if position in wanted:
                    look.span = span_of(raws[position]).clone()
        self._accept(kept, looks)

    def _queue(
        self, raws: Mapping[int, torch.Tensor], looks: Mapping[int, _Look], kept: KeptCall, wanted: Container[int]
    ) -> None:
        """Starts the copies of the looks' numbers, and of the tensors, to pinned memory, behind an event."""
        copied: dict[int, _Look] = {}
        for position, look in looks.items():
            moments, structure = (None if t is None else _to_pinned(t) for t in (look.moments, look.structure))
            span = _to_pinned(span_of(raws[position])) if position in wanted else None
            extremes, n_rarities = _to_pinned(look.extremes), _to_pinned(look.n_rarities)
            copied[position] = _Look(None, look.dtype, look.n_elements, extremes, n_rarities, moments, structure, span)
        event = torch.cuda.Event()
        event.record()
        self._pending.append(_Pending(kept, copied, event))

    def _settle(self, wait: bool) -> None:
        """Takes in the GPU samples that are done, in order; with ``wait``, all of them."""
        while self._pending and (wait or self._pending[0].event.query()):
            first = self._pending.pop(0)
            first.event.synchronize()
            self._accept(first.kept, first.looks)

    def _accept(self, kept: KeptCall, looks: Mapping[int, _Look]) -> None:
        worth = _worth_of(looks)
        for position, look in looks.items():
            kept.values[position] = _merge(kept.values.get(position, Values()), look)
        if worth.surpasses(kept.worth):
            kept.worth = worth
            self._replace(kept, {position: look.span for position, look in looks.items() if look.span is not None})

    def _replace(self, kept: KeptCall, spans: Mapping[int, torch.Tensor]) -> None:
        for old in kept.spans.values():
            self._bytes_left += old.n_bytes
            if old.memory is not None:
                self._memory_left += old.n_bytes
                old.memory = None
        kept.spans = {}
        for position, memory in spans.items():
            span = Span(memory.dtype, memory.numel() * memory.element_size(), memory)
            if span.n_bytes > self._bytes_left:
                continue
            kept.spans[position] = span
            self._in_memory.append(span)
            self._bytes_left -= span.n_bytes
            self._memory_left -= span.n_bytes
        if self._memory_left < 0:
            self._spill()

    def _spill(self) -> None:
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="rocm-audit-values-")
        self._in_memory = sorted(
            (span for span in self._in_memory if span.memory is not None), key=lambda span: -span.n_bytes
        )
        while self._memory_left < 0 and self._in_memory:
            span = self._in_memory.pop(0)
            assert span.memory is not None
            span.spilled = Path(self._folder.name, str(self._n_spilled))
            self._n_spilled += 1
            with _disk_errors("the recorded values"):
                span.spilled.write_bytes(_bytes_of(span.memory))
            self._memory_left += span.n_bytes
            span.memory = None

    def finish(self) -> None:
        """Waits for what the GPU still owes."""
        self._settle(wait=True)

    def write(self, path: Path, named: Mapping[str, Span]) -> bool:
        """Writes the kept spans to ``path`` as safetensors; False, and no file, when there are none."""
        if not named:
            return False
        with _disk_errors(str(path)), path.open("wb") as file:
            self.write_to(file, named)
        return True

    def write_to(self, file: IO[bytes], named: Mapping[str, Span]) -> None:
        """Streams the kept spans, in order of their names, to ``file`` as safetensors.

        Written here and not by ``safetensors.torch.save_file``, which holds every tensor in memory at once.
        """
        chosen = dict(sorted(named.items()))
        tensors = {
            name: (_SAFETENSORS_DTYPES[span.dtype], span.n_bytes // span.dtype.itemsize)
            for name, span in chosen.items()
        }
        write_tensors(file, tensors, (block for span in chosen.values() for block in _blocks(span)))

    def close(self) -> None:
        self._pending.clear()
        if self._folder is not None:
            self._folder.cleanup()


class _disk_errors:
    """Turns an OSError into the sentence that the user needs."""

    def __init__(self, what: str) -> None:
        self._what = what

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError):
            raise UnfinishedError(
                f"cannot write {self._what}: {error.strerror}; free space, or keep fewer values with --values 0",
                "disk-full",
            ) from error


def _bytes_of(span: torch.Tensor) -> memoryview:
    return memoryview(span.contiguous().view(torch.uint8).numpy().data).cast("B")


def _blocks(span: Span) -> Iterator[bytes | memoryview]:
    if span.memory is not None:
        yield _bytes_of(span.memory)
    elif span.spilled is not None:
        with span.spilled.open("rb") as file:
            while block := file.read(1 << 24):
                yield block


# --- one tensor -------------------------------------------------------------------------------------------------


def _raw(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor without lazy conjugate and negative bits: what its memory holds."""
    tensor = tensor.detach().as_subclass(torch.Tensor)
    if tensor.is_complex() and tensor.is_conj():
        tensor = tensor.conj()
    return tensor._neg_view() if tensor.is_neg() else tensor


def span_elements(tensor: torch.Tensor) -> int:
    """Elements of storage from the tensor's first to its last reachable element."""
    return 1 + sum((size - 1) * stride for size, stride in zip(tensor.size(), tensor.stride(), strict=True))


def span_of(tensor: torch.Tensor) -> torch.Tensor:
    """The storage between the tensor's first and last element, as a 1-D view."""
    return tensor.as_strided((span_elements(tensor),), (1,), tensor.storage_offset())


def _extremes(raw: torch.Tensor) -> torch.Tensor:
    """Smallest and largest value, [2]; NaN where there is one."""
    if raw.is_complex():
        raw = torch.view_as_real(raw)
    if raw.dtype is torch.bool:
        raw = raw.view(torch.uint8)
    elif (raw.dtype.itemsize == 1 and raw.is_floating_point()) or raw.dtype in (
        torch.uint16,
        torch.uint32,
        torch.uint64,
    ):
        raw = raw.to(torch.float32)  # no aminmax kernels for fp8 and the unsigned ints
    low, high = torch.aminmax(raw)
    return torch.stack((low, high))


def _moments(raw: torch.Tensor) -> torch.Tensor:
    """Mean, std and the shares of zeros, subnormals, NaN, +Inf, -Inf of evenly spaced elements: [7], float64."""
    if raw.is_complex():
        raw = torch.view_as_real(raw)
    flat = span_of(raw)
    step = max(1, flat.numel() // SAMPLED_ELEMENTS)
    picked = flat[::step].to(torch.float64)
    finite = picked.isfinite()
    n_finite = finite.sum().clamp(min=1)
    clean = picked.masked_fill(~finite, 0.0)  # not where(): its number would be copied to the GPU, which waits
    mean = clean.sum() / n_finite
    std = (((clean - mean) ** 2).masked_fill(~finite, 0.0).sum() / n_finite).sqrt()
    smallest = torch.finfo(raw.dtype).smallest_normal if raw.is_floating_point() else 0.0
    shares = [
        picked == 0,
        (picked != 0) & (picked.abs() < smallest),
        picked.isnan(),
        picked == math.inf,
        picked == -math.inf,
    ]
    return torch.stack((mean, std, *(share.double().mean() for share in shares)))


def _to_pinned(tensor: torch.Tensor) -> torch.Tensor:
    host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
    return host.copy_(tensor, non_blocking=True)


def _worth_of(looks: Mapping[int, _Look]) -> Worth:
    """Magnitudes are finite ones. Indices do not outweigh numbers."""
    numbers = [look for look in looks.values() if look.dtype.is_floating_point or look.dtype.is_complex]
    return Worth(
        magnitude=max(map(_magnitude, numbers or looks.values()), default=0.0),
        n_rarities=sum(int(look.n_rarities) for look in looks.values()),
        largest=max(map(_magnitude, looks.values()), default=0.0),
    )


def _magnitude(look: _Look) -> float:
    return max((abs(bound) for bound in _finite_bounds(look) if bound is not None), default=0.0)


def _finite_bounds(look: _Look) -> tuple[float | int | None, float | int | None]:
    """Smallest and largest finite value. Behind a NaN or Inf only a CPU tensor is searched again: a GPU would stall."""
    low, high = look.extremes.tolist()
    if math.isfinite(low) and math.isfinite(high):
        return low, high
    if look.raw is not None and look.raw.is_floating_point():
        finite = look.raw[look.raw.isfinite()].float()
        return (finite.amin().item(), finite.amax().item()) if finite.numel() else (None, None)
    return (low if math.isfinite(low) else None), (high if math.isfinite(high) else None)


def _merge(values: Values, look: _Look) -> Values:
    low, high = _finite_bounds(look)
    merged = dataclasses.replace(
        values, n_sampled=values.n_sampled + 1, minimum=_least(values.minimum, low), maximum=_most(values.maximum, high)
    )
    if look.moments is None:
        return merged
    if look.structure is not None:
        merged = with_structure(merged, look.structure)
    mean, std, zero, subnormal, nan, posinf, neginf = look.moments.tolist()
    return dataclasses.replace(
        merged,
        mean=mean,
        std=std,
        zero_fraction=zero,
        subnormal_fraction=subnormal,
        n_nan=math.ceil(nan * look.n_elements),
        n_posinf=math.ceil(posinf * look.n_elements),
        n_neginf=math.ceil(neginf * look.n_elements),
    )


def _look_at(raw: torch.Tensor, wanted: bool, exact: bool, elementwise: bool) -> _Look:
    """``wanted``: a copy may be kept, which needs no description."""
    extremes = _extremes(raw)
    look = _Look(raw, raw.dtype, raw.numel(), extremes, rarities_of(raw, extremes, elementwise))
    return look if wanted else _described(look, raw, exact)


def _described(look: _Look, raw: torch.Tensor, mask: bool) -> _Look:
    """A look at a tensor of which no copy is kept; ``mask``: a float one that is 0 where it lets something through."""
    integral = not (raw.is_floating_point() or raw.is_complex())
    structure = structure_of(raw) if integral else structure_of(raw == 0) if mask and raw.is_floating_point() else None
    return dataclasses.replace(look, moments=_moments(raw), structure=structure)


def described(raw: torch.Tensor, values: Values) -> Values:
    """``values`` with the distribution and structure of ``raw``, whose copy they were kept with."""
    mask = values.minimum is not None and values.minimum < _MASK_LIMIT
    look = _described(_look_at(raw, wanted=True, exact=mask, elementwise=False), raw, mask)
    found = _merge(Values(), look)
    return dataclasses.replace(
        found,
        stored=values.stored,
        n_sampled=values.n_sampled,
        minimum=_least(values.minimum, found.minimum),
        maximum=_most(values.maximum, found.maximum),
    )


def _least(old: float | int | None, new: float | int | None) -> float | int | None:
    return new if old is None else old if new is None else min(old, new)


def _most(old: float | int | None, new: float | int | None) -> float | int | None:
    return new if old is None else old if new is None else max(old, new)
