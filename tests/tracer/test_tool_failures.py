"""Twenty-five public reports of tracing, replaying and comparing tools that broke on real models, and what ours does.

Each test takes a tool (``tests.tracer.tools``). The last one gives all of them the bare dispatch mode with a naive
replay instead, which must fail each. Where a report is about replaying or judging (T09 to T11, T20, T22 to T25), the
naive replay is what fails.
"""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch._subclasses import FakeTensorMode
from torch.utils.checkpoint import checkpoint

import audit
from audit.comparison import Comparison, TensorFact
from audit.rules.judge import judge
from audit.run_records import Run, RunHeader
from audit.schema import Case, DeviceInfo, Measurement, Named, Outcome, Source, TensorSpec, Trace
from audit.schema import Path as TakenPath
from audit.tracer.composites import is_vendor_op
from tests.tracer.tools import Answers, Bare, Ours, Tool

ROOT = Path(audit.__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def tool() -> Tool:
    return Ours()


@pytest.fixture(scope="module")
def answers(tool: Tool, simulated_device: None, tmp_path_factory: pytest.TempPathFactory) -> Answers:
    return tool.audit(replayed, _fault_file(tmp_path_factory.mktemp("replayed")))


def ops(trace: Trace) -> set[str]:
    return {case.op for case in trace.cases}


def only(trace: Trace, op: str) -> Case:
    found = [case for case in trace.cases if case.op == op]
    assert len(found) == 1, f"{op}: {len(found)} cases"
    return found[0]


def named(trace: Trace) -> dict[str, str]:
    return {item.what: item.reason for item in trace.not_audited}


# --- tracing -----------------------------------------------------------------------------------------------------


def test_t01_a_compiled_region_is_run_eagerly_and_named(tool: Tool) -> None:
    """pytorch/pytorch#105929, #115653: a mode around a compiled function saw nothing, and nobody was told."""
    compiled = torch.compile(lambda x: x.sin() + 1, backend="eager")
    compiled(torch.ones(3))  # from before the trace, as in a notebook
    trace = tool.check(lambda: compiled(torch.ones(3)))
    assert {"aten::sin.default", "aten::add.Tensor"} <= ops(trace)
    assert "traced eagerly" in named(trace).get("torch.compile", "")


def test_t02_compiling_as_a_whole_still_works_under_the_tracer(tool: Tool) -> None:
    """pytorch/pytorch#164143: a mode switches the compiler off, and ``fullgraph=True`` then raises."""

    def program() -> list[Any]:
        model = nn.Linear(3, 3)
        model.compile(backend="eager", fullgraph=True)
        nested = torch.compile(lambda x: torch.compile(torch.cos, backend="eager")(x), backend="eager", fullgraph=True)
        return [model, model(torch.ones(2, 3)), nested(torch.ones(3))]

    trace = tool.check(program)
    assert {"aten::addmm.default", "aten::cos.default"} <= ops(trace)
    assert [item.n_seen for item in trace.not_audited if item.what == "torch.compile"] == [3]


def test_t03_higher_order_ops_run_and_their_bodies_are_recorded(tool: Tool) -> None:
    """pytorch/pytorch#134385, attention-gym#70: no rule registered for flex_attention and the mode."""
    from torch.nn.attention.flex_attention import flex_attention

    def program() -> list[torch.Tensor]:
        x = torch.randn(3, requires_grad=True)
        y = torch.cond(x.sum() > 9, lambda x: x.sin(), lambda x: x.cosh(), (x,))
        y.sum().backward()
        q = torch.randn(1, 2, 16, 8)
        return [x, y, flex_attention(q, q, q, score_mod=lambda score, b, h, i, j: score + (i - j))]

    trace = tool.check(program)
    assert {"aten::cosh.default", "aten::sinh.default", "aten::logsumexp.default"} <= ops(trace)
    assert only(trace, "aten::sinh.default").phase == "backward"
    assert {"higher_order::cond", "higher_order::flex_attention"} <= set(named(trace))


def test_t04_whatever_is_not_understood_is_executed_all_the_same(tool: Tool) -> None:
    """pytorch/pytorch#167224: what a counter could not count it did not run."""
    from torch._higher_order_ops import while_loop

    with torch.library._scoped_library("audit_t04", "FRAGMENT") as library:
        library.define("twice(Tensor x) -> Tensor")
        library.impl("twice", lambda x: x * 2, "CompositeExplicitAutograd")
        library.define("fill(Tensor(a!) x, float by) -> ()")
        library.impl("fill", _fill, "CompositeExplicitAutograd")

        def program() -> list[Any]:
            x = torch.randn(3)
            filled = torch.empty(2)
            torch.ops.audit_t04.fill(filled, 3.0)

            def scripted(x: torch.Tensor) -> torch.Tensor:
                for _ in range(2):
                    x = x.sin() * 2
                return x

            script = torch.jit.script(scripted)
            mapped = torch.func.vmap(torch.func.grad(lambda a: F.layer_norm(a, (3,)).pow(2).sum()))(torch.randn(4, 3))
            looped = while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x * 2), (torch.tensor(0), x))
            return [torch.ops.audit_t04.twice(x), filled, script(x), mapped, looped, torch.eye(3).to_sparse() @ x]

        trace = tool.check(program)
    assert {"audit_t04::twice.default", "audit_t04::fill.default", "TorchScript"} <= set(named(trace))


