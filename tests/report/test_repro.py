"""Repro scripts are run as a user runs them: in a process of their own, with torch and nothing else of ours."""

from __future__ import annotations

import ast
import json
import os
import struct
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from audit.report.literals import literal
from audit.report.registry import write
from audit.report.repro import EMBED_BYTES, repro_script
from audit.report.stored import StoredSpan
from audit.run_records import RunHeader
from audit.schema import Named, TensorSpec, Values
from audit.verdicts import Judgement
from tests.report.repro_cases import MM, case_of, spec, verdict_of

torch = pytest.importorskip("torch", reason="the scripts run on torch")


@pytest.fixture
def header(make_judgement: Callable[..., Judgement]) -> RunHeader:
    return make_judgement(1).run.header


def run(script: str, folder: Path, *arguments: str, sabotage: str = "") -> subprocess.CompletedProcess[str]:
    """Runs the script on the CPU in place of a GPU; ``sabotage`` is Python run at start-up in each of its processes."""
    path = folder / "repro.py"
    path.write_text(script, encoding="utf-8")
    (folder / "sitecustomize.py").write_text(sabotage, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    command = [sys.executable, str(path), "--device", "cpu", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, cwd=folder)


def test_the_script_sets_what_the_program_had_set_and_nothing_else(header: RunHeader) -> None:
    settings = (("torch.backends.cuda.enable_flash_sdp", False), ("torch.backends.cudnn.enabled", False))
    hostile = (*settings, ("torch.load('x')\nimport os", True), ("torch.backends.cudnn.deterministic", "__import__"))
    script = repro_script(replace(MM, settings=hostile), verdict_of(MM, "NUM201"), header)
    assert (
        "import torch\n\n\ntorch.backends.cuda.enable_flash_sdp(False)\ntorch.backends.cudnn.enabled = False\n"
        in script
    )
    assert "torch.load" not in script
    assert "__import__" not in script


#: From the second call in float32 on (the first is the reference's), mm does as the test says.
SABOTAGED_MM = """
import os, signal, time, torch, warnings
calls = []
def mm(a, b):
    result = torch.bmm(a[None], b[None])[0]
    if a.dtype == torch.float32:
        calls.append(1)
        if len(calls) > 1:
            {fault}
    return result
library = torch.library.Library("aten", "IMPL")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    library.impl("mm", mm, "CPU")
"""

HEALTHY = (
    MM,
    case_of("aten::addmm.default", spec(4), spec(8, 16, storage=1), spec(16, 4, storage=2), kwargs=(("beta", 0.5),)),
    case_of("aten::mm.default", spec(8, 16), TensorSpec((16, 4), (1, 16), "float32", 3, 100, 1), phase="backward"),
    case_of("aten::add_.Tensor", spec(4, 4), TensorSpec((4, 4), (0, 1), "float32", 2, 16, 0)),
    case_of("aten::_to_copy.default", spec(5), kwargs=(("dtype", Named("dtype", "bfloat16")),)),
    case_of(
        "aten::index.Tensor",
        spec(9, 2),
        (spec(3, dtype="int64", storage=1),),
        values={1: Values(minimum=0, maximum=8)},
    ),
    case_of("aten::_foreach_add_.Scalar", (spec(3), spec(4, storage=1)), 2.0, phase="optimizer"),
    case_of("aten::mul.Tensor", spec(6, dtype="complex64", conj=True), spec(6, dtype="complex64", storage=1, neg=True)),
    case_of(
        "aten::empty_like.default",
        spec(3, 3),
        kwargs=(("memory_format", Named("memory_format", "contiguous_format")),),
    ),
    case_of(
        "aten::scaled_dot_product_attention.default",
        *(spec(1, 2, 8, 4, storage=i, requires_grad=True) for i in range(3)),
        grads=(spec(1, 2, 8, 4, storage=3),),
    ),
    case_of("aten::softmax.int", spec(0, 3), -1),
)

#: Runs scripts one after the other in one process, since most of the time of one is the import of torch.
ONE_BY_ONE = """
import runpy, sys
codes = []
for path in sys.argv[1:]:
    sys.argv[1:] = ["--device", "cpu", "--attempt"]
    try:
        runpy.run_path(path, run_name="__main__")
    except SystemExit as end:
        codes.append(end.code)
print(codes)
"""


def test_a_healthy_device_gives_exit_code_0(header: RunHeader, tmp_path: Path) -> None:
    paths = [tmp_path / f"{case.key}.py" for case in HEALTHY]
    for case, path in zip(HEALTHY, paths, strict=True):
        path.write_text(repro_script(case, verdict_of(case, "SUP101"), header), encoding="utf-8")
    command = [sys.executable, "-c", ONE_BY_ONE, *map(str, paths)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.stdout.splitlines()[-1] == str([0] * len(HEALTHY)), done.stdout + done.stderr


def test_numbers_of_a_healthy_device_are_within_the_allowance(header: RunHeader, tmp_path: Path) -> None:
    data = {"output": "output", "allowed_ratio": 8.0}
    done = run(repro_script(MM, verdict_of(MM, "NUM201", **data), header), tmp_path)  # in a child, as users run it
    assert (done.returncode, done.stderr) == (0, "")
    assert "times its floor; allowed 8" in done.stdout


@pytest.mark.parametrize(
    ("code", "data", "fault"),
    [
        ("NUM201", {"output": "output", "allowed_ratio": 8.0}, "result[0, 0] += 0.01"),
        ("NUM202", {"output": "output"}, "result[3, 3] = float('nan')"),
        ("NUM203", {"output": "output"}, "result[3, 3] = float('inf')"),
        ("NUM204", {"output": "output"}, "result[1, 2] = 1e9"),
        ("NUM205", {"output": "output"}, "result = result[:4]"),
        ("NUM208", {"output": "output"}, "result[0, 0] += len(calls)"),
        ("NUM209", {}, "torch.empty(0).set_(a.untyped_storage(), 4 * 300, (4096,)).fill_(7)"),
        ("SUP101", {}, "raise RuntimeError('HIP error: invalid device function')"),
        ("SUP102", {}, "os.kill(os.getpid(), signal.SIGSEGV)"),
        pytest.param("SUP103", {}, "time.sleep(60)", marks=pytest.mark.slow),
    ],
)
def test_a_broken_kernel_gives_exit_code_1(
    code: str, data: dict[str, str | float], fault: str, header: RunHeader, tmp_path: Path
) -> None:
    script = repro_script(MM, verdict_of(MM, code, **data), header)
    options = {"SUP102": (), "SUP103": ("--timeout", "12")}.get(code, ("--attempt",))
    done = run(script, tmp_path, *options, sabotage=SABOTAGED_MM.format(fault=fault))
    assert done.returncode == 1, done.stdout + done.stderr


SDPA = case_of("aten::scaled_dot_product_attention.default", *(spec(1, 2, 8, 4, storage=i) for i in range(3)))


@pytest.mark.parametrize(
    ("chosen_op", "exit_code"),
    [
        ("aten::_scaled_dot_product_flash_attention_for_cpu.default", 1),
        ("aten::_scaled_dot_product_attention_math.default", 0),
    ],
)
def test_a_fallback_recurs_where_the_op_that_told_of_it_runs_again(
    chosen_op: str, exit_code: int, header: RunHeader, tmp_path: Path
) -> None:
    script = repro_script(SDPA, verdict_of(SDPA, "FBK302", chosen_op=chosen_op), header)
    assert run(script, tmp_path, "--attempt").returncode == exit_code


def test_a_fallback_recurs_where_its_message_comes_again(header: RunHeader, tmp_path: Path) -> None:
    verdict = verdict_of(MM, "FBK304")
    said = replace(verdict.findings[0], message="said: no fused kernel for this shape (falls back)")
    script = repro_script(MM, replace(verdict, findings=(said,)), header)
    fault = "os.write(2, b'Warning: no fused kernel for this shape, using math\\n')"
    assert run(script, tmp_path, "--attempt").returncode == 0
    assert run(script, tmp_path, "--attempt", sabotage=SABOTAGED_MM.format(fault=fault)).returncode == 1


def test_slowness_recurs_where_the_device_is_again_slower_than_the_cpu(header: RunHeader, tmp_path: Path) -> None:
    script = repro_script(MM, verdict_of(MM, "SPD401"), header)
    slow_device = "time.sleep(0.01 if len(calls) < 50 else 0)"  # the device is timed first, in some 50 calls
    slow_cpu = "time.sleep(0.01 if len(calls) > 60 else 0)"
    assert run(script, tmp_path, "--attempt", sabotage=SABOTAGED_MM.format(fault=slow_device)).returncode == 1
    assert run(script, tmp_path, "--attempt", sabotage=SABOTAGED_MM.format(fault=slow_cpu)).returncode == 0


def test_a_wrong_gradient_of_a_composite_gives_exit_code_1(header: RunHeader, tmp_path: Path) -> None:
    case = case_of(
        "aten::matmul.default", spec(8, 16, requires_grad=True), spec(16, 4, storage=1), grads=(spec(8, 4, storage=2),)
    )
    script = repro_script(case, verdict_of(case, "NUM201", output="gradient of operand 0", allowed_ratio=8.0), header)
    fault = (
        "result = result * 1.5 if len(calls) == 4 else result"  # forward, backward of the reference; forward, backward
    )
    assert run(script, tmp_path, "--attempt").returncode == 0
    assert run(script, tmp_path, "--attempt", sabotage=SABOTAGED_MM.format(fault=fault)).returncode == 1


def test_an_argument_that_a_composite_changes_unannounced_is_compared(header: RunHeader, tmp_path: Path) -> None:
    """batch_norm writes its running mean, and its schema does not say so."""
    channels = [spec(3, storage=i) for i in range(1, 5)]
    case = case_of("aten::batch_norm.default", spec(2, 3, 4), *channels, True, 0.1, 1e-5, False)
    script = repro_script(case, verdict_of(case, "NUM201", output="running_mean (mutated)"), header)
    done = run(script, tmp_path, "--attempt")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "running_mean (mutated): largest error" in done.stdout


def test_invalid_input_gives_exit_code_2_and_leaves_the_device_alone(header: RunHeader, tmp_path: Path) -> None:
    case = case_of("aten::mm.default", spec(2, 3), spec(2, 3, storage=1))
    done = run(repro_script(case, verdict_of(case, "NUM201"), header), tmp_path)
    assert done.returncode == 2
    assert "the device was not touched" in done.stdout


def test_an_operator_nobody_registered_gives_exit_code_2(header: RunHeader, tmp_path: Path) -> None:
    case = case_of("mylib::thing.default", spec(2))
    done = run(repro_script(case, verdict_of(case, "SUP101"), header), tmp_path, "--attempt")
    assert done.returncode == 2
    assert "knows no operator mylib::thing.default" in done.stdout


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here, so the script can tell")
def test_without_a_gpu_the_script_cannot_tell(header: RunHeader, tmp_path: Path) -> None:
    script = repro_script(MM, verdict_of(MM, "SUP101"), header)
    done = run(script, tmp_path, "--device", "cuda")
    assert (done.returncode, done.stdout) == (2, "This torch sees no GPU: cannot tell.\n")


def test_stored_values_are_embedded_bit_for_bit(header: RunHeader, tmp_path: Path) -> None:
    indices = struct.pack("<3q", 8, 0, 4)
    case = case_of("aten::index.Tensor", spec(9), (spec(3, dtype="int64", storage=1),), values={1: Values(stored=True)})
    script = repro_script(case, verdict_of(case, "SUP101"), header, {1: StoredSpan("int64", indices)})
    module: dict[str, object] = {"__name__": "script", "__file__": "script"}
    exec(compile(script, "script", "exec"), module)
    operands = module["operands_on"]("cpu", wide=False)  # type: ignore[operator]
    assert operands[1].tolist() == [8, 0, 4]
    assert "Operands 0 are synthesised" in script


def test_values_beyond_the_budget_are_synthesised_and_the_script_says_so(header: RunHeader) -> None:
    case = case_of("aten::relu.default", spec(1 << 17), values={0: Values(stored=True, std=2.0)})
    noise = StoredSpan("float32", os.urandom(1 << 19))
    script = repro_script(case, verdict_of(case, "SUP101"), header, {0: noise})
    assert len(script) < EMBED_BYTES
    assert "# Operands 0 are synthesised from recorded statistics (seeded)." in script


def test_synthesised_values_keep_the_recorded_specials_and_range(header: RunHeader) -> None:
    values = Values(minimum=-2.0, maximum=3.0, mean=0.0, std=1.0, n_nan=2, n_posinf=1, zero_fraction=0.5)
    case = case_of("aten::relu.default", spec(1000), values={0: values})
    module: dict[str, object] = {"__name__": "script", "__file__": "script"}
    exec(compile(repro_script(case, verdict_of(case, "SUP101"), header), "script", "exec"), module)
    tensor = module["values_of"](0)  # type: ignore[operator]
    finite = tensor[tensor.isfinite()]
    assert (int(tensor.isnan().sum()), int(tensor.isinf().sum())) == (2, 1)
    assert (float(finite.min()), float(finite.max())) == (-2.0, 3.0)
    assert 0.4 < float((finite == 0).float().mean()) < 0.6


def test_scripts_of_hostile_names_are_valid_python_that_runs_none_of_them(
    hostile_judgement: Judgement, tmp_path: Path
) -> None:
    write(hostile_judgement, ["json"], tmp_path)
    scripts = sorted((tmp_path / "repro").iterdir())
    assert len(scripts) >= 11
    imported = set()
    for script in scripts:
        source = script.read_text(encoding="utf-8")
        assert source.isascii()
        for node in ast.walk(ast.parse(source)):
            imported |= (
                {alias.name for alias in node.names} if isinstance(node, (ast.Import, ast.ImportFrom)) else set()
            )
    torch_names = {"torch", "ProfilerActivity", "profile"}
    assert torch_names < imported
    assert all(name in sys.stdlib_module_names for name in imported - torch_names)
    assert {path.parent for path in tmp_path.rglob("*.py")} == {tmp_path / "repro"}  # no name climbed out


def test_written_scripts_take_their_values_from_the_opset(
    make_judgement: Callable[..., Judgement], tmp_path: Path
) -> None:
    judgement = make_judgement(60)
    key = next(v.key for v in judgement.verdicts if v.status != "supported")
    case = next(case for case in judgement.run.cases if case.key == key)
    object.__setattr__(case, "values", {0: Values(stored=True)})  # the cases of a judgement made here are nobody else's
    operand = case.args[0]
    assert isinstance(operand, TensorSpec)
    names = {"BF16": "bfloat16", "F32": "float32", "F16": "float16", "I64": "int64", "F64": "float64"}
    tag = next(tag for tag, name in names.items() if name == operand.dtype)
    itemsize = {"F64": 8, "I64": 8, "F32": 4}.get(tag, 2)
    n_bytes = operand.extent * itemsize
    entries = json.dumps({f"{key}/0": {"dtype": tag, "shape": [operand.extent], "data_offsets": [0, n_bytes]}}).encode()
    values = tmp_path / "values.safetensors"
    values.write_bytes(struct.pack("<Q", len(entries)) + entries + bytes(n_bytes))
    write(judgement, ["json"], tmp_path, values)
    assert "\n    0: (\n" in (tmp_path / "repro" / f"{key}.py").read_text(encoding="utf-8")


def test_rejudging_without_values_keeps_the_scripts_that_have_them(
    make_judgement: Callable[..., Judgement], tmp_path: Path
) -> None:
    judgement = make_judgement(60)
    write(judgement, ["json"], tmp_path)
    first = sorted((tmp_path / "repro").iterdir())[0]
    first.write_text("# with values", encoding="utf-8")
    write(judgement, ["json"], tmp_path)
    assert first.read_text(encoding="utf-8") == "# with values"


@pytest.mark.parametrize(
    "value", [None, True, -3, 1.5, float("inf"), complex(1, float("-inf")), "it's \u202e", (1,), [(), {"a": "b"}]]
)
def test_a_literal_evaluates_to_its_value(value: object) -> None:
    assert eval(literal(value), {"float": float, "complex": complex}) == value
