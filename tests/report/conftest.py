"""Judgements for reporter tests: made by hand in the shape of real runs, never a result of an audit."""

from __future__ import annotations

import gzip
import pathlib
import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from audit.codec import case_key, contiguous_strides, signature_text
from audit.comparison import Comparison, TensorFact
from audit.rules.coverage import coverage
from audit.rules.judge import judge
from audit.run_records import PreflightCheck, Run, RunHeader
from audit.schema import (
    EVIDENCE_BY_BACKEND,
    Backend,
    Case,
    Copy,
    DeviceInfo,
    Kernel,
    Measurement,
    NotAudited,
    Outcome,
    Path,
    Phase,
    Source,
    Status,
    TensorSpec,
    Timing,
)
from audit.store import read_run
from audit.verdicts import Finding, Judgement, Known, Verdict

OPS = (
    ("aten::addmm.default", 3, "bfloat16"),
    ("aten::mm.default", 2, "bfloat16"),
    ("aten::bmm.default", 2, "float16"),
    ("aten::scaled_dot_product_attention.default", 3, "bfloat16"),
    ("aten::convolution.default", 2, "float16"),
    ("aten::native_layer_norm.default", 3, "float32"),
    ("aten::native_layer_norm_backward.default", 5, "float32"),
    ("aten::_softmax.default", 1, "float32"),
    ("aten::embedding.default", 2, "int64"),
    ("aten::silu.default", 1, "bfloat16"),
    ("aten::add.Tensor", 2, "float32"),
    ("aten::mul.Tensor", 2, "bfloat16"),
    ("aten::_to_copy.default", 1, "bfloat16"),
    ("aten::index_put_.default", 2, "float32"),
    ("aten::_foreach_addcdiv_.ScalarList", 3, "float32"),
    ("aten::linalg_ldl_solve.default", 2, "float64"),
)
#: Statuses go round in this order: of 60 cases 6 are unsupported, 6 divergent, 3 falling back, 3 slow, 6 inconclusive.
ROUND: tuple[Status, ...] = (
    "unsupported", "supported", "supported", "divergent", "supported", "inconclusive", "supported", "falling_back",
    "supported", "supported", "slow", "supported", "supported", "divergent", "supported", "supported", "unsupported",
    "supported", "inconclusive", "supported",
)  # fmt: skip


def finding_for(status: Status, op: str) -> tuple[Finding, ...]:
    """A finding as the rules word it."""
    if status == "unsupported":
        message = f"the device crashed on {op}: Memory access fault by GPU node-1 (signal 6, seen again alone)"
        return (Finding("SUP102", status, message, {"signal": 6, "confirmed": True}),)
    if status == "divergent":
        data = {"output": "output 0", "worst_ratio": 412.5, "threshold": 16.0, "max_abs_error": 0.0312}
        known = Known(
            "MI200 flushes fp16 denormals in GEMM", "https://rocm.docs.amd.com/", "set alt-impl env variables"
        )
        return (Finding("NUM201", status, "output 0 is 412 times its noise floor off, allowed are 16", data, known),)
    if status == "falling_back":
        return (Finding("FBK301", status, "4.2 MB went to the host and back inside the op", {"DtoH_bytes": 4194304}),)
    if status == "slow":
        return (Finding("SPD401", status, "5.1 times slower than the CPU; costs 3.2 ms a step", {"factor": 5.1}),)
    if status == "inconclusive":
        return (Finding("INC901", status, "invalid input: the CPU raised IndexError: index out of range"),)
    return (Finding("FBK390", "supported", "one scalar was copied to the host", {"nbytes": 4}),)


def make_case(op: str, n_tensors: int, dtype: str, rows: int, phase: Phase, n_calls: int) -> Case:
    sizes = (rows, 4096)
    args = tuple(
        TensorSpec(sizes, contiguous_strides(sizes), dtype, extent=rows * 4096, storage=i) for i in range(n_tensors)
    )
    return Case(
        key=case_key(op, args, (), phase, None), op=op, args=args, phase=phase, n_calls=n_calls,
        modules=tuple(f"model.layers.{i}.self_attn.q_proj" for i in range(3)),
        sources=("examples/llama_train.py:41", "modeling_llama.py:287"),
    )  # fmt: skip