def _fill(x: torch.Tensor, by: float) -> None:
    x.fill_(by)


_TRITON_PROGRAM = """
import json, sys, torch
from tests.tracer import tools
sys.path += sys.argv[2:]
import triton
import triton.language as tl

@triton.jit
def double(source, target, n: tl.constexpr):
    at = tl.arange(0, n)
    tl.store(target + at, tl.load(source + at) * 2)

class Doubling(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        double[(1,)](x, y, 16)
        double[(1,)](y, x, 16)
        return y

trace = getattr(tools, sys.argv[1])().check(lambda: Doubling()(torch.arange(16.0)))
print(json.dumps([(i.what, i.n_seen) for i in trace.not_audited if "Triton" in i.what]))
"""
#: Where Triton is not installed: its interface, as far as a launch goes, on NumPy.
_TRITON_STAND_IN = {
    "__init__.py": "from triton.runtime.jit import JITFunction as jit",
    "language.py": "constexpr = dtype = int",
    "runtime/__init__.py": "",
    "runtime/jit.py": """
class JITFunction:
    def __init__(self, fn):
        self.fn = fn
    def __getitem__(self, grid):
        return lambda *args: self.run(*args, grid=grid, warmup=False)
    def run(self, source, target, n, grid, warmup):
        target.numpy()[:n] = source.numpy()[:n] * 2
""",
}


def test_t05_triton_launches_are_counted_by_kernel_and_module(tool: Tool, tmp_path: Path) -> None:
    """pytorch/pytorch#161541: in eager mode a Triton launch passes no dispatcher, and no tool sees it."""
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": path, "TRITON_INTERPRET": "1"}
    command = [sys.executable, str(tmp_path / "program.py"), type(tool).__name__]
    (tmp_path / "program.py").write_text(_TRITON_PROGRAM)  # Triton reads its kernels' source
    if not _has_triton():
        for name, content in _TRITON_STAND_IN.items():
            file = tmp_path / "stand_in" / "triton" / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(content)
        command.append(str(tmp_path / "stand_in"))
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=200)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [["Triton kernel double in Doubling", 2]]


def _has_triton() -> bool:
    from importlib.util import find_spec

    return find_spec("triton") is not None


