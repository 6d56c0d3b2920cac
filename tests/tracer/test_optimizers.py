"""The default form of an optimizer in a trace that is to be replayed on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from audit.schema import DeviceInfo, Source
from audit.tracer.optimizers import chosen_as_on_gpu
from audit.tracer.recorder import Recorder
from audit.tracer.redirect import GPU_NAMED, cuda_redirected_to_cpu

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="nothing is chosen for a GPU where there is one")

SAME_BITS: list[tuple[str, dict[str, Any]]] = [
    ("SGD", {"lr": 0.1}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01}),
    ("SGD", {"lr": torch.tensor(0.1), "momentum": 0.9, "dampening": 0.1, "maximize": True, "nesterov": False}),
    ("Adam", {"amsgrad": True, "weight_decay": 0.1}),
    ("Adam", {"lr": torch.tensor(0.01), "maximize": True}),
    ("AdamW", {"betas": (0.5, 0.9), "eps": 1e-3}),
    ("Adagrad", {"lr_decay": 0.1, "weight_decay": 0.1, "initial_accumulator_value": 0.1}),
    ("RMSprop", {"momentum": 0.9, "centered": True, "weight_decay": 0.1}),
    ("Adadelta", {"weight_decay": 0.1, "rho": 0.8, "maximize": True}),
    ("Rprop", {"etas": (0.4, 1.3)}),
    ("NAdam", {"weight_decay": 0.1}),
    ("RAdam", {}),
    ("ASGD", {}),
    ("Adamax", {"lr": torch.tensor(0.01)}),
]


def trained(
    kind: str, options: dict[str, Any], dtype: torch.dtype = torch.float32, device: str = "cpu"
) -> list[torch.Tensor]:
    """Parameters and state after eight steps on fixed gradients."""
    source = torch.Generator().manual_seed(0)
    sizes = (5, 7), (9,), (), (33,)
    parameters = [torch.nn.Parameter(torch.randn(size, generator=source).to(device, dtype)) for size in sizes]
    copies = {name: value.clone() if isinstance(value, torch.Tensor) else value for name, value in options.items()}
    optimizer = getattr(torch.optim, kind)(parameters, **copies)
    for _ in range(8):
        for parameter in parameters:
            parameter.grad = torch.randn(parameter.shape, generator=source).to(device, dtype)
        optimizer.step()
    state = [value for kept in optimizer.state.values() for value in kept.values() if isinstance(value, torch.Tensor)]
    return [*(parameter.detach() for parameter in parameters), *state]


def traced(step: Callable[[], Any]) -> tuple[Any, set[str], list[str]]:
    """What ``step`` returns in a portable trace, the optimizer's ops, and the notes."""
    recorder, notes = Recorder(None), []
    gpu = DeviceInfo("none", "AMD Instinct MI300X", "gfx942", {})
    with cuda_redirected_to_cpu(gpu), chosen_as_on_gpu(GPU_NAMED.is_set, notes.append):
        recorder.start()
        try:
            result = step()
        finally:
            recorder.stop()
    cases = recorder.build(Source("script", "test"), {})[0].cases
    return result, {case.op for case in cases if case.phase == "optimizer"}, notes


def is_foreach(ops: set[str]) -> bool:
    return any(op.startswith("aten::_foreach_") for op in ops)


@pytest.mark.parametrize(("kind", "options"), SAME_BITS, ids=[f"{kind}-{list(o)}" for kind, o in SAME_BITS])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_a_program_that_names_no_gpu_trains_to_the_same_bits(
    kind: str, options: dict[str, Any], dtype: torch.dtype
) -> None:
    expected = trained(kind, options, dtype)
    seen, _, _ = traced(lambda: trained(kind, options, dtype))
    assert all(torch.equal(a, b) for a, b in zip(seen, expected, strict=True))


def test_the_default_is_the_gpus_where_the_bits_agree() -> None:
    _, ops, notes = traced(lambda: trained("AdamW", {}))
    assert is_foreach(ops)
    assert notes == []


