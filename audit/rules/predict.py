"""What the knowledge base foretells of a case on an arch, for runs where nothing ran on a device."""

from __future__ import annotations

from collections.abc import Iterator

from audit.knowledge.archs import has_capability, load_releases
from audit.knowledge.dispatch import load_dispatch
from audit.knowledge.gpus import gpus_of
from audit.knowledge.known_behaviours import load_behaviours
from audit.knowledge.paths import load_predictions
from audit.knowledge.tables import matches
from audit.rules.arguments import dtypes_of
from audit.rules.known import as_known
from audit.schema import Arg, Case, Status, TensorSpec
from audit.verdicts import Finding, Known

#: Composite ops that ROCm builds hand to a library when dtype and arch allow it; the op's own entry says "composite".
LIBRARY_ROUTES = (
    (("aten::conv*", "aten::_convolution*"), "MIOpen"),
    (("aten::scaled_dot_product_attention.*",), "AOTriton's fused attention"),
    (("aten::lstm.*", "aten::gru.*", "aten::rnn_tanh.*", "aten::rnn_relu.*"), "MIOpen's RNN"),
    (("aten::batch_norm.*", "aten::_batch_norm_impl_index.*", "aten::instance_norm.*"), "MIOpen's batch norm"),
)


def predict(case: Case, arch: str) -> Iterator[Finding]:
    """Findings whose messages begin with ``predicted:``. Yields at least one: a known kernel, a known obstacle, or
    INC910 where nothing is known of the op or the arch."""
    if not _arch_is_known(arch):
        yield _unknown(f"nothing is known of the GPU {arch}")
        return
    findings = [*_from_tables(case, arch), *_from_arguments(case, arch), *_failing_everywhere(case, arch)]
    yield from _first_of_each_code(findings)
    if not any(finding.status == "unsupported" for finding in findings):
        yield from _from_dispatch(case, falls_back=bool(findings))
        yield from _reports(case, arch)


def _first_of_each_code(findings: list[Finding]) -> list[Finding]:
    """The tables go from particular to general, so the first of a code says most."""
    first: dict[str, Finding] = {}
    for finding in findings:
        first.setdefault(finding.code, finding)
    return list(first.values())


def _arch_is_known(arch: str) -> bool:
    return bool(gpus_of(arch)) or any(arch in release.archs for release in load_releases())


def _predicted(code: str, status: Status, message: str, source: str, known: Known | None = None) -> Finding:
    return Finding(code, status, f"predicted: {message}", {"source": source, "predicted": True}, known)


def _unknown(message: str) -> Finding:
    return Finding("INC910", "inconclusive", f"predicted: {message}", {"predicted": True})


def _from_tables(case: Case, arch: str) -> Iterator[Finding]:
    """Vendor-only ops, dtype rules and arch lists of predictions.csv."""
    for entry in load_predictions():
        if entry.fits(case.op, arch, dtypes_of(case)):
            known = Known(entry.source, entry.link, entry.remedy)
            yield _predicted(entry.code, entry.status, f"{entry.message} ({arch})", entry.source, known)


def _from_arguments(case: Case, arch: str) -> Iterator[Finding]:
    """Rules that look at sizes and flags rather than at names."""
    if not arch.startswith("gfx"):
        return
    groups, dilation = _convolution(case)
    if groups > 1 and dilation > 1:
        yield _predicted(
            "FBK312",
            "falling_back",
            f"MIOpen takes no convolution with {groups} groups and dilation {dilation}; the native slow path is taken",
            "use_miopen in Convolution.cpp",
        )
    obstacle = _attention_obstacle(case) if has_capability("aotriton_flash_and_memeff", arch) else ""
    if obstacle:
        yield _predicted(
            "FBK311", "falling_back", f"{obstacle}; the math path is taken", "sdp_utils.cpp, checks for ROCm"
        )


