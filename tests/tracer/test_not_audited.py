"""What passes no dispatcher is named: packages with kernels of their own, extensions, processes, TorchScript."""

from __future__ import annotations

import importlib
import importlib.util
import multiprocessing
import os
import shutil
import subprocess
import sys
import sysconfig
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from audit.schema import NotAudited, Source
from audit.tracer.recorder import Recorder
from tests.tracer.invariant import check, check_accounts


def seen(work: Callable[[], object]) -> dict[str, NotAudited]:
    """What was named beside the recorded calls."""

    def program() -> torch.Tensor:
        work()
        return torch.ones(2).sin()

    return {item.what: item for item in check(program).not_audited if item.n_seen}


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on the import path; what is imported from it is forgotten at the end."""
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_a_package_with_kernels_of_its_own_is_named_when_it_is_imported(packages: Path) -> None:
    (packages / "flash_attn").mkdir()
    (packages / "flash_attn" / "__init__.py").write_text("")
    (packages / "flash_attn" / "layers.py").write_text("")
    found = seen(lambda: importlib.import_module("flash_attn.layers"))
    assert found["flash_attn"].reason.startswith("imported: the kernels that it launches itself")


@pytest.mark.parametrize("content", [None, "import cuda_library_that_is_missing_here"])
def test_a_package_whose_import_failed_is_named(packages: Path, content: str | None) -> None:
    if content is not None:
        (packages / "bitsandbytes.py").write_text(content)

    def work() -> None:
        for _ in range(2):
            with pytest.raises(ImportError):
                importlib.import_module("bitsandbytes")

    assert seen(work)["bitsandbytes"].reason.startswith("could not be imported here")


def test_a_question_whether_a_package_is_there_is_no_import(packages: Path) -> None:
    assert "apex" not in seen(lambda: importlib.util.find_spec("apex"))


def test_the_watch_is_gone_after_the_trace() -> None:
    finders = list(sys.meta_path)
    seen(lambda: None)
    assert sys.meta_path == finders


def test_an_extension_that_needs_torch_is_named_and_another_is_not(packages: Path) -> None:
    if not Path(sysconfig.get_path("include"), "Python.h").exists() or shutil.which("cc") is None:
        pytest.skip("needs a C compiler and Python's headers")
    for name, libraries in (("kernels_of_mine", ["-lc10"]), ("no_kernels", [])):
        source = packages / f"{name}.c"
        source.write_text(_EXTENSION.replace("NAME", name))
        subprocess.run(
            ["cc", "-shared", "-fPIC", f"-I{sysconfig.get_path('include')}",
             "-Wl,--no-as-needed", str(source), "-o", str(packages / f"{name}.so"),
             f"-L{Path(torch.__file__).parent / 'lib'}", *libraries],
            check=True,
        )  # fmt: skip

    def work() -> None:
        importlib.import_module("kernels_of_mine")
        importlib.import_module("no_kernels")

    found = seen(work)
    assert found["kernels_of_mine"].reason.startswith("compiled extension: the aten ops that it calls are audited")
    assert "no_kernels" not in found


_EXTENSION = """
#include <Python.h>
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "NAME", NULL, -1};
PyMODINIT_FUNC PyInit_NAME(void) { return PyModule_Create(&definition); }
"""


def _nothing() -> None:
    torch.ones(3).cos()


def test_processes_are_counted_by_what_they_are() -> None:
    def work() -> None:
        worker = multiprocessing.get_context("fork").Process(target=_nothing)
        worker.start()
        worker.join()
        assert worker.exitcode == 0
        subprocess.run([sys.executable, "-c", ""], check=True)
        subprocess.run(["true"], check=True)
        if (child := os.fork()) == 0:
            os._exit(0)
        os.waitpid(child, 0)
        loader = DataLoader(TensorDataset(torch.ones(4)), num_workers=2, multiprocessing_context="fork")
        assert len(list(loader)) == 4

    found = {what: item.n_seen for what, item in seen(work).items()}
    assert found == {
        "process (multiprocessing)": 1, "Python process": 1, "forked process": 1, "dataloader worker": 2
    }  # fmt: skip


def test_a_forked_child_does_not_go_on_recording(tmp_path: Path) -> None:
    recorder = Recorder(None)
    recorder.start()
    torch.ones(2)
    if (child := os.fork()) == 0:
        torch.ones(2).sin()
        (tmp_path / "count").write_text(str(recorder.n_recorded))
        os._exit(0)
    os.waitpid(child, 0)
    torch.ones(2)
    recorder.stop()
    assert (tmp_path / "count").read_text() == "1"
    assert recorder.n_recorded == 2


def test_a_script_module_is_named_and_its_ops_are_recorded() -> None:
    def work() -> None:
        traced = torch.jit.trace(torch.nn.Linear(2, 2), torch.ones(1, 2))
        for _ in range(3):  # the profiling executor optimises from the third call on
            traced(torch.ones(1, 2))

    assert seen(work)["TorchScript"].reason.startswith("TorchScript, run with its fuser off")


def test_a_program_that_sets_the_stance_of_the_compiler_is_traced_eagerly_all_the_same() -> None:
    compilations: list[torch.fx.GraphModule] = []

    def backend(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Callable[..., Any]:
        compilations.append(graph)
        return graph.forward

    def program() -> torch.Tensor:
        compiled = torch.compile(lambda x: x.sin() + 1, backend=backend)
        with torch.compiler.set_stance("default"):
            return compiled(torch.ones(3))

    trace = check(program)
    assert {"aten::sin.default", "aten::add.Tensor"} <= {case.op for case in trace.cases}
    assert [item.n_seen for item in trace.not_audited if item.what == "torch.compile"] == [1]
    assert compilations == []


@pytest.mark.parametrize("strict", [False, True])
def test_a_program_that_exports_its_model_is_recorded_when_it_runs_it(strict: bool) -> None:
    """Strict export fails where modules have hooks, the tracer's too."""

    def program() -> torch.Tensor:
        exported = torch.export.export(torch.nn.Linear(4, 8), (torch.ones(2, 4),), strict=strict)
        return exported.module()(torch.ones(2, 4))

    trace = check(program)
    assert [case.n_calls for case in trace.cases if case.op == "aten::addmm.default"] == [1]
    assert {item.what for item in trace.not_audited if item.computes} == set()