def test_t06_inference_mode_gives_the_same_ops(tool: Tool) -> None:
    """pytorch/pytorch#126268: under inference_mode composites reach a mode whole, and a counter counted nothing."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.norm, self.head = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Linear(4, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = F.relu(self.norm(self.conv(x))).flatten(2).transpose(1, 2)
            x = F.layer_norm(self.head(x), (8,)).unsqueeze(1)
            return F.dropout(F.scaled_dot_product_attention(x, x, x, is_causal=True), 0.1).matmul(x.mT).softmax(-1)

    def counts(context: Callable[[], Any]) -> dict[str, int]:
        def program() -> torch.Tensor:
            net, x = Net().eval(), torch.randn(2, 3, 6, 6)
            with context():
                return net(x)

        found: dict[str, int] = {}
        for case in tool.check(program).cases:
            # Not detach, which autograd adds to views, and not what comes before the context.
            if case.op not in ("aten::detach.default", "aten::detach_.default"):
                found[case.op] = found.get(case.op, 0) + case.n_calls
        return found

    expected = counts(torch.enable_grad)
    assert "aten::scaled_dot_product_attention.default" in expected
    assert counts(torch.no_grad) == expected
    assert counts(torch.inference_mode) == expected


def test_t07_recomputation_keeps_modules_and_is_flagged(tool: Tool) -> None:
    """pytorch/pytorch#134242, #124196: the module hierarchy of a counter breaks when blocks run again in backward."""

    def program() -> list[Any]:
        net = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
        net.add_module("last", nn.Linear(4, 1))
        x = torch.randn(2, 4, requires_grad=True)
        hidden = checkpoint(net[:2], x, use_reentrant=True)
        checkpoint(lambda h: net.last(h).sigmoid(), hidden, use_reentrant=False).sum().backward()
        return [net, x]

    trace = tool.check(program)
    for op in ("aten::tanh.default", "aten::sigmoid.default"):
        case = only(trace, op)
        assert (case.phase, case.n_calls, case.n_recomputed) == ("forward", 2, 1)
    backward = only(trace, "aten::tanh_backward.default")
    assert (backward.phase, backward.n_calls, backward.n_recomputed) == ("backward", 1, 0)
    assert only(trace, "aten::tanh.default").modules == ("Sequential.1",)


def test_t08_modules_are_known_and_outputs_untouched(tool: Tool) -> None:
    """pytorch/pytorch#111809: the hooks of a counter unwrap a tuple of one, and the model breaks."""

    class One(nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor]:
            return (x.add_(1),)

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one = One()

        def forward(self, x: torch.Tensor) -> list[Any]:
            result = self.one(x)
            return [type(result).__name__, len(result), result[0] is x, result]

    trace = tool.check(lambda: Net()(torch.ones(3)))
    assert only(trace, "aten::add_.Tensor").modules == ("Net.one",)


def test_t12_every_kind_of_argument_survives_the_file(tool: Tool, tmp_path: Path) -> None:
    """tritonbench#402, BackendBench#49: some aten arguments cannot be written, or not be read again."""

    def program() -> None:
        x = torch.arange(6.0).reshape(2, 3)
        index = torch.tensor([1, 0])
        torch.scatter(x, 1, index.view(2, 1), float("-inf"))
        torch.mul(x, complex(1, -2))
        torch.add(x, True)
        torch.nn.functional.pad(x, (1, 2), value=float("nan"))
        x[:, index]
        x.to(torch.float64, memory_format=torch.contiguous_format)
        torch.rand(2, generator=torch.Generator().manual_seed(1))

    trace = tool.saved(program, tmp_path / "m.audit")
    assert only(trace, "aten::scatter.value").args[3] == float("-inf")
    assert only(trace, "aten::mul.Tensor").args[1] == complex(1, -2)
    assert only(trace, "aten::add.Tensor").args[1] is True
    assert str(only(trace, "aten::constant_pad_nd.default").args[2]) == "nan"
    indices = only(trace, "aten::index.Tensor").args[1]
    assert isinstance(indices, tuple)
    assert indices[0] is None
    assert Named("dtype", "float64") in dict(only(trace, "aten::_to_copy.default").kwargs).values()
    assert dict(only(trace, "aten::rand.generator").kwargs)["generator"] == Named("generator", "device")


def test_t14_operands_are_known_by_their_storage_and_not_by_their_address(tool: Tool) -> None:
    """astra-sim#169: tensors of different shapes with one identifier, since memory is used again."""

    def program() -> None:
        for _ in range(3):
            a, b = torch.ones(64), torch.ones(64)  # at the addresses of those before
            torch.add(a, b)
            torch.mul(a[:32], a[32:])

    trace = tool.check(program)
    first, second = only(trace, "aten::add.Tensor").args
    assert isinstance(first, TensorSpec)
    assert isinstance(second, TensorSpec)
    assert (first.storage, second.storage) == (0, 1)
    low, high = only(trace, "aten::mul.Tensor").args
    assert isinstance(low, TensorSpec)
    assert isinstance(high, TensorSpec)
    assert (low.storage, high.storage, high.offset) == (0, 0, 32)