def _convolution(case: Case) -> tuple[int, int]:
    """(groups, largest dilation) of a convolution, (1, 1) of anything else."""
    positions = {"convolution": (8, 5), "_convolution": (8, 5), "conv1d": (6, 5), "conv2d": (6, 5), "conv3d": (6, 5)}
    name = case.op.removeprefix("aten::").split(".")[0]
    if name not in positions:
        return 1, 1
    at_groups, at_dilation = positions[name]
    groups, dilation = _argument(case, at_groups, "groups"), _argument(case, at_dilation, "dilation")
    dilations = [item for item in dilation if isinstance(item, int)] if isinstance(dilation, tuple) else []
    return (groups if isinstance(groups, int) else 1), max(dilations, default=1)


def _attention_obstacle(case: Case) -> str:
    """What keeps fused attention from a call, by the rules of sdp_utils.cpp; empty where nothing does.

    Flash takes fp16 and bf16 without a mask, memory-efficient also fp32 and masks, but no grouped heads on ROCm.
    """
    if not matches(case.op, ("aten::scaled_dot_product_attention.*",)):
        return ""
    query, mask = _argument(case, 0, "query"), _argument(case, 3, "attn_mask")
    if not isinstance(query, TensorSpec):
        return ""
    half = query.dtype in ("float16", "bfloat16")
    if not half and query.dtype != "float32":
        return f"fused attention takes fp16, bf16 and fp32, and no {query.dtype}"
    grouped = _argument(case, 7, "enable_gqa") is True
    if isinstance(mask, TensorSpec):
        if grouped:
            return "no fused kernel takes a mask together with grouped heads (enable_gqa)"
        if mask.dtype not in ("bool", query.dtype):
            return f"fused attention wants a mask of bool or {query.dtype}, this one is {mask.dtype}"
        if mask.strides and mask.strides[-1] != 1:
            return "fused attention wants a mask whose last dimension is contiguous, this one was permuted"
    elif grouped and not half:
        return f"no fused kernel takes grouped heads (enable_gqa) in {query.dtype}"
    return ""


def _argument(case: Case, position: int, name: str) -> Arg:
    """By keyword or by position; None where it was left at its default."""
    for keyword, value in case.kwargs:
        if keyword == name:
            return value
    return case.args[position] if position < len(case.args) else None


def _failing_everywhere(case: Case, arch: str) -> Iterator[Finding]:
    """SUP121 where a public report says that the op never works there."""
    for behaviour in load_behaviours():
        if behaviour.predicts == "unsupported" and behaviour.fits((case.op,), arch, dtypes_of(case)):
            yield _predicted("SUP121", "unsupported", behaviour.title, behaviour.link, as_known(behaviour))


def _reports(case: Case, arch: str) -> Iterator[Finding]:
    """SUP124, notes: the reports may be about other shapes and releases, so they foretell nothing by themselves."""
    for behaviour in load_behaviours():
        if behaviour.in_predictions and not behaviour.predicts and behaviour.fits((case.op,), arch, dtypes_of(case)):
            message = f"a report is near this case: {behaviour.title}"
            yield _predicted("SUP124", "supported", message, behaviour.link, as_known(behaviour))


def _from_dispatch(case: Case, falls_back: bool) -> Iterator[Finding]:
    """The dispatch table's word: a kernel shared with CUDA, built of other ops, or none for a GPU."""
    entry = load_dispatch().get(case.op)
    if entry is None:
        yield _unknown(f"nothing is known of {case.op}; it is no aten op of the dispatch table")
        return
    source = f"{entry.source} {entry.torch_version}"
    library = next((library for ops, library in LIBRARY_ROUTES if matches(case.op, ops)), None)
    if entry.kind == "cuda":
        yield _predicted(
            "SUP120", "supported", f"runs: kernel {entry.kernel} is shared by CUDA and ROCm builds", source
        )
    elif entry.kind == "composite":
        how = ", built of other ops as on every device"
        if library:
            how = f", without {library}" if falls_back else f", by {library} where dtype and GPU allow it"
        yield _predicted("SUP120", "supported", f"runs{how}", source)
    else:
        other = entry.kind == "other layout"
        what = "only for sparse, nested or quantised tensors" if other else f"only for {entry.kernel}"
        yield _predicted("SUP123", "unsupported", f"no GPU kernel is registered, {what}", source)
