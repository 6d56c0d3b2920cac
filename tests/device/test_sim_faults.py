"""Each kind of fault that a fault file can plant does what it says, on the op it names and on no other."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from audit.device.sim.backend import SimTensor
from audit.device.sim.device import SimDevice
from audit.device.sim.executor import EXECUTOR
from audit.device.sim.faults import Call, Fault, load_faults
from audit.errors import UsageError
from audit.schema import Copy, Kernel

pytestmark = pytest.mark.usefixtures("simulated_device")

aten = torch.ops.aten


def on_sim(*tensors: torch.Tensor, grad: bool = False) -> list[torch.Tensor]:
    return [SimTensor(tensor.clone()).requires_grad_(grad) for tensor in tensors]


def device_with(faults: dict[str, Fault]) -> SimDevice:
    return SimDevice(faults)


def test_a_fault_that_raises_reaches_the_caller_with_its_own_type_and_text() -> None:
    def fault(call: Call) -> Any:
        raise torch.OutOfMemoryError("HIP out of memory. Tried to allocate 20.00 GiB")

    device_with({"aten::mm.default": fault})
    a, b = on_sim(torch.randn(4, 4), torch.randn(4, 4))
    with pytest.raises(torch.OutOfMemoryError, match="HIP out of memory"):
        aten.mm.default(a, b)


def test_a_fault_on_one_op_leaves_other_ops_alone() -> None:
    device = device_with({"aten::mm.default": lambda call: call.run(*call.args) * torch.nan})
    a, b = on_sim(torch.ones(4, 4), torch.ones(4, 4))
    assert device.to_host(aten.mm.default(a, b)).isnan().all()
    assert torch.equal(device.to_host(aten.add.Tensor(a, b)), torch.full((4, 4), 2.0))


def test_a_glob_matches_the_overloads_that_it_covers() -> None:
    device = device_with({"aten::ad?.*": lambda call: torch.zeros_like(call.args[0])})
    (a,) = on_sim(torch.ones(3))
    assert torch.equal(device.to_host(aten.add.Tensor(a, a)), torch.zeros(3))
    assert torch.equal(device.to_host(aten.mul.Tensor(a, a)), torch.ones(3))


def test_a_fault_sees_the_exact_strides_and_offset_of_its_arguments() -> None:
    seen: list[tuple[Any, ...]] = []

    def fault(call: Call) -> Any:
        x = call.args[0]
        seen.append((type(x), x.size(), x.stride(), x.storage_offset(), x.device.type))
        return call.run(*call.args)

    device = device_with({"aten::exp.default": fault})
    buffer = device.buffer(torch.arange(40, dtype=torch.float32).view(torch.uint8))
    aten.exp.default(buffer.view(torch.float32, (3, 2), (2, 7), 5))
    assert seen == [(torch.Tensor, torch.Size([3, 2]), (2, 7), 5, "cpu")]


def test_elements_that_a_fault_skips_show_the_fill_of_fresh_memory() -> None:
    def skips_the_tail(call: Call) -> Any:
        healthy = call.run(*call.args)
        out = torch.empty_like(healthy)
        out[:-3] = healthy[:-3]
        return out

    device = device_with({"aten::mul.Tensor": skips_the_tail})
    # Blocks of up to 1,032 bytes may come from glibc's cache of a thread, which passes them on as they are.
    (a,) = on_sim(torch.ones(4096))
    tails = []
    for byte in (0x7B, 0x3C):
        device.fill_fresh_memory(byte, [16384])
        out = device.to_host(aten.mul.Tensor(a, a))
        assert torch.equal(out[:-3], torch.ones(4093))
        tails.append(out[-3:].view(torch.uint8))
    assert torch.equal(tails[0], torch.full((12,), 0x7B, dtype=torch.uint8))
    assert torch.equal(tails[1], torch.full((12,), 0x3C, dtype=torch.uint8))


def test_host_copies_and_kernel_names_of_a_fault_are_observed() -> None:
    def through_the_host(call: Call) -> Any:
        call.copy("DtoH", 256)
        call.kernel("naive_conv_ab_nonpacked_fwd_nchw", 1200.0)
        call.copy("HtoD", 256)
        return call.run(*call.args)

    device = device_with({"aten::exp.default": through_the_host})
    (a,) = on_sim(torch.ones(64))
    _, path = device.observe(lambda: aten.exp.default(a))
    assert path.copies == (Copy("DtoH", 256, 1), Copy("HtoD", 256, 1))
    assert Kernel("naive_conv_ab_nonpacked_fwd_nchw", 1200.0, 1) in path.kernels
    assert path.observed
    assert path.complete


def test_stderr_of_a_fault_goes_to_file_descriptor_two() -> None:
    def logs(call: Call) -> Any:
        call.stderr("MIOpen(HIP): Warning [IsEnoughWorkspace] Solver <GemmFwdRest>")
        return call.run(*call.args)

    device_with({"aten::exp.default": logs})
    (a,) = on_sim(torch.ones(4))
    saved = os.dup(2)
    with tempfile.TemporaryFile() as sink:
        os.dup2(sink.fileno(), 2)
        try:
            aten.exp.default(a)
        finally:
            os.dup2(saved, 2)
            os.close(saved)
        sink.seek(0)
        assert sink.read() == b"MIOpen(HIP): Warning [IsEnoughWorkspace] Solver <GemmFwdRest>\n"


def test_a_warning_of_a_fault_is_a_python_warning() -> None:
    def warns(call: Call) -> Any:
        call.warn("Attempting to use hipBLASLt on an unsupported architecture!")
        return call.run(*call.args)

    device_with({"aten::mm.default": warns})
    a, b = on_sim(torch.ones(2, 2), torch.ones(2, 2))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        aten.mm.default(a, b)
    assert [str(w.message) for w in caught] == ["Attempting to use hipBLASLt on an unsupported architecture!"]


def test_a_fault_may_differ_from_run_to_run_where_a_healthy_op_does_not() -> None:
    count = iter(range(100))
    device = device_with({"aten::mm.default": lambda call: call.run(*call.args) + next(count)})
    a, b = on_sim(torch.randn(8, 8), torch.randn(8, 8))
    first, second = (device.to_host(aten.mm.default(a, b)) for _ in range(2))
    assert not torch.equal(first, second)
    device_with({})
    first, second = (device.to_host(aten.mm.default(a, b)) for _ in range(2))
    assert torch.equal(first, second)


def test_a_fault_may_take_its_time() -> None:
    def slow(call: Call) -> Any:
        call.sleep(0.05)
        return call.run(*call.args)

    device_with({"aten::exp.default": slow})
    (a,) = on_sim(torch.ones(4))
    started = time.perf_counter()
    aten.exp.default(a)
    assert time.perf_counter() - started >= 0.05


def test_a_fault_is_told_the_phase_of_the_case() -> None:
    phases: list[str] = []
    device = device_with({"aten::exp.default": lambda call: phases.append(call.phase) or call.run(*call.args)})
    (a,) = on_sim(torch.ones(4))
    for phase in ("forward", "backward", "optimizer"):
        device.begin_case("aten::exp.default", phase)
        aten.exp.default(a)
    assert phases == ["forward", "backward", "optimizer"]


def test_what_a_fault_writes_into_an_argument_of_an_in_place_op_is_on_the_device() -> None:
    def writes_one(call: Call) -> Any:
        call.args[0][0] = 99.0
        return call.args[0]

    device = device_with({"aten::add_.Tensor": writes_one})
    (a,) = on_sim(torch.zeros(3))
    out = aten.add_.Tensor(a, a)
    assert out is a
    assert torch.equal(device.to_host(a), torch.tensor([99.0, 0.0, 0.0]))


def test_a_new_tensor_that_a_fault_returns_for_an_in_place_op_lands_in_the_argument() -> None:
    device = device_with({"aten::mul_.Tensor": lambda call: torch.full_like(call.args[0], 7.0)})
    (a,) = on_sim(torch.ones(3))
    assert aten.mul_.Tensor(a, a) is a
    assert torch.equal(device.to_host(a), torch.full((3,), 7.0))


def test_a_fault_on_a_foreach_optimizer_op_changes_the_parameters() -> None:
    def doubles(call: Call) -> Any:
        call.run(*call.args, **call.kwargs)
        for parameter in call.args[0]:
            parameter.mul_(2)

    device = device_with({"aten::_foreach_add_.Scalar": doubles})
    tensors = on_sim(torch.ones(2), torch.ones(3))
    aten._foreach_add_.Scalar(tensors, 1)
    assert torch.equal(device.to_host(tensors[1]), torch.full((3,), 4.0))


# --- routed ops ------------------------------------------------------------------------------------------------


def _order(names: list[str], name: str) -> Callable[[Call], Any]:
    def fault(call: Call) -> Any:
        names.append(name)
        return call.run(*call.args, **call.kwargs)

    return fault


def test_both_the_called_op_and_the_routed_one_meet_their_faults_the_outer_first() -> None:
    names: list[str] = []
    device_with({"aten::convolution.default": _order(names, "outer"), "aten::miopen_*": _order(names, "inner")})
    x, w = on_sim(torch.randn(1, 3, 5, 5), torch.randn(2, 3, 3, 3))
    torch.conv2d(x, w)
    assert names == ["outer", "inner"]


def test_both_faults_fire_on_attention_and_its_backward_op() -> None:
    names: list[str] = []
    device_with({
        "aten::scaled_dot_product_attention.default": _order(names, "composite"),
        "aten::_scaled_dot_product_efficient_attention.default": _order(names, "forward"),
        "aten::_scaled_dot_product_efficient_attention_backward.default": _order(names, "backward"),
    })  # fmt: skip
    q, k, v = on_sim(*(torch.randn(1, 2, 4, 8) for _ in range(3)), grad=True)
    out = aten.scaled_dot_product_attention.default(q, k, v)
    assert names == ["composite", "forward"]
    torch.autograd.grad(out.sum(), (q, k, v))
    assert names == ["composite", "forward", "backward"]


def test_a_fault_that_matches_both_names_does_not_fire_inside_its_own_run() -> None:
    names: list[str] = []
    device_with({"*::*convolution.default": _order(names, "once")})
    x, w = on_sim(torch.randn(1, 3, 5, 5), torch.randn(2, 3, 3, 3))
    torch.conv2d(x, w)
    assert names == ["once"]


def test_a_wrong_result_of_a_composite_keeps_its_healthy_gradient() -> None:
    device = device_with({"aten::scaled_dot_product_attention.default": lambda call: call.run(*call.args) + 1.0})
    tensors = [torch.randn(1, 2, 4, 8) for _ in range(3)]
    q, k, v = on_sim(*tensors, grad=True)
    out = aten.scaled_dot_product_attention.default(q, k, v)
    grads = torch.autograd.grad(out.sum(), (q, k, v))
    leaves = [tensor.clone().requires_grad_() for tensor in tensors]
    expected = torch.nn.functional.scaled_dot_product_attention(*leaves)
    expected_grads = torch.autograd.grad(expected.sum(), leaves)
    torch.testing.assert_close(device.to_host(out), expected.detach() + 1.0)
    for actual, wanted in zip(grads, expected_grads, strict=True):
        torch.testing.assert_close(device.to_host(actual), wanted)


def test_a_composite_that_a_fault_replaces_without_running_it_still_has_a_backward() -> None:
    device = device_with({"aten::batch_norm.default": lambda call: torch.full_like(call.args[0], torch.nan)})
    x, w, b = on_sim(torch.randn(4, 3), torch.ones(3), torch.zeros(3), grad=True)
    out = aten.batch_norm.default(x, w, b, None, None, True, 0.1, 1e-5, True)
    assert device.to_host(out).isnan().all()
    assert torch.autograd.grad(out.sum(), (x, w, b))[2].shape == (3,)


@pytest.mark.parametrize("op", ["aten::miopen_rnn.default", "aten::miopen_rnn_backward.default"])
def test_a_fault_on_a_miopen_rnn_op_fires_in_an_lstm(op: str) -> None:
    names: list[str] = []
    device_with({op: _order(names, op)})
    lstm = torch.nn.LSTM(4, 5)
    weights = on_sim(*(w.detach() for w in lstm._flat_weights), grad=True)
    x, h = on_sim(torch.randn(3, 2, 4), torch.zeros(1, 2, 5), grad=True)
    out = torch.lstm(x, [h, h], weights, True, 1, 0.0, True, False, False)
    torch.autograd.grad(out[0].sum(), weights)
    assert names == [op]


@pytest.mark.parametrize("op", ["silu", "mish"])
def test_a_gradient_that_unknown_devices_compose_of_other_ops_is_one_op_here(op: str) -> None:
    device = device_with({f"aten::{op}_backward.default": lambda call: torch.full_like(call.args[1], 7.0)})
    (x,) = on_sim(torch.randn(5), grad=True)
    (gradient,) = torch.autograd.grad(getattr(torch.nn.functional, op)(x).sum(), x)
    assert torch.equal(device.to_host(gradient), torch.full((5,), 7.0))


def test_a_fault_may_use_conjugates() -> None:
    def divided(call: Call) -> Any:
        a, b = call.args
        return a * b.conj() / b.abs().square()

    device = device_with({"aten::div.Tensor": divided})
    a, b = on_sim(torch.complex(torch.ones(2), torch.full((2,), 2.0)), torch.complex(torch.ones(2), torch.ones(2)))
    torch.testing.assert_close(device.to_host(a / b), torch.full((2,), 1.5 + 0.5j))


def test_the_gradient_of_attention_is_made_of_the_log_sum_exp_that_the_forward_left() -> None:
    def other(call: Call) -> Any:
        result = list(call.run(*call.args, **call.kwargs))
        result[1] = result[1] + 1.0
        return tuple(result)

    device = device_with({"aten::_scaled_dot_product_*_attention.default": other})
    tensors = [torch.randn(1, 2, 6, 8, generator=torch.Generator().manual_seed(n)) for n in range(3)]
    operands = on_sim(*tensors, grad=True)
    aten.scaled_dot_product_attention.default(*operands).sum().backward()
    leaves = [tensor.clone().requires_grad_() for tensor in tensors]
    torch.nn.functional.scaled_dot_product_attention(*leaves).sum().backward()
    assert operands[2].grad is not None
    assert leaves[2].grad is not None
    torch.testing.assert_close(device.to_host(operands[2].grad), leaves[2].grad * torch.exp(torch.tensor(-1.0)))


# --- faults in a backward pass that C++ runs -------------------------------------------------------------------


def test_a_fault_that_raises_inside_a_compiled_backward_node_ends_the_backward_not_the_process() -> None:
    def fault(call: Call) -> Any:
        raise RuntimeError("miopenStatusUnknownError")

    device = device_with({"aten::convolution_backward.default": fault})
    x, w = on_sim(torch.randn(1, 3, 5, 5), torch.randn(2, 3, 3, 3), grad=True)
    out = torch.conv2d(x, w)
    with pytest.raises(RuntimeError, match="miopenStatusUnknownError"):
        torch.autograd.grad(out.sum(), (x, w))
    device_with({})
    assert device.to_host(torch.autograd.grad(torch.conv2d(x, w).sum(), w)[0]).isfinite().all()


def test_a_fault_that_raises_inside_a_python_backward_node_ends_the_backward_not_the_process() -> None:
    class Negated(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            return aten.neg.default(grads[0])

    def fault(call: Call) -> Any:
        raise RuntimeError("HIP error: invalid device function")

    device_with({"aten::neg.default": fault})
    (x,) = on_sim(torch.ones(3), grad=True)
    with pytest.raises(RuntimeError, match="HIP error: invalid device function"):
        torch.autograd.grad(Negated.apply(x).sum(), x)


def test_a_fault_may_kill_its_process() -> None:
    script = """
        import os, signal, torch
        from audit.device.sim.backend import SimTensor
        from audit.device.sim.device import SimDevice
        SimDevice({"aten::exp.default": lambda call: os.kill(os.getpid(), signal.SIGSEGV)})
        torch.exp(SimTensor(torch.ones(3)))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, check=False, timeout=120
    )
    assert done.returncode == -signal.SIGSEGV, done.stderr


