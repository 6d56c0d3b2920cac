"""Programs as users have them: scripts, modules, files that define a model, launchers, and ways in which they end."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import audit
from audit.errors import UsageError
from audit.opset import read_opset
from audit.opset.ranks import copy_or_merge
from audit.schema import Trace

FOREVER = """
import sys, torch
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
print("args", sys.argv[1:])
while True:
    model(torch.randn(int(sys.argv[1]), 4)).sum().backward()
    optimizer.step()
"""


def cli(*arguments: str, cwd: Path, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    root = Path(audit.__file__).resolve().parents[1]
    return subprocess.run(
        [sys.executable, "-m", "audit", *arguments],
        cwd=cwd, capture_output=True, text=True, timeout=240, check=False, stdin=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": str(root), **(env or {})},
    )  # fmt: skip


def traced(folder: Path, source: str, *arguments: str) -> tuple[subprocess.CompletedProcess[str], Trace | None]:
    (folder / "prog.py").write_text(source)
    own, program = (
        (arguments[: arguments.index("--")], arguments[arguments.index("--") :])
        if "--" in arguments
        else (arguments, ())
    )
    done = cli("trace", "prog.py", "-o", "m.audit", *own, *program, cwd=folder)
    return done, read_opset(folder / "m.audit") if (folder / "m.audit").exists() else None


def ops(trace: Trace | None) -> dict[str, int]:
    assert trace is not None
    counts: dict[str, int] = {}
    for case in trace.cases:
        counts[case.op] = counts.get(case.op, 0) + case.n_calls
    return counts


def test_a_script_that_trains_for_ever_ends_after_its_steps_and_sees_its_own_arguments(tmp_path: Path) -> None:
    done, trace = traced(tmp_path, FOREVER, "--steps", "3", "--", "5")
    assert done.returncode == 0
    assert "args ['5']" in done.stderr
    assert ops(trace)["aten::addmm.default"] == 3
    assert trace is not None
    assert (trace.source.kind, trace.source.name, trace.source.n_steps) == ("script", "prog.py", 3)
    assert done.stdout.startswith("m.audit: ")


def test_an_inference_loop_ends_after_forward_calls_of_the_outermost_module(tmp_path: Path) -> None:
    source = (
        "import torch\nmodel = torch.nn.Sequential(torch.nn.Linear(2, 2))\nwhile True:\n    model(torch.ones(1, 2))\n"
    )
    _, trace = traced(tmp_path, source, "--steps", "4")
    assert ops(trace)["aten::addmm.default"] == 4


def test_modules_called_while_a_model_is_made_are_no_steps(tmp_path: Path) -> None:
    """As in Wav2Vec2: a weight norm computes the weight whenever it is looked at."""
    source = """
import torch
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.utils.parametrizations.weight_norm(torch.nn.Conv1d(2, 2, 3))
        for _ in range(3):
            self.conv.weight.mean()
    def forward(self, x):
        return self.conv(x)
model = Model()
for _ in range(3):
    model.conv.weight.mean()
while True:
    model(torch.ones(1, 2, 8))
"""
    _, trace = traced(tmp_path, source)
    assert ops(trace)["aten::convolution.default"] == 2


def test_a_loss_module_beside_the_model_does_not_use_up_the_steps(tmp_path: Path) -> None:
    source = """
import torch
model, loss = torch.nn.Linear(2, 2), torch.nn.MSELoss()
while True:
    loss(model(torch.ones(1, 2)), torch.ones(1, 2))
"""
    _, trace = traced(tmp_path, source)
    assert ops(trace)["aten::addmm.default"] == ops(trace)["aten::mse_loss.default"] == 2


def test_evaluation_before_training_does_not_use_up_the_steps(tmp_path: Path) -> None:
    source = FOREVER.replace("while True:", "for _ in range(5): model(torch.ones(1, 4))\nwhile True:", 1)
    _, trace = traced(tmp_path, source, "--", "3")
    assert ops(trace)["aten::mm.default"] == 2


def test_a_file_with_model_and_inputs_runs_one_inference(tmp_path: Path) -> None:
    source = "import torch\nmodel = torch.nn.Linear(3, 2)\ninputs = (torch.ones(4, 3),)\n"
    done, trace = traced(tmp_path, source)
    assert done.returncode == 0
    assert set(ops(trace)) == {"aten::t.default", "aten::addmm.default"}
    assert trace is not None
    assert (trace.source.kind, trace.source.mode) == ("file", "infer")


def test_a_file_with_get_model_loss_and_optimizer_trains_one_step(tmp_path: Path) -> None:
    source = """
