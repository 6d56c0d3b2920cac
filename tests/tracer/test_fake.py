"""``--fake``: the same cases as a real run gives, without memory; what depends on values is answered and named."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from audit.opset import read_opset
from audit.schema import Source, TensorSpec, Trace
from audit.tracer.recorder import Recorder
from audit.tracer.shapes_only import ShapesOnly
from tests.architectures import bert, llama, lstm_ctc


def traced(program: Callable[[], object]) -> Trace:
    recorder = Recorder(None)
    recorder.start()
    try:
        program()
    finally:
        recorder.stop()
    return recorder.build(Source("script", "p"), {})[0]


def faked(program: Callable[[], object]) -> tuple[Trace, ShapesOnly]:
    shapes = ShapesOnly()
    recorder = Recorder(None, shapes)
    with shapes.tracing():
        recorder.start()
        try:
            program()
        finally:
            recorder.stop()
    return recorder.build(Source("script", "p"), {})[0], shapes


def calls(trace: Trace) -> dict[str, tuple[str, int]]:
    """Without ``detach``, which runs no kernel: ``nn.Parameter`` needs the op for a fake tensor alone."""
    return {case.key: (case.op, case.n_calls) for case in trace.cases if case.op != "aten::detach.default"}


def test_a_training_step_on_shapes_gives_the_cases_of_a_real_one() -> None:
    assert calls(faked(llama)[0]) == calls(traced(llama))


def test_a_library_that_looks_whether_values_are_there_runs_the_rest_alike() -> None:
    real, fake = calls(traced(bert)), calls(faked(bert)[0])
    assert fake.items() <= real.items()
    # transformers asks a real mask alone whether it hides anything
    assert {real[key] for key in real.keys() - fake.keys()} == {
        ("aten::all.default", 1),
        ("aten::_local_scalar_dense.default", 1),
    }


def test_a_composite_is_recorded_whole_with_the_gradients_that_reached_it() -> None:
    def program() -> None:
        q = torch.randn(1, 2, 8, 4, requires_grad=True)
        nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True).sum().backward()

    trace, _ = faked(program)
    (attention,) = [case for case in trace.cases if "attention" in case.op]
    assert attention.op == "aten::scaled_dot_product_attention.default"
    assert attention.grads is not None
    assert isinstance(attention.grads[0], TensorSpec)
    assert attention.grads[0].sizes == (1, 2, 8, 4)


def test_what_no_machine_could_hold_is_traced() -> None:
    trace, _ = faked(lambda: torch.empty(1 << 20, 1 << 20) @ torch.empty(1 << 20, 1 << 20))
    (product,) = [case for case in trace.cases if case.op == "aten::mm.default"]
    assert isinstance(product.args[0], TensorSpec)
    assert product.args[0].sizes == (1 << 20, 1 << 20)


def test_what_depends_on_values_is_answered_by_ones_and_named() -> None:
    answers: list[object] = []

    def program() -> None:
        x = torch.randn(3, 4)
        answers.extend([x.nonzero().shape, x[x > 0].shape, x.sum().item(), bool((x > 9).any())])
        answers.extend([x.numpy().shape, torch.arange(2).tolist(), x.half().sum().item()])

    trace, shapes = faked(program)
    assert answers == [(12, 2), (12,), 1.0, False, (3, 4), [1, 1], 1.0]
    assert "aten::nonzero.default" in {case.op for case in trace.cases}
    notes = "\n".join(shapes.notes())
    assert "aten.nonzero.default depends on values" in notes
    assert "Tensor.numpy" in notes


def test_a_loss_over_ragged_sequences_is_traced_to_its_end() -> None:
    trace, shapes = faked(lstm_ctc)
    (loss,) = [case for case in trace.cases if case.op.startswith("aten::ctc_loss")]
    assert loss.grads is not None
    assert "aten::lstm.input" in {case.op for case in trace.cases}
    assert any("_ctc_loss" in op for op in shapes.answered)


def test_what_is_too_large_to_stand_in_for_says_so() -> None:
    with pytest.raises(RuntimeError, match="nonzero"):
        faked(lambda: torch.empty(1 << 30).nonzero())


def test_a_module_is_converted_in_place_as_with_real_tensors() -> None:
    seen: list[object] = []

    def program() -> None:
        embedding, head = nn.Embedding(8, 4), nn.Linear(4, 8)
        head.weight = embedding.weight
        model = nn.Sequential(embedding, head)
        before = head.weight
        model.to("cpu").half().to(torch.bfloat16)
        seen.extend([head.weight is before, head.weight is embedding.weight, head.weight.dtype])

    faked(program)
    assert seen == [True, True, torch.bfloat16]


def test_a_checkpoint_of_nothing_replaces_none(tmp_path: Path) -> None:
    (tmp_path / "best.pt").write_text("years of work")
    _, shapes = faked(lambda: torch.save(nn.Linear(2, 2).state_dict(), tmp_path / "best.pt"))
    assert (tmp_path / "best.pt").read_text() == "years of work"
    assert any("torch.save" in note for note in shapes.notes())


def test_the_programs_own_fake_tensors_are_still_listed() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    def program() -> None:
        torch.ones(2) + 1
        with FakeTensorMode():
            torch.ones(3) + 1

    trace, _ = faked(program)
    assert {item.what for item in trace.not_audited} == {"aten.ones.default", "aten.add.Tensor"}


def test_nothing_of_the_mode_is_left_behind() -> None:
    before = (torch.Tensor.numpy, torch.Tensor.tolist, torch.save, torch.utils.swap_tensors)
    faked(lambda: torch.ones(2))
    assert (torch.Tensor.numpy, torch.Tensor.tolist, torch.save, torch.utils.swap_tensors) == before
    assert torch.ones(2).tolist() == [1.0, 1.0]


#: Runs the command line and prints the most KiB that it or the process which traces had. Told from inside: to whoever
#: starts a process it counts what the starter itself had before.
TELLING_ITS_MEMORY = """
import re, resource, sys
from audit.cli import main
code = main(sys.argv[1:])
own = int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1])
print(max(own, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss))
sys.exit(code)
"""


@pytest.mark.slow
def test_seventy_billion_weights_train_in_a_laptops_memory(checkout: Path, tmp_path: Path) -> None:
    config = checkout / "examples" / "llama-3-70b" / "config.json"
    options = ["--fake", "--seq", "4096", "--dtype", "bfloat16", "--mode", "train", "-o", str(tmp_path / "m.audit")]
    done = subprocess.run(
        [sys.executable, "-c", TELLING_ITS_MEMORY, "trace", str(config), *options],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(checkout)}, stdout=subprocess.PIPE, text=True, check=True,
    )  # fmt: skip
    assert int(done.stdout.split()[-1]) < 1_500_000
    trace = read_opset(tmp_path / "m.audit")
    assert trace.n_recorded > 18_000
    (attention,) = [case for case in trace.cases if "attention" in case.op]
    assert attention.n_calls == 80
    assert isinstance(attention.args[0], TensorSpec)
    assert attention.args[0].sizes == (1, 64, 4096, 128)
    assert attention.grads is not None