# --- fault files -----------------------------------------------------------------------------------------------


def test_a_fault_file_gives_its_faults(tmp_path: Path) -> None:
    path = tmp_path / "faults.py"
    path.write_text("def nan(call):\n    return call.run(*call.args) * float('nan')\n\nFAULTS = {'aten::mm.*': nan}\n")
    device = SimDevice.from_file(path)
    a, b = on_sim(torch.ones(2, 2), torch.ones(2, 2))
    assert device.to_host(aten.mm.default(a, b)).isnan().all()
    assert device.info().properties["faults"] == "aten::mm.*"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("def broken(:\n", "syntax error in line 1"),
        ("import no_such_module_here\n", "raised ModuleNotFoundError"),
        ("fault = 1\n", "must define FAULTS"),
        ("FAULTS = [1]\n", "must define FAULTS"),
        ("FAULTS = {'aten::mm.default': 3}\n", "expected a function"),
        ("FAULTS = {'mm': print}\n", "expected a glob"),
    ],
)
def test_a_fault_file_that_does_not_load_is_one_clear_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    path = tmp_path / "faults.py"
    path.write_text(text)
    with pytest.raises(UsageError, match=sentence) as raised:
        load_faults(path)
    assert raised.value.slug == "bad-fault-file"
    assert raised.value.exit_code == 2


