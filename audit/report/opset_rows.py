"""Rows of what an ``.audit`` file holds: by op, and in full for single cases."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from typing import Any

from audit.codec import encode, signature_text, tensors_of
from audit.errors import UsageError
from audit.opset.difference import Difference
from audit.opset.file import Opset
from audit.report.text import short_op
from audit.schema import Case


@dataclass(frozen=True)
class OpRow:
    """One op of a trace. ``phases`` are its calls by phase, ``value_bytes`` what is stored of its arguments."""

    op: str
    n_cases: int
    n_calls: int
    phases: Mapping[str, int]
    dtypes: tuple[str, ...]
    value_bytes: int


def op_rows(opset: Opset) -> list[OpRow]:
    """By falling number of calls."""
    by_op: dict[str, list[Case]] = {}
    for case in opset.trace.cases:
        by_op.setdefault(case.op, []).append(case)
    stored = value_bytes_by_key(opset)
    rows = [_op_row(op, cases, stored) for op, cases in by_op.items()]
    return sorted(rows, key=lambda row: (-row.n_calls, row.op))


def _op_row(op: str, cases: Sequence[Case], stored: Mapping[str, int]) -> OpRow:
    phases: Counter[str] = Counter()
    for case in cases:
        phases[case.phase] += case.n_calls
    dtypes = Counter(spec.dtype for case in cases for spec in tensors_of(case.args, case.kwargs, case.grads))
    return OpRow(
        op=op,
        n_cases=len(cases),
        n_calls=phases.total(),
        phases=phases,
        dtypes=tuple(dtype for dtype, _ in dtypes.most_common()),
        value_bytes=sum(stored.get(case.key, 0) for case in cases),
    )


def value_bytes_by_key(opset: Opset) -> dict[str, int]:
    """Bytes of stored values by case."""
    sizes: Counter[str] = Counter()
    for name, tensor in opset.tensors.items():
        sizes[name.rpartition("/")[0]] += tensor.end - tensor.start
    return dict(sizes)


def chosen_cases(cases: Iterable[Case], key: str | None, op: str | None) -> list[Case]:
    """The cases whose key begins with ``key`` and whose op fits the glob ``op``, as written or as people say it.

    Raises UsageError where there is none.
    """
    chosen = [
        case
        for case in cases
        if (key is None or case.key.startswith(key))
        and (op is None or fnmatchcase(case.op, op) or fnmatchcase(short_op(case.op), op))
    ]
    if not chosen:
        asked = " and ".join([f"key {key!r}"] * (key is not None) + [f"op {op!r}"] * (op is not None))
        raise UsageError(f"no case has the {asked}; `rocm-audit trace show FILE` lists what is there", "no-such-case")
    return chosen


# --- for machines ------------------------------------------------------------------------------------------------


def opset_record(opset: Opset) -> dict[str, Any]:
    """What ``trace show --json`` prints of a file."""
    trace = opset.trace
    return {
        "format_version": 1,
        "source": encode(trace.source),
        "n_cases": len(trace.cases),
        "n_recorded": trace.n_recorded,
        "trace_bytes": opset.trace_bytes,
        "values_bytes": opset.values_bytes,
        "ops": [{**vars(row), "phases": dict(row.phases), "dtypes": list(row.dtypes)} for row in op_rows(opset)],
        # Kernels are of recordings that were measured, which are no opsets.
        "not_audited": [{k: v for k, v in asdict(item).items() if k != "kernels"} for item in trace.not_audited],
        "notes": list(trace.notes),
        "environment": dict(trace.environment),
    }


def case_record(case: Case, value_bytes: int) -> dict[str, Any]:
    """One case as it stands in the file, with its signature and the bytes of its stored values."""
    signature = signature_text(case.args, case.kwargs, case.grads, case.settings)
    return {"signature": signature, "value_bytes": value_bytes, **encode(case), "n_calls": case.n_calls}


def difference_record(found: Difference) -> dict[str, Any]:
    """What ``trace diff --json`` prints."""
    return {
        "format_version": 1,
        "equal": found.is_equal,
        "n_equal_cases": found.n_equal,
        "cases": [vars(case) for case in found.cases],
        "ops": [vars(op) for op in found.ops],
        "not_audited": [
            {"what": what, "reason": reason, "n_a": a, "n_b": b} for what, reason, a, b in found.not_audited
        ],
        "environment": {name: list(pair) for name, pair in found.environment.items()},
    }
