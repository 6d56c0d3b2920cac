"""The program under the tracer computes what it computes without, bit for bit, and every call is accounted for."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from audit.schema import Source, Trace
from audit.tracer.composites import is_vendor_op
from audit.tracer.ledger import Ledger
from audit.tracer.recorder import Recorder
from audit.tracer.recording import Recording
from audit.tracer.values import ValueRecorder
from tests.architectures import ARCHITECTURES, Step, encoder_fast_path, gru_packed, lstm_ctc, seeded, vit_inference
from tests.tracer.invariant import check


def record(step: Step) -> tuple[list[torch.Tensor], Trace, Recorder]:
    recorder = Recorder(ValueRecorder())
    recorder.start()
    try:
        results = list(seeded(step))
    finally:
        recorder.stop()
    return results, recorder.build(Source("script", step.__name__), {})[0], recorder


@pytest.mark.parametrize("step", ARCHITECTURES, ids=lambda step: step.__name__)
def test_outputs_gradients_weights_and_rng_state_are_bitwise_those_of_an_untraced_run(step: Step) -> None:
    trace = check(step)
    assert trace.n_recorded > 20
    assert not [case.op for case in trace.cases if is_vendor_op(case.op)]
    assert {item.reason for item in trace.not_audited} <= {"annotation for profilers: computes nothing"}


def test_a_kernel_that_conjugates_inside_keeps_its_result() -> None:
    x = torch.complex(torch.arange(6.0).reshape(3, 2).cos(), torch.arange(6.0).reshape(3, 2).sin())
    assert [case.op for case in check(lambda: torch.linalg.pinv(x)).cases] == ["aten::linalg_pinv.atol_rtol_tensor"]


def test_a_tracer_that_changes_an_output_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    dispatch = Recording.__torch_dispatch__

    def perturbed(self: Recording, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        output = dispatch(self, func, types, args, kwargs)
        return output + 1 if func is torch.ops.aten.relu.default else output

    monkeypatch.setattr(Recording, "__torch_dispatch__", perturbed)
    x = torch.randn(3)
    with pytest.raises(AssertionError, match="result differs"):
        check(lambda: torch.relu(x))


def test_a_tracer_that_draws_a_random_number_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    dispatch = Recording.__torch_dispatch__

    def drawing(self: Recording, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        torch.rand(1)
        return dispatch(self, func, types, args, kwargs)

    monkeypatch.setattr(Recording, "__torch_dispatch__", drawing)
    x = torch.randn(3)
    with pytest.raises(AssertionError, match="torch's random state differs"):
        check(lambda: torch.relu(x))


def test_a_tracer_that_loses_a_call_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    cases = Ledger.cases
    monkeypatch.setattr(Ledger, "cases", lambda self, audited: cases(self, audited[1:]))
    with pytest.raises(AssertionError, match="3 calls were recorded, 2 are in cases and 0 are named"):
        check(lambda: torch.ones(3).sin().cos())


def test_a_gradient_that_a_tracer_leaves_behind_is_caught() -> None:
    class Accumulating(Recorder):
        def stop(self) -> None:
            super().stop()
            for p in models[-1].parameters():
                p.grad = torch.zeros_like(p)

    models: list[torch.nn.Module] = []

    def program() -> torch.nn.Module:
        models.append(torch.nn.Linear(2, 2))
        return models[-1]

    with pytest.raises(AssertionError, match=r"result\.weight\.grad"):
        check(program, lambda: Accumulating(None))


def test_a_program_that_fails_must_be_expected_to_fail() -> None:
    def program() -> None:
        torch.ones(2) @ torch.ones(3)

    with pytest.raises(RuntimeError, match="size"):
        check(program)
    assert check(program, fails=True).n_recorded > 0


def ops(trace: Trace) -> set[str]:
    return {case.op for case in trace.cases}


def test_device_choosing_ops_are_recorded_as_the_composite_with_its_backward() -> None:
    trace = record(lstm_ctc)[1]
    [lstm] = [case for case in trace.cases if case.op == "aten::lstm.input"]
    assert lstm.grads is not None
    assert [grad is not None for grad in lstm.grads] == [True, False, False]
    assert lstm.grads[0] is not None
    assert lstm.grads[0].sizes == (2, 20, 32)
    assert {"aten::ctc_loss.IntList", "aten::ctc_loss.Tensor"} & ops(trace)
    assert not any("mkldnn" in op or "_ctc_loss" in op for op in ops(trace))


def test_a_packed_sequence_reaches_the_gru_as_data_and_batch_sizes() -> None:
    [gru] = [case for case in record(gru_packed)[1].cases if case.op == "aten::gru.data"]
    assert gru.grads is not None
    batch_sizes = gru.args[1]
    assert getattr(batch_sizes, "dtype", None) == "int64"


def test_the_encoder_fast_path_stays_in_place() -> None:
    assert "aten::_transformer_encoder_layer_fwd.default" in ops(record(encoder_fast_path)[1])


def test_inference_mode_no_grad_and_grad_lead_to_the_same_forward_ops() -> None:
    def with_no_grad() -> list[torch.Tensor]:
        with torch.no_grad():
            return vit_forward()

    def with_grad() -> list[torch.Tensor]:
        return [out.detach() for out in vit_forward()]

    def with_inference_mode() -> list[torch.Tensor]:
        with torch.inference_mode():
            return [out.clone() for out in vit_forward()]

    seen = [
        {case.op for case in record(step)[1].cases if case.modules}
        for step in (with_no_grad, with_grad, with_inference_mode)
    ]
    assert "aten::scaled_dot_product_attention.default" in seen[0]
    # Views of inference tensors are made without the version-counting detach that autograd adds.
    assert (
        seen[0] - {"aten::detach.default"} == seen[1] - {"aten::detach.default"} == seen[2] - {"aten::detach.default"}
    )
    assert not [case.op for case in record(vit_inference)[1].cases if is_vendor_op(case.op)]


def vit_forward() -> list[torch.Tensor]:
    import transformers

    config = transformers.ViTConfig(
        image_size=32, patch_size=8, hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64
    )
    return [transformers.ViTForImageClassification(config).eval()(torch.randn(2, 3, 32, 32)).logits]


def test_a_linear_of_a_transposed_input_takes_the_same_path_in_inference_mode() -> None:
    linear, lstm = torch.nn.Linear(8, 24), torch.nn.LSTM(8, 8)
    x = torch.randn(2, 3, 8).transpose(0, 1)

    def step() -> list[torch.Tensor]:
        with torch.inference_mode():
            return [linear(x), lstm(x)[0]]

    untraced = list(seeded(step))
    traced, trace, _ = record(step)
    assert all(torch.equal(a, b) for a, b in zip(traced, untraced, strict=True))
    assert "aten::mm.default" in ops(trace)
    assert "aten::bmm.default" not in ops(trace)