def test_t15_values_are_copied_before_the_program_overwrites_them(tool: Tool) -> None:
    """Relax#279: a snapshot without a copy is written to by the training that goes on."""

    def program() -> None:
        x = torch.full((4,), 3.0)
        torch.mul(x, x.exp_())  # its first operand is its second, changed before the call
        x.zero_()

    trace, kept = tool.trace(program)
    [key] = [case.key for case in trace.cases if case.op == "aten::exp_.default"]
    assert torch.equal(kept[f"{key}/0"], torch.full((4,), 3.0))


def test_t16_tensors_without_values_are_named_and_no_cases(tool: Tool) -> None:
    """pytorch/pytorch#92877, #93642, executorch#8727: fake and meta tensors taken for the program's own."""

    def program() -> list[torch.Tensor]:
        torch.empty(1 << 40, device="meta").sin()
        with FakeTensorMode():
            torch.ones(1 << 30).cos()
        return [torch.ones(3) * torch.tensor(2.0)]

    trace = tool.check(program)
    assert not ops(trace) & {"aten::sin.default", "aten::cos.default"}
    assert {"aten::sin.default", "aten.cos.default"} <= set(named(trace))
    assert not any(item.computes for item in trace.not_audited)


def test_t17_nested_tensors_are_recorded_as_what_they_are_made_of(tool: Tool) -> None:
    """pytorch-lightning#21588: a view of a jagged tensor fails under a counter that asks for its shape."""

    def program() -> list[torch.Tensor]:
        model = nn.Linear(4, 4)
        jagged = torch.nested.nested_tensor([torch.randn(2, 4), torch.randn(3, 4)], layout=torch.jagged)
        out = model(jagged)
        out.values().sum().backward()
        strided = torch.nested.nested_tensor([torch.randn(2, 4), torch.randn(3, 4)])
        return [out.values(), strided + strided, *(p.grad for p in model.parameters())]

    trace = tool.check(program)
    specs = [arg for case in trace.cases for arg in case.args if isinstance(arg, TensorSpec)]
    assert all(type(size) is int for spec in specs for size in spec.sizes)
    assert TensorSpec((5, 4), (4, 1), "float32", extent=20) in [spec for spec in specs if spec.storage == 0]
    assert "not strided tensor (nested)" in named(trace).values()


def test_t18_local_ops_of_distributed_tensors_are_recorded_and_collectives_named(tool: Tool) -> None:
    """pytorch/pytorch#162665: a mode that does not step back for DTensor sees global shapes, and no collective."""
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor, init_device_mesh

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        mesh = init_device_mesh("cpu", (1,))

        def program() -> list[torch.Tensor]:
            a = distribute_tensor(torch.randn(4, 4), mesh, [Shard(0)])
            b = distribute_tensor(torch.randn(4, 2), mesh, [Replicate()])
            total = (a @ b).to_local().sum()
            dist.all_reduce(total)
            return [total]

        trace = tool.check(program)
    finally:
        dist.destroy_process_group()
    assert only(trace, "aten::mm.default").args[0] == TensorSpec((4, 4), (4, 1), "float32", extent=16)
    assert {what.partition("::")[0] for what, reason in named(trace).items() if "other ranks" in reason} >= {"c10d"}


def test_t19_ops_on_another_thread_are_recorded_backward_too(tool: Tool) -> None:
    """pytorch/pytorch#86245, #184783: a mode belongs to a thread, and backward may run on another."""

    def program() -> list[Any]:
        model, x = nn.Linear(3, 3), torch.randn(2, 3)

        def work() -> None:
            model(x).tanh().sum().backward()

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        return [model]

    trace = tool.check(program)
    assert only(trace, "aten::tanh_backward.default").phase == "backward"
    assert only(trace, "aten::addmm.default").modules == ("Linear",)