def test_the_state_of_torch_is_what_it_was_before_the_trace() -> None:
    def state() -> list[Any]:
        return [
            torch.compile, torch._dynamo.eval_frame._callback_from_stance, torch._dynamo.eval_frame._stance.stance,
            torch._C._jit_script_compile, torch._C._jit_texpr_fuser_enabled(), vars(torch.cuda.CUDAGraph).get("replay"),
            torch.jit.RecursiveScriptModule.__dict__["_construct"], subprocess.Popen.__init__,
            multiprocessing.process.BaseProcess.start, torch.autograd.is_multithreading_enabled(),
        ]  # fmt: skip

    before = state()
    seen(lambda: None)
    assert state() == before


def test_a_custom_op_with_autograd_has_its_inner_ops_in_both_phases() -> None:
    @torch.library.custom_op("audit_named::scaled_sine", mutates_args=())
    def scaled_sine(x: torch.Tensor) -> torch.Tensor:
        return x.sin() * 2

    scaled_sine.register_autograd(
        lambda ctx, grad: grad * ctx.saved_tensors[0].cos() * 2,
        setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
    )

    def program() -> torch.Tensor:
        x = torch.ones(3, requires_grad=True)
        scaled_sine(x).sum().backward()
        return x

    trace = check(program)
    phases = {case.op: case.phase for case in trace.cases}
    assert phases["aten::sin.default"] == "forward"
    assert phases["aten::cos.default"] == "backward"
    [item] = [item for item in trace.not_audited if item.what.startswith("audit_named::")]
    assert (item.n_calls, item.reason.partition(":")[0]) == (1, "custom op")


def test_threads_that_record_at_once_lose_no_call() -> None:
    def program() -> list[torch.Tensor]:
        inputs = [torch.randn(4, 4, generator=torch.Generator().manual_seed(n), requires_grad=True) for n in range(4)]

        def work(x: torch.Tensor) -> None:
            for _ in range(25):
                torch.nn.functional.scaled_dot_product_attention(x[None], x[None], x[None]).sin().sum().backward()

        threads = [threading.Thread(target=work, args=(x,)) for x in inputs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return inputs

    counts = {(case.op, case.phase): case.n_calls for case in check(program).cases}
    assert counts["aten::sin.default", "forward"] == counts["aten::cos.default", "backward"] == 100
    assert counts["aten::scaled_dot_product_attention.default", "forward"] == 100


def test_threads_that_outlive_the_program_add_nothing_to_its_trace() -> None:
    leaving = threading.Event()

    def work(n: int) -> None:
        while not leaving.is_set():
            torch.ones(n).sin()
            n += 1  # a new case each time

    recorder = Recorder(None)
    recorder.start()
    threads = [threading.Thread(target=work, args=(start,)) for start in (1, 100_001, 200_001)]
    for thread in threads:
        thread.start()
    while recorder.n_recorded < 100:
        pass
    recorder.stop()
    n_recorded = recorder.n_recorded
    traces = [recorder.build(Source("script", "x"), {})[0] for _ in range(3)]
    leaving.set()
    for thread in threads:
        thread.join()
    assert {trace.n_recorded for trace in traces} == {n_recorded}
    check_accounts(traces[0])
    check_accounts(traces[2])


def test_a_package_that_was_compiled_ahead_of_time_is_named() -> None:
    def work() -> None:
        with pytest.raises((OSError, RuntimeError, ValueError)):
            torch._inductor.aoti_load_package("there_is_none.pt2")

    assert seen(work)["AOTInductor package"].reason.startswith("compiled ahead of time")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a HIP or CUDA GPU")
def test_a_graph_of_kernels_is_captured_as_it_is_and_its_replays_are_counted() -> None:
    """Looks at values while the graph is captured would fail it, or become a part of it."""
    from audit.tracer.values import ValueRecorder

    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.LayerNorm(4)).cuda()
    x = torch.ones(2, 4, device="cuda", requires_grad=True)
    model(x).sum().backward()  # what is made once is made outside of the graph
    recorder = Recorder(ValueRecorder())
    recorder.start()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        model(x).sin().sum().backward()
    for _ in range(3):
        graph.replay()
    recorder.stop()
    trace, _ = recorder.build(Source("script", "x"), {})
    assert [case.n_calls for case in trace.cases if case.op == "aten::sin.default"] == [1]
    assert [item.n_seen for item in trace.not_audited if item.what == "CUDA graph replay"] == [3]
    check_accounts(trace)