def make_comparison(spec: TensorSpec, bad: bool, rng: random.Random) -> Comparison:
    fact = TensorFact(spec.sizes, spec.strides, spec.dtype)
    return Comparison(
        "output 0", "numeric", fact, fact, reference="fp64", n_elements=spec.sizes[0] * 4096,
        n_different=812 if bad else 0, max_abs_error=0.03125 if bad else 2.4e-7, cpu_max_abs_error=1.9e-7,
        noise=7.5e-5, eps=0.0078, worst_ratio=412.5 if bad else rng.uniform(0.2, 2.0), worst_index=(3, 1029),
        worst_actual="0.15625", worst_expected="0.125003", n_nan_mismatch=2 if bad else 0,
    )  # fmt: skip


FAULT = "Memory access fault by GPU node-1 (Agent handle: 0x55d0) on address 0x7f11. Reason: Unknown.\n"
WARNED = Outcome("ok", warnings=("UserWarning: flash attention was not compiled",))
DEVICE_OUTCOMES = {
    "unsupported": Outcome("crashed", signal=6, confirmed=True, stderr=FAULT),
    "inconclusive": Outcome("not_run", message="invalid input"),
    "divergent": WARNED,
}


def make_measurement(case: Case, status: Status, rng: random.Random) -> Measurement:
    spec = case.args[0]
    assert isinstance(spec, TensorSpec)
    device = DEVICE_OUTCOMES.get(status, Outcome("ok"))
    ran = device.kind == "ok"
    median = rng.lognormvariate(5, 1.4)
    invalid = Outcome("raised", "IndexError", "index out of range in self")
    copies = (Copy("DtoH", 4194304), Copy("HtoD", 4194304)) if status == "falling_back" else ()
    kernel = Kernel("Cijk_Ailk_Bljk_BBS_BH_MT128x128x32_UserArgs", median, 1)
    return Measurement(
        key=case.key,
        reference=invalid if status == "inconclusive" else Outcome("ok"),
        device=device,
        comparisons=(make_comparison(spec, status == "divergent", rng),) if ran else (),
        path=Path(True, True, ("aten::mm.default",), (kernel,), copies),
        device_time=Timing(median, median / 20, 31, median * 40) if ran else None,
        reference_time=Timing(median * 9, median, 5),
        canary="passed",
        operand_bytes=2 * 4096 * 4096,
    )


def build_judgement(n_cases: int = 60, seed: int = 7, backend: Backend = "sim") -> Judgement:
    """``n_cases`` cases over the ops of a Llama and a CNN, their statuses in turn from ``ROUND``."""
    rng = random.Random(seed)
    cases, measurements, verdicts = [], {}, []
    for i in range(n_cases):
        op, n_tensors, dtype = OPS[i % len(OPS)]
        if i >= len(OPS) * 8:
            op = op.replace("::", f"::v{i // (len(OPS) * 8)}_", 1)  # more ops, so that 5,000 cases are no list of 16
        phase: Phase = ("forward", "backward", "optimizer")[i % 3]  # type: ignore[assignment]
        case = make_case(op, n_tensors, dtype, 1 + i, phase, (1, 2, 8, 64)[i % 4])
        status = ROUND[i % len(ROUND)]
        measurement = make_measurement(case, status, rng)
        cases.append(case)
        measurements[case.key] = measurement
        timing, reference = measurement.device_time, measurement.reference_time
        verdicts.append(Verdict(
            case.key, case.op, status, case.n_calls, case.phase, case.modules, case.sources,
            signature_text(case.args, ()), finding_for(status, case.op), timing.median_us if timing else None,
            reference.median_us if reference else None, "hipBLASLt" if "mm" in op else None,
            timing.median_us * case.n_calls if timing else None,
        ))  # fmt: skip
    bad = sum(v.status not in ("supported", "inconclusive") for v in verdicts)
    prefix = "" if backend == "hip" else "Not measured on AMD: "
    return Judgement(
        run=Run(header_for(backend, n_cases), tuple(cases), measurements),
        verdicts=tuple(verdicts),
        coverage=coverage(tuple(verdicts)),
        headline=f"{prefix}{bad} of {n_cases} cases need attention",
        thresholds=(("ERROR_RATIO", "16", "Higham 2002, section 3.1"), ("HOST_COPY_SHARE", "0.5", "rocm_facts"),),
    )  # fmt: skip


