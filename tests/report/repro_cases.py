"""Cases and verdicts for tests of repro scripts, and a script's functions in the test's own process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from audit.codec import case_key, contiguous_strides
from audit.report.repro import repro_script
from audit.run_records import RunHeader
from audit.schema import Arg, Case, Phase, Status, TensorSpec, Values
from audit.verdicts import Finding, Known, Verdict


def spec(*sizes: int, dtype: str = "float32", storage: int = 0, **more: object) -> TensorSpec:
    extent = 1
    for size in sizes:
        extent *= size
    fields = {"strides": contiguous_strides(sizes), "extent": extent, **more}
    return TensorSpec(sizes=sizes, dtype=dtype, storage=storage, **fields)  # type: ignore[arg-type]


def case_of(
    op: str, *args: Arg, kwargs: tuple[tuple[str, Arg], ...] = (), phase: Phase = "forward",
    grads: tuple[TensorSpec | None, ...] | None = None, values: Mapping[int, Values] | None = None,
) -> Case:  # fmt: skip
    return Case(case_key(op, args, kwargs, phase, grads), op, args, kwargs, phase, grads, values=values or {})


def verdict_of(case: Case, code: str, **data: str | int | float | bool | None) -> Verdict:
    status: Status = {"SUP": "unsupported", "NUM": "divergent", "FBK": "falling_back", "SPD": "slow"}.get(
        code[:3], "inconclusive"
    )  # type: ignore[assignment]
    finding = Finding(code, status, "what was seen", data, Known("a title", "https://example.org"))
    return Verdict(case.key, case.op, status, 1, case.phase, (), (), "", (finding,))


MM = case_of("aten::mm.default", spec(8, 16), spec(16, 4, storage=1))


def functions_of(code: str, header: RunHeader, case: Case = MM, **data: str | float) -> dict[str, Any]:
    """What a script defines, in this process."""
    scope: dict[str, Any] = {"__name__": "repro"}
    exec(repro_script(case, verdict_of(case, code, **data), header), scope)
    return scope