def test_a_loop_that_has_to_stay_is_told_once() -> None:
    _, ops, notes = traced(lambda: [trained("NAdam", {}), trained("NAdam", {})])
    assert not is_foreach(ops)
    assert notes == ["nadam ran its loop over the parameters: on a GPU it would run _foreach_ ops by default"]


@pytest.mark.parametrize("kind", ["NAdam", "RAdam", "ASGD", "Adamax", "AdamW"])
def test_parameters_on_the_gpu_get_the_gpus_form(kind: str) -> None:
    _, ops, notes = traced(lambda: trained(kind, {}, torch.bfloat16, "cuda"))
    assert is_foreach(ops)
    assert notes == []


def test_parameters_that_a_program_with_a_gpu_keeps_on_the_host_are_stepped_by_a_loop() -> None:
    recorder = Recorder(None)
    gpu = DeviceInfo("none", "AMD Instinct MI300X", "gfx942", {})
    with cuda_redirected_to_cpu(gpu), chosen_as_on_gpu(GPU_NAMED.is_set, [].append):
        recorder.start()
        try:
            torch.ones(1).cuda()
            trained("AdamW", {})
        finally:
            recorder.stop()
    named = {item.what for item in recorder.build(Source("script", "test"), {})[0].not_audited}
    assert "aten::addcdiv_.default" in named
    assert not is_foreach(named)


@pytest.mark.parametrize("options", [{"foreach": False}, {"fused": True}, {"fused": True, "lr": torch.tensor(0.01)}])
def test_what_the_program_asked_for_stays(options: dict[str, Any]) -> None:
    _, ops, _ = traced(lambda: trained("AdamW", options, device="cuda"))
    assert not is_foreach(ops - {"aten::_foreach_add_.Tensor", "aten::_foreach_add_.Scalar"})
    assert ("aten::_fused_adamw_.default" in ops or "aten::_fused_adamw_.tensor_lr" in ops) == ("fused" in options)


def test_a_capturable_optimizer_steps_where_the_cpu_stands_for_the_gpu() -> None:
    _, ops, _ = traced(lambda: trained("AdamW", {"capturable": True}, device="cuda"))
    assert "aten::_foreach_pow.ScalarAndTensor" in ops
    with pytest.raises((AssertionError, RuntimeError), match="capturable"):
        traced(lambda: trained("AdamW", {"capturable": True}))


def test_what_a_program_that_names_a_gpu_trains_on_the_cpu_keeps_its_loop() -> None:
    recorder = Recorder(None)
    gpu = DeviceInfo("none", "AMD Instinct MI300X", "gfx942", {})
    with cuda_redirected_to_cpu(gpu), chosen_as_on_gpu(GPU_NAMED.is_set, print):
        recorder.start()
        torch.ones(1).cuda()
        trained("AdamW", {})
        recorder.stop()
    trace, _ = recorder.build(Source("script", "test"), {})
    on_cpu = {item.what for item in trace.not_audited if item.reason == "ran on the CPU in the program"}
    assert "aten::addcdiv_.default" in on_cpu
    assert not is_foreach(on_cpu)


def test_averaged_weights_are_averaged_by_list_ops() -> None:
    def average() -> None:
        model = torch.nn.Linear(3, 3).cuda()
        averaged = torch.optim.swa_utils.AveragedModel(model)
        for _ in range(2):
            averaged.update_parameters(model)

    recorded: list[str] = []
    recorder = Recorder(None)
    gpu = DeviceInfo("none", "AMD Instinct MI300X", "gfx942", {})
    with cuda_redirected_to_cpu(gpu), chosen_as_on_gpu(GPU_NAMED.is_set, recorded.append):
        recorder.start()
        try:
            average()
        finally:
            recorder.stop()
    assert is_foreach({case.op for case in recorder.build(Source("script", "test"), {})[0].cases})


def test_everything_is_as_it_was_afterwards() -> None:
    traced(lambda: torch.ones(1).cuda())
    recorder = Recorder(None)
    recorder.start()
    try:
        trained("AdamW", {})
    finally:
        recorder.stop()
    assert not any("_foreach_" in case.op for case in recorder.build(Source("script", "test"), {})[0].cases)
