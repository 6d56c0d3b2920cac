"""FBK302, FBK303, FBK305: the ops and kernels that ran inside, against those one expects."""

from __future__ import annotations

from collections.abc import Iterator

from audit.knowledge.archs import has_capability
from audit.knowledge.kernels import classify_kernel
from audit.knowledge.paths import FallbackOp, load_fallback_ops
from audit.knowledge.tables import matches
from audit.rules.arguments import dtypes_of, n_calls_seen
from audit.rules.thresholds import Thresholds
from audit.rules.wording import duration, first_line
from audit.run_records import RunHeader
from audit.schema import Case, Kernel, Measurement, Status
from audit.verdicts import Finding

#: Matrix products, for which hipBLASLt and rocBLAS both have kernels.
GEMM_OPS = (
    "aten::mm.*",
    "aten::addmm.*",
    "aten::addmm_.*",
    "aten::bmm.*",
    "aten::baddbmm*",
    "aten::linear.*",
    "aten::matmul.*",
)
_CONVOLUTIONS = ("*conv*",)
#: Settings by which a program refuses a library or a fused kernel (``audit.kernel_settings``).
_SWITCHES = ("_sdp", "cudnn.enabled")


def chosen_op(case: Case, measurement: Measurement, header: RunHeader, thresholds: Thresholds) -> Iterator[Finding]:
    """FBK302: an op that ran inside is the fallback of a better one (table fallback_ops.csv).

    It says so where the program itself has switched the better one off: that is a cost, too, and one easily saved.
    """
    if measurement.device.kind != "ok":
        return
    for entry in load_fallback_ops():
        seen = _seen(case, measurement, entry)
        if seen is not None:
            expected = f", not {entry.expected}" if entry.expected else ""
            asked_for = [name for name, value in case.settings if value is False and name.endswith(_SWITCHES)]
            because = f"; the program had switched {' and '.join(asked_for)} off" if asked_for else ""
            refused = [] if asked_for else [first_line(text, 200) for text in measurement.path.refusals]
            because += f"; refused: {'; '.join(refused)}" if refused else ""
            remedy = f"leave {' and '.join(asked_for)} on" if asked_for else entry.remedy
            yield Finding(
                "FBK302",
                "falling_back",
                f"took {seen}{expected}: {entry.meaning}{because}",
                {"chosen_op": seen, "remedy": remedy, "source": entry.source},
            )


def _seen(case: Case, measurement: Measurement, entry: FallbackOp) -> str | None:
    chosen = measurement.path.chosen_ops
    if not matches(case.op, entry.case_ops) or any(matches(op, entry.unless_chosen) for op in chosen):
        return None
    return next((op for op in chosen if op != case.op and matches(op, entry.chosen_ops)), None)


def kernel_names(case: Case, measurement: Measurement, header: RunHeader, thresholds: Thresholds) -> Iterator[Finding]:
    """FBK303: a naive library kernel, or im2col in a convolution. Layout changes and native kernels are notes."""
    if measurement.device.kind != "ok":
        return
    total_us = sum(kernel.us for kernel in measurement.path.kernels)
    kinds: dict[tuple[str, str], list[Kernel]] = {}
    for kernel in sorted(measurement.path.kernels, key=lambda kernel: -kernel.us):
        known = classify_kernel(kernel.name)
        kinds.setdefault((known.signal, known.category), []).append(kernel)
    for (signal, category), kernels in kinds.items():
        status = _status(signal, category, case.op, header)
        if status is not None:
            yield _of_a_kind(kernels, total_us, status)


def _of_a_kind(kernels: list[Kernel], total_us: float, status: Status) -> Finding:
    """The heaviest of a kind speaks for it."""
    heaviest, us = kernels[0], sum(kernel.us for kernel in kernels)
    known = classify_kernel(heaviest.name)
    share = f", {100 * us / total_us:.0f} % of its device time" if total_us > 0 else ""
    others = f" and {len(kernels) - 1} more of its kind" if len(kernels) > 1 else ""
    library = known.library or "unknown library"
    return Finding(
        "FBK303",
        status,
        f"ran {first_line(heaviest.name, 120)}{others} ({library}{share}): {first_line(known.meaning, 160)}",
        {
            "kernel": heaviest.name,
            "kernel_us": us,
            "count": sum(kernel.count for kernel in kernels),
            "signal": known.signal,
            "source": known.source,
        },
    )


def _status(signal: str, category: str, op: str, header: RunHeader) -> Status | None:
    if signal == "naive":
        return "falling_back"
    if signal == "slow" and category == "conv_im2col":
        return "falling_back" if matches(op, _CONVOLUTIONS) else None  # im2col and col2im are ops of their own, too
    if signal in ("slow", "layout"):
        return "supported"
    return "supported" if signal == "native" and header.device.backend == "hip" else None


def lesser_blas(case: Case, measurement: Measurement, header: RunHeader, thresholds: Thresholds) -> Iterator[Finding]:
    """FBK305: half precision GEMM carried by rocBLAS where hipBLASLt has the arch. On HIP only."""
    if header.device.backend != "hip" or measurement.device.kind != "ok" or not matches(case.op, GEMM_OPS):
        return
    gemm = heaviest_kernel(measurement)
    arch, rocm = header.device.arch, header.environment.get("hip", "")
    if gemm is None or not {"float16", "bfloat16"} & set(dtypes_of(case)):
        return
    library = classify_kernel(gemm.name).library or ""
    if not library.startswith("rocBLAS") or not has_capability("hipblaslt_supported", arch, rocm):
        return
    preferred = has_capability("hipblaslt_preferred", arch, rocm)
    why = "and is torch's default for it" if preferred else "though torch does not prefer it there by default"
    yield Finding(
        "FBK305",
        "falling_back",
        f"used {library} for {duration(gemm.us / n_calls_seen(measurement))} a call; hipBLASLt supports {arch} {why}",
        {"kernel": gemm.name, "kernel_us": gemm.us, "preferred": preferred, "remedy": "TORCH_BLAS_PREFER_HIPBLASLT=1"},
    )


def heaviest_kernel(measurement: Measurement) -> Kernel | None:
    """The kernel with most device time, copies and fills left aside."""
    kernels = [
        kernel for kernel in measurement.path.kernels if not classify_kernel(kernel.name).category.startswith("mem")
    ]
    return max(kernels, key=lambda kernel: kernel.us, default=None)
