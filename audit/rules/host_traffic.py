"""FBK301: whether the op's data went through the host."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from audit.comparison import TensorFact
from audit.knowledge.tables import matches
from audit.rules.arguments import n_calls_seen
from audit.rules.thresholds import Thresholds
from audit.rules.wording import plural, size
from audit.run_records import RunHeader
from audit.schema import Case, Copy, Measurement, NotAudited
from audit.verdicts import Finding

#: Ops whose work is to copy between host and device.
COPIES = ("aten::_to_copy.*", "aten::copy_.*", "aten::_copy_from*", "aten::to.*", "aten::_pin_memory.*")

_ITEM_BYTES = {"64": 8, "32": 4, "16": 2, "128": 16}


def round_trip(case: Case, measurement: Measurement, header: RunHeader, thresholds: Thresholds) -> Iterator[Finding]:
    """Falling back where operands went to the host *and* results of their size came back; else traffic is a note.

    "Of their size": on the way down more than a few scalars a copy, and both ways at least a fraction of the operands'
    bytes (on the way back of the outputs', where those are fewer, so that a reduction done on the host shows too).
    Copies whose bytes the profiler does not tell (torch 2.9 has no setting for it) are a note.
    """
    down, up = _total(measurement, "DtoH"), _total(measurement, "HtoD")
    if not (down.count or up.count):
        return
    result_bytes = min(measurement.operand_bytes, _output_bytes(measurement) or measurement.operand_bytes)
    whole = (
        not matches(case.op, COPIES)
        and down.nbytes > thresholds.scalar_copy_bytes * down.count
        and down.nbytes >= thresholds.host_copy_fraction * measurement.operand_bytes
        and up.nbytes > 0
        and up.nbytes >= thresholds.host_copy_fraction * result_bytes
    )
    data: dict[str, str | int | float | bool | None] = {
        "dtoh_bytes": down.nbytes,
        "htod_bytes": up.nbytes,
        "n_dtoh": down.count,
        "n_htod": up.count,
        "operand_bytes": measurement.operand_bytes,
    }
    traffic = ", ".join(_words(copy, way) for copy, way in ((down, "to the host"), (up, "to the device")) if copy.count)
    if whole:
        message = f"went through the host: {traffic}, for operands of {size(measurement.operand_bytes)}"
        yield Finding("FBK301", "falling_back", message, data)
    else:
        yield Finding("FBK301", "supported", f"host traffic: {traffic}", data)


def custom_ops(items: Iterable[NotAudited], thresholds: Thresholds) -> Iterator[Finding]:
    """An op of the program's own that sends tensors to the host and gets some back, as the trace shows.

    It has no case, since its code is not in the trace; what it copies is.
    """
    for item in items:
        down, up = (_of(item.copies, direction) for direction in ("DtoH", "HtoD"))
        if min(_mean_bytes(down), _mean_bytes(up)) > thresholds.scalar_copy_bytes:
            traffic = f"{_words(down, 'to the host')}, {_words(up, 'to the device')}"
            yield Finding(
                "FBK301",
                "falling_back",
                f"the op {item.what} goes through the host: {traffic}, in {plural(item.n_calls, 'call')}",
                {"op": item.what, "dtoh_bytes": down.nbytes, "htod_bytes": up.nbytes, "n_calls": item.n_calls},
            )


def _of(copies: Iterable[Copy], direction: str) -> Copy:
    return next((copy for copy in copies if copy.direction == direction), Copy("DtoH", 0, 0))


def _mean_bytes(copy: Copy) -> float:
    return copy.nbytes / copy.count if copy.count else 0.0


def _words(copy: Copy, way: str) -> str:
    copies = "1 copy" if copy.count == 1 else f"{copy.count} copies"
    return f"{size(copy.nbytes)} {way} in {copies}" if copy.nbytes else f"{copies} of unknown size {way}"


def _total(measurement: Measurement, direction: str) -> Copy:
    """Of one call, on average."""
    copies = [copy for copy in measurement.path.copies if copy.direction == direction]
    return Copy(
        "DtoH" if direction == "DtoH" else "HtoD",
        sum(copy.nbytes for copy in copies) // n_calls_seen(measurement),
        max(sum(copy.count for copy in copies) // n_calls_seen(measurement), 1 if copies else 0),
    )


def _output_bytes(measurement: Measurement) -> int:
    facts = [comparison.actual or comparison.expected for comparison in measurement.comparisons]
    return sum(_bytes(fact) for fact in facts if fact is not None)


def _bytes(fact: TensorFact) -> int:
    """Bytes of the elements; a dtype without a number in its name (bool) has one byte each."""
    item = next((nbytes for digits, nbytes in _ITEM_BYTES.items() if fact.dtype.endswith(digits)), 1)
    return math.prod(fact.sizes) * (item if not fact.dtype.startswith("complex") else max(item, 4))