def test_t20_what_chooses_its_kernel_by_device_is_recorded_before_it_chooses(tool: Tool) -> None:
    """pytorch/pytorch#169827, NVIDIA/Fuser#5492: one call of the user is another aten op on each device."""

    def program() -> list[torch.Tensor]:
        q = torch.randn(1, 2, 8, 16, requires_grad=True)
        x = torch.randn(2, 3, 4, 4, requires_grad=True)
        attended = F.scaled_dot_product_attention(q, q, q)
        normed = F.batch_norm(x, torch.zeros(3), torch.ones(3), training=True)
        (attended.sum() + normed.square().sum()).backward()
        return [q, x]

    trace = tool.check(program)
    assert not [op for op in ops(trace) if is_vendor_op(op)]
    for op in ("aten::scaled_dot_product_attention.default", "aten::batch_norm.default"):
        case = only(trace, op)
        assert case.grads is not None
        assert case.grads[0] is not None


def test_t21_aliasing_is_what_happened_and_not_what_a_schema_says(tool: Tool) -> None:
    """pytorch/pytorch#79474, #99744: ``to`` may alias or not; views that overlap are written through."""

    def program() -> list[Any]:
        x = torch.arange(6.0)
        same = x.to(torch.float32)
        x[1:].add_(x[:-1].clone()).mul_(x[0])
        return [same is x, x]

    trace = tool.check(program)
    target, factor = only(trace, "aten::mul_.Tensor").args
    assert isinstance(target, TensorSpec)
    assert isinstance(factor, TensorSpec)
    assert (target.storage, factor.storage, target.offset, target.extent) == (0, 0, 1, 6)
    assert "aten::_to_copy.default" not in ops(trace)
    assert "aten::slice.Tensor" in ops(trace)


# --- replaying and judging ---------------------------------------------------------------------------------------

_FAULTS = """
import os, signal, torch

def crash(call):
    os.kill(os.getpid(), signal.SIGSEGV)

def factor_ignored(call):
    return call.run(call.args[0], 1)

def other_order(call):
    target, dim, index, source = call.args
    return call.run(target, dim, index.flip(0), source.flip(0), **call.kwargs)

def other_generator(call):
    torch.manual_seed(torch.initial_seed() + 1)  # the same numbers for the same seed, and not the CPU's
    return call.run(*call.args, **call.kwargs)

seen = set()
def warns_once(call):
    if "erf" not in seen:
        seen.add("erf")
        call.warn("this op is slow on this architecture")
    return call.run(*call.args, **call.kwargs)

FAULTS = {
    "aten::cos.default": crash,
    "aten::mul_.Tensor": factor_ignored,
    "aten::index_add.default": other_order,
    "aten::rand_like.default": other_generator,
    "aten::erf.default": warns_once,
}
"""


def _fault_file(folder: Path) -> Path:
    file = folder / "faults.py"
    file.write_text(_FAULTS)
    return file


def replayed() -> None:
    """Replayed on a device that crashes on cos, multiplies wrongly and adds in another order than the CPU."""
    torch.manual_seed(0)
    x = torch.randn(4, 6)
    x.erf()
    x.mul_(3)
    x.unsqueeze_(0)
    x.index_add(1, torch.zeros(4, dtype=torch.int64), torch.randn(1, 4, 6)).to(torch.bfloat16)
    rows = torch.zeros(8, dtype=torch.int64)
    torch.index_add(torch.zeros(2, 6).bfloat16(), 0, rows, torch.randn(8, 6).bfloat16())
    F.embedding(torch.tensor([3, 0, 3]), torch.randn(4, 2))
    torch.rand_like(x)
    x.cos()
    x.ceil()


def test_t09_ops_that_write_in_place_are_replayed_on_inputs_of_their_own(answers: Answers) -> None:
    """BackendBench#133, #137: on shared inputs the result is its own reference, and a wrong one is correct."""
    assert answers["aten::mul_.Tensor"].status == "divergent"
    assert answers["aten::unsqueeze_.default"].status == "supported"