import torch
net = torch.nn.Linear(3, 2)
def get_model(): return net
def get_inputs(): return {"input": torch.ones(4, 3)}
loss = lambda out: out.pow(2).mean()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
"""
    _, trace = traced(tmp_path, source)
    assert trace is not None
    assert {case.phase for case in trace.cases} == {"forward", "backward", "optimizer"}


def test_train_mode_without_a_loss_goes_backward_from_the_sum_of_outputs(tmp_path: Path) -> None:
    source = "import torch\nmodel = torch.nn.Linear(3, 2)\ninputs = torch.ones(4, 3)\n"
    _, trace = traced(tmp_path, source, "--mode", "train")
    assert "aten::mm.default" in ops(trace)


def test_a_module_runs_as_python_m_would(tmp_path: Path) -> None:
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "__init__.py").write_text("")
    (tmp_path / "pack" / "train.py").write_text("import torch\nassert __name__ == '__main__'\ntorch.ones(2).sin()\n")
    done = cli("trace", "-m", "pack.train", "-o", "m.audit", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "aten::sin.default" in ops(read_opset(tmp_path / "m.audit"))


def test_a_script_full_of_cuda_traces_without_a_gpu(tmp_path: Path) -> None:
    source = """
import torch
assert torch.cuda.is_available() and "MI300" in torch.cuda.get_device_name()
model = torch.nn.Linear(4, 2).cuda()
x = torch.randn(3, 4, device="cuda:0").to("cuda", non_blocking=True)
with torch.autocast("cuda", dtype=torch.bfloat16):
    y = model(x)
assert y.dtype is torch.bfloat16
torch.cuda.synchronize()
print("memory", torch.cuda.memory_allocated())
"""
    done, trace = traced(tmp_path, source)
    assert done.returncode == 0, done.stderr
    assert "aten::addmm.default" in ops(trace)
    assert trace is not None
    assert "no GPU here, torch.cuda answered as AMD Instinct MI300" in trace.notes[0]


def test_a_program_that_raises_half_way_keeps_what_was_recorded_and_shows_the_exception(tmp_path: Path) -> None:
    done, trace = traced(tmp_path, "import torch\ntorch.ones(2).sin()\nraise ValueError('out of luck')\n")
    assert done.returncode == 3
    assert "ValueError: out of luck at prog.py:3" in done.stderr
    assert "aten::sin.default" in ops(trace)


@pytest.mark.parametrize(
    ("ending", "code"),
    [
        ("sys.exit(0)", 0),
        ("sys.exit(7)", 3),
        ("import os; os._exit(0)", 0),
        ("import os; os._exit(9)", 3),
        ("raise KeyboardInterrupt", 3),
    ],
)
def test_a_program_that_exits_keeps_what_was_recorded(tmp_path: Path, ending: str, code: int) -> None:
    done, trace = traced(tmp_path, f"import sys, torch\ntorch.ones(2).sin()\n{ending}\n")
    assert done.returncode == code, done.stderr
    assert "aten::sin.default" in ops(trace)


def test_a_program_that_kills_itself_is_named_and_its_signal_too(tmp_path: Path) -> None:
    done, trace = traced(tmp_path, "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n")
    assert done.returncode == 3
    assert "prog.py was killed by SIGKILL" in done.stderr
    assert "[program-died]" in done.stderr
    assert trace is None


@pytest.mark.parametrize(
    ("source", "code", "slug"),
    [
        ("x = 1\n", 3, "no-ops"),
        ("def broken(:\n", 2, "not-python"),
        ("\x00\x01", 2, "not-python"),
        ("model = 3\ninputs = 4\n", 2, "bad-model-file"),
    ],
)
def test_a_program_that_cannot_be_audited_is_one_sentence(tmp_path: Path, source: str, code: int, slug: str) -> None:
    done, trace = traced(tmp_path, source)
    assert done.returncode == code, done.stderr
    assert done.stderr.strip().splitlines()[-1].endswith(f"[{slug}]")
    assert "Traceback" not in done.stderr
    assert trace is None


def test_a_trace_is_never_overwritten_without_force(tmp_path: Path) -> None:
    traced(tmp_path, "import torch\ntorch.ones(2).sin()\n")
    done, _ = traced(tmp_path, "import torch\ntorch.ones(2).cos()\n")
    assert done.returncode == 2
    assert "[exists]" in done.stderr
    done, trace = traced(tmp_path, "import torch\ntorch.ones(2).cos()\n", "--force")
    assert "aten::cos.default" in ops(trace)


def test_compiled_regions_run_eagerly_and_are_named(tmp_path: Path) -> None:
    _, trace = traced(tmp_path, "import torch\nf = torch.compile(lambda x: x.sin() + 1)\nf(torch.ones(3))\n")
    assert "aten::sin.default" in ops(trace)
    assert trace is not None
    assert [item.what for item in trace.not_audited] == ["torch.compile"]
    assert "Inductor" in trace.not_audited[0].reason


def test_an_op_of_one_device_fails_the_audit_and_the_rest_is_recorded(tmp_path: Path) -> None:
    source = """
