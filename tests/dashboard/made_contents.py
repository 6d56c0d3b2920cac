"""Contents of a made site: any number of devices, versions, ops, models and runs, each with findings of every kind.

Rows that a catalog would give, made from indices alone: the same numbers give the same site, and nothing is kept.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property

from audit.dashboard.change_rows import (
    CaseChange,
    EnvironmentChange,
    LeftOut,
    ReleaseChange,
    Transition,
    UnknownCases,
    Untested,
)
from audit.dashboard.contents import About
from audit.dashboard.links import op_slug, slug
from audit.dashboard.rows import (
    CaseSet,
    CauseRow,
    EvidenceTally,
    Gpu,
    KnownRow,
    MatrixCell,
    ModelRow,
    NotAuditedRow,
    Observation,
    OpFinding,
    OpOnGpu,
    OpRow,
    RunCase,
    RunPage,
    RunRow,
    Share,
    SignatureRow,
    SiteFacts,
    Stack,
    Tally,
)
from audit.report.legend import READING_ORDER
from audit.rules.coverage import worst
from audit.schema import Backend, Evidence, Phase, Status

DEVICES: tuple[tuple[str, str, Backend, Evidence, bool], ...] = (
    ("AMD Instinct MI300X", "gfx942", "hip", "measured", False),
    ("AMD Instinct MI210", "gfx90a", "hip", "measured", True),
    ("NVIDIA H200", "sm_90", "cuda", "stand-in", False),
    ("simulated device (healthy)", "sim", "sim", "simulated", False),
    ("no device, gfx942 assumed", "gfx942", "none", "predicted", False),
)
OPS = (
    "aten::addmm.default", "aten::mm.default", "aten::bmm.default", "aten::convolution.default",
    "aten::_scaled_dot_product_flash_attention.default", "aten::native_layer_norm_backward.default",
    "aten::_softmax.default", "aten::embedding.default", "aten::add.Tensor", "aten::mul.Tensor", "aten::cat.default",
    "aten::index_put_.default", "aten::sum.dim_IntList", "aten::_fused_adamw_.default", "aten::gelu.default",
    "transformers::fused_rope.default",
)  # fmt: skip
DTYPES = ("bfloat16", "float16", "float32", "int64")
PHASES: tuple[Phase, ...] = ("forward", "backward", "optimizer")
MESSAGES: dict[Status, tuple[str, str]] = {
    "unsupported": ("SUP102", "the device crashed: Memory access fault by GPU node-1 (signal 6, seen again alone)"),
    "divergent": ("NUM201", "output 0 is 412 times its noise floor off, allowed are 16"),
    "falling_back": ("FBK301", "4.2 MB went to the host and back inside the op"),
    "slow": ("SPD401", "5.1 times slower than the CPU; costs 3.2 ms a step"),
    "inconclusive": ("INC901", "invalid input: the CPU raised IndexError: index out of range"),
    "supported": ("", ""),
}
KNOWN = KnownRow(
    "MI200 flushes fp16 denormals in GEMM", "https://rocm.docs.amd.com/", "set ROCBLAS_INTERNAL_FP16_ALT_IMPL"
)


@dataclass(frozen=True)
class MadeContents:
    """See ``audit.dashboard.contents.Contents``. ``names`` are given to ops and programs before those made up."""

    n_versions: int = 3
    n_ops: int = 16
    n_models: int = 3
    n_runs: int = 15
    n_cases: int = 60
    n_signatures: int = 12
    n_transitions: int = 6
    n_changes: int = 6
    n_items: int = 1
    devices: tuple[tuple[str, str, Backend, Evidence, bool], ...] = DEVICES
    names: tuple[str, ...] = ()
    text: str = ""
    left: tuple[LeftOut, ...] = field(default=(LeftOut("runs/broken/run.jsonl", "bad-run-file", "line 3 is no JSON"),))

    # --- where

    @cached_property
    def _gpus(self) -> tuple[Gpu, ...]:
        return tuple(self._gpu(i) for i in range(len(self.devices)))

    def _gpu(self, i: int) -> Gpu:
        name, arch, backend, evidence, is_imported = self.devices[i]
        gpu_slug = slug(name, arch, evidence, str(is_imported))
        runtimes = {"hip": "ROCm 7.{}.1", "cuda": "CUDA 12.{}"}
        stacks = tuple(
            Stack(
                f"{gpu_slug}-v{v}", evidence, is_imported, backend, name, gpu_slug, arch,
                runtimes.get(backend, "").format(v), f"2.{9 + v}.0",
            )
            for v in range(self.n_versions)
        )  # fmt: skip
        n_runs = sum(1 for r in range(self.n_runs) if r % len(self.devices) == i)
        return Gpu(gpu_slug, name, arch, evidence, is_imported, stacks, n_runs, self._share(i, evidence, is_imported))

    def _status(self, seed: int) -> Status:
        """Two thirds supported, the others in turn."""
        return READING_ORDER[seed // 3 % 5] if seed % 3 == 0 else "supported"

    def _tally(self, seed: int, n: int) -> Tally:
        statuses = [self._status(seed + k) for k in range(n)]
        return Tally(tuple((s, statuses.count(s)) for s in READING_ORDER if s in statuses))

    def _share(self, seed: int, evidence: Evidence, is_imported: bool) -> Share:
        cases = CaseSet(self._model_name(seed), "5f0c6d1a2b3c", self.n_cases, ("0.1.0",))
        return Share(evidence, is_imported, self._tally(seed, self.n_cases), cases)

    def gpus(self) -> tuple[Gpu, ...]:
        return self._gpus

    def stacks(self) -> tuple[Stack, ...]:
        return tuple(stack for gpu in self._gpus for stack in gpu.stacks)

    # --- ops

    def _op_name(self, i: int) -> str:
        names = (*self.names, *OPS)
        return names[i] if i < len(names) else f"aten::made_up_{i:04}.default"

    @cached_property
    def _ops(self) -> tuple[OpRow, ...]:
        return tuple(sorted((self._op(i) for i in range(self.n_ops)), key=lambda row: row.op))

    def _op(self, i: int) -> OpRow:
        name = self._op_name(i)
        levels = []
        for gpu in self._gpus:
            tally = self._tally(i + len(levels), self.n_signatures)
            levels.append(
                EvidenceTally(
                    gpu.evidence, gpu.is_imported, tally, worst(s for s, _ in tally.by_status), self.n_versions
                )
            )
        return OpRow(
            name,
            op_slug(name),
            ("gemm", "attention", "copy")[i % 3],
            self.n_signatures,
            self.n_runs,
            DTYPES,
            tuple(levels),
        )

    @cached_property
    def _index(self) -> dict[str, int]:
        return {op_slug(self._op_name(i)): i for i in range(self.n_ops)}

    def ops(self) -> tuple[OpRow, ...]:
        return self._ops

    def matrix(self, op: str = "") -> Iterator[MatrixCell]:
        for row in self._ops:
            if op in ("", row.slug):
                i = self._index[row.slug]
                for d, dtype in enumerate(DTYPES):
                    for s, stack in enumerate(self.stacks()):
                        if (i + d + s) % 5:
                            tally = self._tally(i * 7 + d * 3 + s, 1 + (i + d) % 4)
                            status = worst(status for status, _ in tally.by_status)
                            yield MatrixCell(
                                row.slug, dtype, stack.slug, status, tally, 2, (i + s) % 11 == 0, "2026-11-30"
                            )

    def on_gpus(self) -> tuple[OpOnGpu, ...]:
        return tuple(
            OpOnGpu(gpu.slug, row.op, row.slug, row.op_class, self._tally(i + k, self.n_signatures))
            for i, gpu in enumerate(self._gpus)
            for k, row in enumerate(self._ops)
        )

    def signatures(self, op: str) -> Iterator[SignatureRow]:
        i = self._index[op]
        for n in range(self.n_signatures):
            dtype = DTYPES[n % len(DTYPES)]
            yield SignatureRow(
                self._key(i, n), self._signature(n), PHASES[n % 3], dtype, (dtype, "int64"),
                tuple(self._observation(i + n + s, stack) for s, stack in enumerate(self.stacks()) if (n + s) % 4),
            )  # fmt: skip

    def _key(self, i: int, n: int) -> str:
        return f"case-{i}-{n}-0123456789ab"

    def _signature(self, n: int) -> str:
        dtype = DTYPES[n % len(DTYPES)]
        return f"{dtype}[{128 + n}, 4096], {dtype}[4096, 11008], beta=1, alpha=1 {self.text}"

    def _observation(self, seed: int, stack: Stack) -> Observation:
        status = self._status(seed)
        code, message = MESSAGES[status]
        other = self._status(seed + 1)
        statuses = (status, other) if seed % 7 == 0 and other != status else (status,)
        us = 40.0 + seed % 300
        return Observation(
            stack.slug, status, statuses, 1 + seed % 3, self._run_slug(seed % self.n_runs), "2026-11-30", 24,
            412.5 if status == "divergent" else 0.4 + seed % 5 / 10, 16.0, us, us * 0.41, "memory", "hipBLASLt",
            (code,) if code else (), f"{message} {self.text}" if message else "",
        )  # fmt: skip

    def findings(self, op: str) -> tuple[OpFinding, ...]:
        i = self._index[op]
        found = []
        for n, status in enumerate(READING_ORDER[:5]):
            code, message = MESSAGES[status]
            known = KNOWN if status == "divergent" else None
            stacks = tuple(stack.slug for stack in self.stacks()[n : n + 2])
            found.append(OpFinding(code, status, f"{message} {self.text}", known, 3 + n, stacks, self._key(i, n)))
        return tuple(found)

    # --- runs and models

    def _model_name(self, i: int) -> str:
        known = (*self.names, "examples/llama_train.py", "whisper-large-v3.audit", "resnet50_trace.json.gz")
        name = known[i % self.n_models] if i % self.n_models < len(known) else f"model_{i % self.n_models:04}.py"
        return name

    def _run_slug(self, r: int) -> str:
        return f"run-{r:05}-5f0c6d1a"

    def _run_row(self, r: int) -> RunRow:
        gpu = self._gpus[r % len(self._gpus)]
        stack = gpu.stacks[r // len(self._gpus) % len(gpu.stacks)]
        model = self._model_name(r)
        share = self._share(r, gpu.evidence, gpu.is_imported)
        said = "" if gpu.evidence == "measured" else "Not measured on AMD: "
        return RunRow(
            self._run_slug(r), slug(model), model, stack, f"2026-11-{1 + r % 28:02}T11:00:00+00:00",
            f"2026-11-{1 + r % 28:02}" if r % 13 != 12 else "", "ok" if r % 13 != 12 else "future", "0.1.0", r % 9 != 8,
            f"runs/{r}/run.jsonl", share, f"{said}{share.tally.n_with_finding} of {self.n_cases} cases need attention",
        )  # fmt: skip

    def runs(self, model: str = "", gpu: str = "") -> Iterator[RunRow]:
        for r in reversed(range(self.n_runs)):
            row = self._run_row(r)
            if model in ("", row.model_slug) and gpu in ("", row.stack.gpu_slug):
                yield row

    def run(self, run: str) -> RunPage:
        row = self._run_row(int(run.split("-")[1]))
        return RunPage(
            row, "script", self._tally(3, 40), (("torch", row.stack.torch), ("HSA_OVERRIDE_GFX_VERSION", "11.0.0")),
            (("steps", "2"), ("timeout", "60")) * self.n_items,
            (CauseRow("SUP190", "unsupported", "HSA_OVERRIDE_GFX_VERSION is set: the arch may be wrong", KNOWN),),
            (NotAuditedRow("torch.compile region", "compiled code has no aten calls", 4, 0, True),) * self.n_items,
            self.n_cases * 9, "time budget spent", ("line 12 was cut short",), ("copies/run.jsonl",), "5f0c6d1a" * 8,
        )  # fmt: skip

    def summary(self, run: str) -> bytes:
        return gzip.compress(run.encode(), mtime=0)

    def cases(self, run: str) -> Iterator[RunCase]:
        statuses = [self._status(n) for n in range(self.n_cases)]
        order = sorted(range(self.n_cases), key=lambda n: (READING_ORDER.index(statuses[n]), n))
        for n in order:
            status, i = statuses[n], n % self.n_ops
            code, message = MESSAGES[status]
            us = 40.0 + n % 300
            yield RunCase(
                f"case-{i}-{n}-0123456789ab", self._op_name(i), op_slug(self._op_name(i)), self._signature(n),
                PHASES[n % 3], DTYPES[n % len(DTYPES)], status, 24, 412.5 if status == "divergent" else 0.4, 16.0, us,
                us * 0.41, us * 24, "memory", "hipBLASLt", (code,) if code else (),
                f"{message} {self.text}" if message else "", ("model.layers.0.self_attn.q_proj",),
            )  # fmt: skip

    def models(self) -> tuple[ModelRow, ...]:
        found = []
        for m in range(self.n_models):
            name = self._model_name(m)
            runs = list(self.runs(model=slug(name))) if self.n_runs <= 200 else [self._run_row(m)]
            newest = {run.stack.gpu_slug: run for run in reversed(runs)}
            found.append(ModelRow(slug(name), name, "script", len(runs), 1, tuple(newest.values())))
        return tuple(sorted(found, key=lambda row: row.name))

    # --- what changed, what is missing

    def _change(self, n: int) -> CaseChange:
        i = n % self.n_ops
        directions = (
            ("supported", "divergent", "worse"),
            ("unsupported", "supported", "better"),
            ("slow", "inconclusive", "unknown"),
        )
        before, after, direction = directions[n % 3]
        message = MESSAGES[after][1]  # type: ignore[index]
        return CaseChange(
            self._op_name(i), op_slug(self._op_name(i)), self._key(i, n % self.n_signatures), self._signature(n),
            DTYPES[n % 4], before, after, f"{message} {self.text}" if message else "", direction,
        )  # type: ignore[arg-type]  # fmt: skip

    def transitions(self, model: str = "", op: str = "", limit: int = 200) -> tuple[Transition, ...]:
        found = []
        for r in range(min(limit, max(0, self.n_runs - len(self._gpus)), self.n_transitions)):
            before, after = self._run_row(r), self._run_row(r + len(self._gpus))
            moved = (
                EnvironmentChange("torch", "torch", before.stack.torch, after.stack.torch),
                EnvironmentChange("driver", "driver", "6.14.2", "6.16.0"),
            )
            changes = tuple(self._change(n) for n in range(r % 4 * self.n_changes // 2))
            found.append(
                Transition(before, after, moved[: r % 3], changes, self.n_cases, r % 4, r % 4, r % 4, r % 2, 0)
            )
        return tuple(found)

    def releases(self) -> tuple[ReleaseChange, ...]:
        found = []
        for gpu in self._gpus:
            if len(gpu.stacks) > 1:
                changes = tuple(self._change(n) for n in range(self.n_changes))
                found.append(ReleaseChange(gpu, gpu.stacks[-2], gpu.stacks[-1], 55, 2, 3, 4, changes, 2, 2, 2))
        return tuple(found)

    def untested(self) -> tuple[Untested, ...]:
        ops = tuple(f"aten::never_seen_{n}.default" for n in range(40))
        elsewhere = (("aten::mm.default", "float8_e4m3fn"),)
        unknown = (UnknownCases(self._op_name(0), op_slug(self._op_name(0)), 2, "no reference"),)
        by_class = (("attention", 3, 4), ("gemm", 37, 1196))
        return tuple(Untested(gpu, "torch 2.13", 1200, ops, by_class, elsewhere, unknown) for gpu in self._gpus)

    def left_out(self) -> tuple[LeftOut, ...]:
        return self.left

    def site(self) -> SiteFacts:
        shares = tuple(gpu.share for gpu in self._gpus)
        return SiteFacts(
            "0.1.0", self.n_runs, self.n_ops, self.n_ops * self.n_signatures, 1, len(self.left), 1, "2026-11-30", shares
        )

    def digest(self, about: About, slug: str = "") -> str:
        return f"{about} {slug}"


def with_names(contents: MadeContents, names: tuple[str, ...], text: str) -> MadeContents:
    """The same site, with these names of ops and programs, and this text in each message and signature."""
    return replace(contents, names=names, text=text)