def test_t10_a_crash_is_the_crashing_ops_own(answers: Answers) -> None:
    """BackendBench#45, #67, #100: one op takes the process along, and with it everything after."""
    assert answers["aten::cos.default"].status == "unsupported"
    assert answers["aten::ceil.default"].status == "supported"


def test_t11_no_case_is_lost_on_the_way(answers: Answers) -> None:
    """BackendBench#106: eleven tests became none, and the op counted as tested."""
    trace, _ = Ours().trace(replayed)
    assert set(answers) == ops(trace)
    assert not {"lost", "skipped"} & {answer.status for answer in answers.values()}


def test_t13_index_tensors_are_replayed_with_their_values(tool: Tool, answers: Answers) -> None:
    """param#181, pytorch#143430: random integers for indices end in an illegal access, or a machine that hangs."""
    trace, kept = tool.trace(replayed)
    embedding = only(trace, "aten::embedding.default")
    assert kept[f"{embedding.key}/1"].tolist() == [3, 0, 3]
    assert answers["aten::embedding.default"].status == "supported"


def test_t22_another_order_of_additions_is_not_a_wrong_answer(answers: Answers) -> None:
    """pytorch/pytorch#181955: bf16 index_add_ with many collisions, judged by a tolerance that knows none of it."""
    assert answers["aten::index_add.default"].status == "supported"


def test_t23_no_kernel_seen_is_no_fallback(tool: Tool) -> None:
    """pytorch/kineto#1338, ROCm#6102: the profiler drops records, and an empty profile looks like host work.

    The negative control is the rule that such tools have: no kernel, so the host did it.
    """
    unseen = TakenPath(observed=True, complete=False, kernels=())
    assert _status_of(tool, unseen) == "supported"


def _status_of(tool: Tool, path: TakenPath) -> str:
    if isinstance(tool, Bare):
        return "falling_back" if not path.kernels else "supported"
    case = Case("relu-0", "aten::relu.default", (TensorSpec((2,), (1,), "float32", extent=2),))
    fact = TensorFact((2,), (1,), "float32")
    equal = Comparison("output", "exact", fact, fact, reference="same-dtype", n_elements=2)
    measured = Measurement(case.key, Outcome("ok"), Outcome("ok"), (equal,), path)
    device = DeviceInfo("hip", "AMD Instinct MI300X", "gfx942")
    header = RunHeader("measured", Source("script", "x"), device, {}, {}, "", "", 1, 1)
    return judge(Run(header, (case,), {case.key: measured})).verdicts[0].status


def test_t24_another_generator_is_not_a_wrong_answer(answers: Answers) -> None:
    """pytorch/pytorch#148247, #48841: generators differ by device, by design."""
    assert answers["aten::rand_like.default"].status == "supported"


def test_t25_a_warning_that_is_given_once_is_caught(answers: Answers) -> None:
    """ROCm's warnings come once a process, with the first call, which most tools take for a warm-up."""
    assert any("slow on this architecture" in text for text in answers["aten::erf.default"].warnings)


# --- the negative control ----------------------------------------------------------------------------------------

TESTS = {name: test for name, test in globals().items() if name.startswith("test_t") and name[6:8].isdigit()}
#: How the bare mode fails where it is not by a wrong answer: torch itself raises under it, or its file cannot be made.
RAISES: Mapping[str, type[Exception]] = {
    "test_t12": TypeError,
    "test_t17": RuntimeError,
}


@pytest.fixture(scope="module")
def bare_answers(tmp_path_factory: pytest.TempPathFactory) -> Answers:
    return Bare().audit(replayed, _fault_file(tmp_path_factory.mktemp("bare")))


def test_every_report_is_covered() -> None:
    assert sorted(name[6:8] for name in TESTS) == [f"{number:02}" for number in range(1, 26)]


@pytest.mark.parametrize("name", TESTS)
def test_a_bare_dispatch_mode_fails(name: str, bare_answers: Answers, tmp_path: Path) -> None:
    offered = {"tool": Bare(), "answers": bare_answers, "tmp_path": tmp_path}
    wanted = {parameter: offered[parameter] for parameter in inspect.signature(TESTS[name]).parameters}
    with pytest.raises(RAISES.get(name[:8], AssertionError)):
        TESTS[name](**wanted)