def header_for(backend: Backend, n_cases: int) -> RunHeader:
    names = {"hip": ("AMD Instinct MI300X", "gfx942"), "cuda": ("NVIDIA H200", "sm_90"), "none": ("none", "gfx942")}
    name, arch = names.get(backend, ("simulated device", "sim"))
    return RunHeader(
        evidence=EVIDENCE_BY_BACKEND[backend],
        source=Source("script", "examples/llama_train.py", n_steps=2),
        device=DeviceInfo(backend, name, arch, {"memory": "192 GiB"}),
        environment={"torch": "2.13.0", "python": "3.11.7", "HSA_OVERRIDE_GFX_VERSION": "11.0.0"},
        settings={"steps": "2", "timeout": "60"},
        created="2026-11-30T11:00:00+00:00",
        audit_version="0.1.0",
        n_cases=n_cases,
        n_recorded=n_cases * 9,
        not_audited=(NotAudited("torch.compile region", "compiled code has no aten calls", 4),),
        preflight=(
            PreflightCheck("arch list", "ok", "gfx942 is in this torch's arch list"),
            PreflightCheck("override", "warning", "HSA_OVERRIDE_GFX_VERSION is set: the arch may be wrong", "unset it"),
        ),
    )  # fmt: skip


@pytest.fixture(scope="session")
def make_judgement() -> Callable[..., Judgement]:
    """``make_judgement(n_cases, seed, backend)``."""
    return build_judgement


@pytest.fixture(scope="session")
def llama_judgement(tmp_path_factory: pytest.TempPathFactory) -> Judgement:
    """A real run, judged by today's rules: a Llama training step on ``sim`` with the faults of ``runs/faults.py``."""
    file = tmp_path_factory.mktemp("llama") / "run.jsonl"
    packed = pathlib.Path(__file__).with_name("runs") / "llama.jsonl.gz"
    file.write_bytes(gzip.decompress(packed.read_bytes()))
    return judge(read_run(file))


HOSTILE_NAMES = (
    "<script>alert(1)</script>",
    "\"onmouseover='alert(2)'",
    "javascript:alert(3)",
    "\u202egnp.exe",
    "../../../../etc/cron.d/x",
    "{{ 7 * 7 }}{% raw %}",
    "\x1b[31mred\x1b[0m\x00",
    "]]></system-out><testcase/>",
    "=HYPERLINK(\"http://evil\")",
    "'''\"\"\"\nimport os\n#",
    "lone \ud800 surrogate",
)  # fmt: skip


@pytest.fixture(scope="session")
def hostile_judgement() -> Judgement:
    """Every name that a program chooses is an attack: op, key, module, source, message, stderr, kernel, environment."""
    judgement = build_judgement(60)
    verdicts, cases, measurements = (
        list(judgement.verdicts),
        list(judgement.run.cases),
        dict(judgement.run.measurements),
    )
    for i, name in enumerate(HOSTILE_NAMES):
        old = verdicts[i]
        known = Known(name, f"javascript:alert({i})", name)
        finding = Finding(name, "divergent", name, {name: name}, known)
        verdicts[i] = replace(
            old, key=name, op=f"aten::{name}.default", status="divergent", modules=(name,), sources=(f"{name}:1",),
            signature=name, findings=(finding,), library=name,
        )  # fmt: skip
        cases[i] = replace(
            cases[i], key=name, op=verdicts[i].op, modules=(name,), sources=(name,), kwargs=((name, name),)
        )
        outcome = Outcome("raised", name, name, stderr=name, warnings=(name,))
        path = Path(True, True, (name,), (Kernel(name, 1.0),))
        measurements[name] = replace(measurements.pop(old.key), key=name, device=outcome, path=path, notes=(name,))
    header = replace(
        judgement.run.header,
        source=Source("script", HOSTILE_NAMES[0], error=HOSTILE_NAMES[6]),
        environment=dict.fromkeys(HOSTILE_NAMES, HOSTILE_NAMES[0]),
        not_audited=(NotAudited(HOSTILE_NAMES[0], HOSTILE_NAMES[1]),),
    )
    run = replace(judgement.run, header=header, cases=tuple(cases), measurements=measurements)
    return replace(judgement, run=run, verdicts=tuple(verdicts), headline=HOSTILE_NAMES[0])
