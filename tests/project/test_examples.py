"""The examples do what their first lines say: programs run, fault files load and are found by the audit."""

from __future__ import annotations

import fnmatch
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from audit.device.sim.faults import load_faults

CHECKOUT = Path(__file__).resolve().parent.parent.parent
PROGRAMS = sorted(path.name for path in (CHECKOUT / "examples").glob("*.py"))
FAULT_FILES = sorted(path.name for path in (CHECKOUT / "examples/faults").glob("*.py"))

#: Ops that only exist in a ROCm build; sim calls them by these names.
ONLY_ON_ROCM = "aten::miopen_"


def run_here(*command: str, cwd: Path = CHECKOUT) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *command], cwd=cwd, capture_output=True, text=True, check=False)


def test_there_is_an_example_for_each_architecture_that_the_readme_names() -> None:
    names = {"llama_train", "bert_train", "vit_infer", "whisper_infer", "t5_train", "cnn_amp", "lstm", "careless"}
    assert {name.removesuffix(".py") for name in PROGRAMS} == names
    assert len(FAULT_FILES) >= 9


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_an_example_runs_on_the_cpu(name: str) -> None:
    done = run_here(f"examples/{name}")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", FAULT_FILES)
def test_a_fault_file_loads_and_its_globs_name_ops(name: str) -> None:
    faults = load_faults(CHECKOUT / "examples/faults" / name)
    known = {op for op in torch._C._dispatch_get_all_op_names() if op.startswith("aten::")}
    known |= {f"{op}.default" for op in known if "." not in op}
    for pattern in faults:
        assert pattern.startswith(ONLY_ON_ROCM) or fnmatch.filter(known, pattern), f"{pattern} names no op"


#: A few lines that call the op with values that bring the fault out, and the status that the audit must give it.
FOUND = {
    "attention_by_math.py": (
        "q = torch.randn(1, 2, 32, 64, dtype=torch.float16)\n"
        "torch.nn.functional.scaled_dot_product_attention(q, q, q)",
        "aten::scaled_dot_product_attention.default",
        "falling_back",
    ),
    "attention_strided_value.py": (
        "q = torch.randn(1, 4, 62, 64, dtype=torch.bfloat16)\n"
        "v = torch.randn(1, 62, 256, dtype=torch.bfloat16).view(1, 62, 4, 64).transpose(1, 2)\n"
        "torch.nn.functional.scaled_dot_product_attention(q, q, v)",
        "aten::scaled_dot_product_attention.default",
        "divergent",
    ),
    "convolution_naive.py": (
        "torch.nn.functional.conv2d(torch.randn(1, 8, 16, 16), torch.randn(8, 8, 3, 3))",
        "aten::convolution.default",
        "falling_back",
    ),
    "convolution_search_hangs.py": (
        "torch.nn.functional.conv2d(torch.randn(1, 8, 16, 16), torch.randn(8, 8, 3, 3))",
        "aten::convolution.default",
        "unsupported",
    ),
    "gemm_crashes.py": (
        "torch.mm(torch.randn(8, 8, dtype=torch.float64), torch.randn(8, 8, dtype=torch.float64))",
        "aten::mm.default",
        "unsupported",
    ),
    "gemm_flushes_subnormals.py": (
        "torch.mm(torch.full((8, 8), 2.0 ** -20, dtype=torch.float16), torch.ones(8, 8, dtype=torch.float16))",
        "aten::mm.default",
        "divergent",
    ),
    "grid_limit_unwritten.py": ("torch.relu(torch.randn(100, 100))", "aten::relu.default", "divergent"),
    "host_round_trip.py": ("torch.cumsum(torch.randn(100, 100), 0)", "aten::cumsum.default", "falling_back"),
    "kernels_missing.py": (
        "torch.nn.functional.interpolate(torch.randn(1, 2, 8, 8), scale_factor=2)",
        "aten::upsample_nearest2d.default",
        "unsupported",
    ),
    "layer_norm_gradient.py": (
        "x = torch.randn(8, 64)\n"
        "norm = torch.nn.LayerNorm(64)\n"
        "norm(x).pow(2).sum().backward()",
        "aten::layer_norm.default",
        "divergent",
    ),
    "poisons_the_device.py": (
        "torch.nn.functional.embedding(torch.arange(8), torch.randn(16, 4)) @ torch.randn(4, 4)",
        "aten::embedding.default",
        "unsupported",
    ),
}  # fmt: skip


def test_every_fault_file_has_a_program_that_brings_it_out() -> None:
    assert sorted(FOUND) == FAULT_FILES


@pytest.mark.slow
@pytest.mark.usefixtures("simulated_device")
@pytest.mark.parametrize("name", FAULT_FILES)
def test_the_audit_finds_what_a_fault_file_plants(name: str, tmp_path: Path) -> None:
    program, op, expected = FOUND[name]
    (tmp_path / "program.py").write_text(f"import torch\ntorch.manual_seed(0)\n{program}\n")
    limits = ("--first-call-limit", "20s", "--steady-limit", "20s")
    device = f"sim:{CHECKOUT / 'examples/faults' / name}"
    done = run_here(
        "-m", "audit", "run", str(tmp_path / "program.py"), "--device", device, "-o", str(tmp_path), *limits
    )
    assert done.returncode == 0, done.stderr
    verdicts = json.loads((tmp_path / "summary.json").read_text())["verdicts"]
    assert {verdict["status"] for verdict in verdicts if verdict["op"] == op} == {expected}
    if name == "poisons_the_device.py":
        others = {verdict["status"] for verdict in verdicts if verdict["op"] != op}
        assert others == {"supported"}, "the victims of a poisoned device are not to blame"
