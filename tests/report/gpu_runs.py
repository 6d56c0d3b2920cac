"""Runs that a GPU timed, made by hand: each case with its median time and one kernel of a GEMM library."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from audit.codec import contiguous_strides
from audit.run_records import Run, RunEnd
from audit.schema import Case, Kernel, Measurement, Outcome, Path, TensorSpec, Timing
from audit.verdicts import Judgement


def spec(*sizes: int, dtype: str = "bfloat16") -> TensorSpec:
    """A contiguous tensor."""
    return TensorSpec(sizes, contiguous_strides(sizes), dtype)


MM = Case("mm-1", "aten::mm.default", (spec(4096, 4096), spec(4096, 4096)))
ADD = Case("add-1", "aten::add.Tensor", (spec(4096, 4096), spec(4096, 4096)))


def gpu_run(make_judgement: Callable[..., Judgement], *timed: tuple[Case, float], backend: str = "hip") -> Run:
    """A whole run of these cases with their times in microseconds, on an MI300X or (``cuda``) an H200."""
    header = replace(make_judgement(1, backend=backend).run.header, n_cases=len(timed), preflight=())
    measurements = {
        case.key: Measurement(
            case.key, Outcome("ok"), Outcome("ok"),
            path=Path(True, True, (case.op,), (Kernel("Cijk_Ailk_Bljk_BBS_BH_MT256x256x64_gfx942", us),)),
            device_time=Timing(us, us / 100, 9),
        )
        for case, us in timed
    }  # fmt: skip
    return Run(header, tuple(case for case, _ in timed), measurements, end=RunEnd(True))