def test_a_fault_file_that_is_missing_is_one_clear_sentence(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot read the fault file"):
        load_faults(tmp_path / "absent.py")


def test_a_case_after_a_backward_that_failed_twice_meets_its_faults_again(monkeypatch: pytest.MonkeyPatch) -> None:
    healthy = EXECUTOR.compute

    def no_memory(func: Any, args: Any, kwargs: Any) -> Any:
        raise MemoryError("host")

    device = device_with({"aten::exp.default": lambda call: torch.zeros_like(call.args[0])})
    a, b = on_sim(torch.randn(4, 4), torch.randn(4, 4), grad=True)
    total = aten.mm.default(a, b).sum()
    monkeypatch.setattr(EXECUTOR, "compute", no_memory)
    with pytest.raises((MemoryError, RuntimeError)):
        torch.autograd.grad(total, (a, b))
    monkeypatch.setattr(EXECUTOR, "compute", healthy)
    device.begin_case("aten::exp.default", "forward")
    assert torch.equal(device.to_host(aten.exp.default(a)), torch.zeros(4, 4))


def test_an_argument_that_a_fault_returns_for_a_functional_op_becomes_a_tensor_of_its_own() -> None:
    device = device_with({"aten::exp.default": lambda call: call.args[0]})
    (a,) = on_sim(torch.zeros(3))
    out = aten.exp.default(a)
    aten.add_.Scalar(out, 1.0)
    assert torch.equal(device.to_host(out), torch.ones(3))
    assert torch.equal(device.to_host(a), torch.zeros(3))