import torch
x, w = torch.ones(1, 2, 4, 4), torch.ones(2, 2, 3, 3)
torch.ops.aten.mkldnn_convolution(x, w, None, [1, 1], [1, 1], [1, 1], 1).sin()
"""
    done, trace = traced(tmp_path, source)
    assert done.returncode == 3
    assert done.stderr.splitlines()[-1] == (
        "rocm-audit: prog.py was traced into ops that only this machine's device has "
        "(aten::mkldnn_convolution.default); another device runs something else there, which is not audited. "
        "Call the portable op instead [device-specific-op]"
    )
    assert "aten::sin.default" in ops(trace)


def test_attention_under_vmap_is_named_and_fails_nothing(tmp_path: Path) -> None:
    source = """
import torch
q = torch.ones(3, 1, 2, 4, 8)
torch.func.vmap(lambda a: torch.nn.functional.scaled_dot_product_attention(a, a, a))(q).sin()
"""
    done, trace = traced(tmp_path, source)
    assert done.returncode == 0, done.stderr
    assert "under torch.func" in done.stdout
    assert "aten::sin.default" in ops(trace)


def test_a_model_that_is_served_by_a_thread_is_recorded_and_ended(tmp_path: Path) -> None:
    source = """
import queue, threading, torch
model, results = torch.nn.Linear(2, 2), queue.Queue()
def serve():
    while True:
        results.put(model(torch.ones(1, 2)).tanh())
threading.Thread(target=serve).start()
while True:
    results.get()
"""
    done, trace = traced(tmp_path, source, "--steps", "3")
    assert done.returncode == 0, done.stderr
    assert ops(trace)["aten::tanh.default"] == 3
    assert trace is not None
    assert trace.source.error is None
    assert "Traceback" not in done.stderr


def test_the_context_manager_records_its_block(tmp_path: Path) -> None:
    import torch

    with audit.trace(tmp_path / "m.audit"):
        torch.ones(3).sin()
    assert ops(read_opset(tmp_path / "m.audit"))["aten::sin.default"] == 1
    with pytest.raises(UsageError, match="exists"), audit.trace(tmp_path / "m.audit"):
        pass
    with pytest.raises(ZeroDivisionError), audit.trace(tmp_path / "m.audit", force=True):
        torch.ones(3).cos()
        1 / 0  # noqa: B018
    again = read_opset(tmp_path / "m.audit")
    assert again.source.error == "ZeroDivisionError: division by zero"
    assert "aten::cos.default" in ops(again)


def test_ranks_of_a_launcher_write_a_file_each_and_are_merged(tmp_path: Path) -> None:
    source = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
x = torch.ones(2 + dist.get_rank())
x.sin(); torch.ones(5).cos()
dist.all_reduce(torch.ones(1))
"""
    (tmp_path / "prog.py").write_text(source)
    root = Path(audit.__file__).resolve().parents[1]
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--master-port=29617", "-m", "audit",
         "trace", "prog.py", "-o", "m.audit"],
        cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False,
        env={**os.environ, "PYTHONPATH": str(root)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert sorted(p.name for p in tmp_path.glob("*.audit")) == ["m.rank0.audit", "m.rank1.audit"]
    merged = copy_or_merge(tmp_path / "m.audit", tmp_path / "merged.audit")
    assert ops(merged)["aten::sin.default"] == 2
    assert sorted(c.args[0].sizes for c in merged.cases if c.op == "aten::sin.default") == [(2,), (3,)]  # type: ignore[union-attr]
    assert [c.n_calls for c in merged.cases if c.op == "aten::cos.default"] == [2]
    assert {item.what: item.n_calls for item in merged.not_audited}["c10d::allreduce_.default"] == 2
    assert merged.notes[0] == "merged from 2 ranks"
    assert len(merged.notes) == 2
    assert read_opset(tmp_path / "merged.audit") == merged


def test_modules_beside_the_program_shadow_nothing_of_the_audit(tmp_path: Path) -> None:
    (tmp_path / "cuda.py").write_text("raise AssertionError\n")
    (tmp_path / "queue.py").write_text("raise AssertionError\n")
    (tmp_path / "program").mkdir()
    (tmp_path / "program" / "prog.py").write_text("import torch\nfrom beside import x\nx.sin()\n")
    (tmp_path / "program" / "beside.py").write_text("import torch\nx = torch.ones(2)\n")
    done = cli("trace", "program/prog.py", "-o", "m.audit", cwd=tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "left_behind",
    [
        pytest.param(
            "import threading, time\nthreading.Thread(target=time.sleep, args=(10000,)).start()",
            marks=pytest.mark.slow,
        ),
        "import atexit, os\natexit.register(lambda: os._exit(7))",
        "import os\nif os.fork() == 0:\n    torch.ones(2).cos()\n    raise SystemExit(0)\nos.wait()",
    ],
    ids=["a thread", "an exit handler", "a forked process"],
)
def test_what_a_program_leaves_behind_neither_holds_nor_spoils_the_trace(tmp_path: Path, left_behind: str) -> None:
    done, trace = traced(tmp_path, f"import torch\ntorch.ones(2).sin()\n{left_behind}\ntorch.ones(2).tan()\n")
    assert (done.returncode, done.stderr) == (0, "tracing prog.py\n")
    assert ops(trace) == {"aten::ones.default": 2, "aten::sin.default": 1, "aten::tan.default": 1}


@pytest.mark.slow
def test_an_exception_of_any_form_is_one_bounded_line(tmp_path: Path) -> None:
    ending = (
        "class Mute(Exception):\n    def __str__(self): raise RuntimeError\nraise Mute from ValueError('\\ud800')\n"
    )
    done, _ = traced(tmp_path, f"import torch\ntorch.ones(2).sin()\n{ending}")
    # What traceback says of such an exception differs by Python version.
    assert re.search(r"the program ended early: Mute: <[\w() ]+> at prog.py:5 \[program-ended\]", done.stderr)
    done, trace = traced(tmp_path, "import torch\ntorch.ones(2).sin()\nraise ValueError('x\\n' * 5000)\n", "--force")
    assert trace is not None
    assert trace.source.error is not None
    assert len(trace.source.error) < 600
    assert "\n" not in trace.source.error


def test_a_program_may_change_its_folder_and_delete_it(tmp_path: Path) -> None:
    ending = "import os, tempfile\nos.chdir(tempfile.mkdtemp())\nos.rmdir(os.getcwd())\ntorch.ones(2).cos()\n"
    done, trace = traced(tmp_path, f"import torch\ntorch.ones(2).sin()\n{ending}")
    assert (done.returncode, done.stderr) == (0, "tracing prog.py\n")
    assert trace is not None
    assert trace.cases[-1].sources == ("prog.py:6",)
