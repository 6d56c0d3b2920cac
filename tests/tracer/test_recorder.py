"""What one recorded call holds: overload, exact arguments, phase, module, source line, and how calls fold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode

from audit.schema import Case, Named, Source, TensorSpec, Trace
from audit.tracer.recorder import Recorder
from audit.tracer.values import ValueRecorder


def record(work: Callable[[], object]) -> Trace:
    recorder = Recorder(ValueRecorder())
    recorder.start()
    try:
        work()
    finally:
        recorder.stop()
    return recorder.build(Source("script", "test"), {})[0]


def only(trace: Trace, op: str) -> Case:
    [case] = [case for case in trace.cases if case.op == op]
    return case


def test_a_tensor_argument_keeps_sizes_strides_offset_extent_and_dtype() -> None:
    base = torch.randn(10, 8)
    view = base[2:6, ::2]
    trace = record(lambda: torch.exp(view))
    assert only(trace, "aten::exp.default").args == (
        TensorSpec(sizes=(4, 4), strides=(8, 2), dtype="float32", offset=16, extent=80),
    )


def test_what_the_program_switched_off_is_part_of_the_case_that_it_steers() -> None:
    query = torch.randn(1, 2, 4, 8)

    def attend() -> None:
        torch.nn.functional.scaled_dot_product_attention(query, query, query)
        with sdpa_kernel(SDPBackend.MATH):
            torch.nn.functional.scaled_dot_product_attention(query, query, query)
            torch.exp(query)

    trace = record(attend)
    free, steered = (case for case in trace.cases if case.op == "aten::scaled_dot_product_attention.default")
    assert free.settings == only(trace, "aten::exp.default").settings == ()
    assert steered.settings == (
        ("torch.backends.cuda.enable_flash_sdp", False),
        ("torch.backends.cuda.enable_mem_efficient_sdp", False),
        ("torch.backends.cuda.enable_cudnn_sdp", False),
    )
    assert free.key != steered.key


def test_operands_on_one_storage_share_its_number() -> None:
    base = torch.randn(6)
    trace = record(lambda: torch.add(base[:3], base[3:]))
    first, second = only(trace, "aten::add.Tensor").args
    assert isinstance(first, TensorSpec)
    assert isinstance(second, TensorSpec)
    assert (first.storage, second.storage, second.offset) == (0, 0, 3)


def test_operands_on_different_storages_do_not() -> None:
    a, b = torch.randn(3), torch.randn(3)
    first, second = only(record(lambda: torch.add(a, b)), "aten::add.Tensor").args
    assert isinstance(first, TensorSpec)
    assert isinstance(second, TensorSpec)
    assert (first.storage, second.storage) == (0, 1)


def test_one_and_one_point_zero_and_true_are_different_arguments() -> None:
    x = torch.ones(3)

    def work() -> None:
        for other in (1, 1.0, True, -0.0, 0.0, float("nan"), float("inf")):
            torch.mul(x, other)

    others = {repr(case.args[1]) for case in record(work).cases if case.op == "aten::mul.Tensor"}
    assert others == {"1", "1.0", "True", "-0.0", "0.0", "nan", "inf"}


def test_none_optional_lists_nested_lists_and_constants_survive() -> None:
    x = torch.randn(4, 5)
    index = torch.tensor([0, 3])
    trace = record(lambda: (x[:, index], x.to(torch.float16, memory_format=torch.preserve_format), torch.cat([x, x])))
    gather = only(trace, "aten::index.Tensor").args[1]
    assert isinstance(gather, tuple)
    assert gather[0] is None
    assert isinstance(gather[1], TensorSpec)
    assert Named("dtype", "float16") in dict(only(trace, "aten::_to_copy.default").kwargs).values()
    cat = only(trace, "aten::cat.default").args[0]
    assert isinstance(cat, tuple)
    assert [isinstance(item, TensorSpec) for item in cat] == [True, True]


def test_equal_calls_fold_into_one_case_and_are_counted() -> None:
    x = torch.randn(3)
    assert only(record(lambda: [x.sin() for _ in range(7)]), "aten::sin.default").n_calls == 7


def test_forward_backward_and_optimizer_are_told_apart() -> None:
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)

    def step() -> None:
        model(torch.ones(3, 4)).sum().backward()
        optimizer.step()

    phases = {case.op: case.phase for case in record(step).cases}
    assert phases["aten::addmm.default"] == "forward"
    assert phases["aten::mm.default"] == "backward"
    assert phases["aten::add_.Tensor"] == "optimizer"


def test_modules_and_source_lines_are_those_of_the_forward_in_backward_too() -> None:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.inner(x).tanh()

    block = Block()
    trace = record(lambda: block(torch.ones(2, 4)).sum().backward())
    assert only(trace, "aten::addmm.default").modules == ("Block.inner",)
    backward = only(trace, "aten::tanh_backward.default")
    assert backward.modules == ("Block",)
    assert backward.sources[0].endswith(f"test_recorder.py:{Block.forward.__code__.co_firstlineno + 1}")


def test_recomputed_forward_under_checkpointing_is_forward_work() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh())

    def step() -> None:
        x = torch.ones(2, 4, requires_grad=True)
        torch.utils.checkpoint.checkpoint(model, x, use_reentrant=False).sum().backward()

    tanh = [case for case in record(step).cases if case.op == "aten::tanh.default"]
    assert [(case.phase, case.n_calls) for case in tanh] == [("forward", 2)]


def test_accumulation_behind_a_composite_is_the_engines_own_and_is_recorded() -> None:
    q = torch.randn(1, 2, 4, 8, requires_grad=True)
    trace = record(lambda: nn.functional.scaled_dot_product_attention(q, q, q).sum().backward())
    attention = only(trace, "aten::scaled_dot_product_attention.default")
    assert attention.grads is not None
    assert [spec.requires_grad for spec in attention.args if isinstance(spec, TensorSpec)] == [True, True, True]
    assert only(trace, "aten::add.Tensor").n_calls == 2
    assert not [case for case in trace.cases if "flash" in case.op]


def test_a_composite_whose_backward_never_runs_is_forward_alone() -> None:
    q = torch.randn(1, 2, 4, 8, requires_grad=True)
    trace = record(lambda: nn.functional.scaled_dot_product_attention(q, q, q))
    assert only(trace, "aten::scaled_dot_product_attention.default").grads is None


def test_lengths_of_packed_sequences_stay_on_the_host_as_the_ops_demand() -> None:
    gru, padded = nn.GRU(4, 4), torch.randn(5, 2, 4, requires_grad=True)

    def step() -> None:
        packed = nn.utils.rnn.pack_padded_sequence(padded, torch.tensor([5, 3]))
        gru(packed)[0].data.sum().backward()

    trace = record(step)
    for op in ("aten::_pack_padded_sequence.default", "aten::gru.data"):
        assert [isinstance(arg, TensorSpec) and arg.host for arg in only(trace, op).args][:3] == [False, True, False]


def test_an_op_that_makes_a_sparse_nested_or_quantised_tensor_is_named_and_counted() -> None:
    bag, ids = nn.EmbeddingBag(5, 3, sparse=True), torch.tensor([[0, 1], [4, 4]])

    def step() -> None:
        torch.eye(3).to_sparse()
        torch.sparse_coo_tensor(torch.zeros(1, 2, dtype=torch.int64), torch.ones(2), (4,))
        torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
        torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.quint8)
        bag(ids).sum().backward()

    trace = record(step)
    reasons = {item.what: item.reason for item in trace.not_audited if item.reason.startswith("not strided result")}
    assert reasons == {
        "aten::_to_sparse.default": "not strided result (sparse)",
        "aten::_sparse_coo_tensor_with_dims_and_tensors.default": "not strided result (sparse)",
        "aten::_nested_tensor_from_tensor_list.default": "not strided result (nested)",
        "aten::quantize_per_tensor.default": "not strided result (quantised)",
        "aten::embedding_bag.padding_idx": "not strided result (sparse gradients)",
    }
    assert not reasons.keys() & {case.op for case in trace.cases}
    n_named = sum(item.n_calls for item in trace.not_audited)
    assert trace.n_recorded == n_named + sum(case.n_calls for case in trace.cases)


def test_a_sparse_argument_is_counted_and_named_not_dropped() -> None:
    sparse = torch.eye(3).to_sparse()
    trace = record(lambda: torch.sparse.mm(sparse, torch.ones(3, 2)))
    named = {item.what: item.reason for item in trace.not_audited}
    assert any("not strided tensor (sparse_coo)" in reason for reason in named.values())
    assert trace.n_recorded == sum(c.n_calls for c in trace.cases) + sum(i.n_calls for i in trace.not_audited)


def test_a_meta_tensor_is_named() -> None:
    trace = record(lambda: torch.ones(3, device="meta").sin())
    assert "meta tensor: it has no values and runs no kernel" in {item.reason for item in trace.not_audited}


def test_a_wrapper_subclass_runs_first_and_its_inner_ops_are_recorded() -> None:
    class Doubled(torch.Tensor):
        inner: torch.Tensor

        @staticmethod
        def __new__(cls, inner: torch.Tensor) -> Doubled:
            wrapper = torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)
            wrapper.inner = inner
            return wrapper

        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            plain = [arg.inner * 2 if isinstance(arg, Doubled) else arg for arg in args]
            return func(*plain, **(kwargs or {}))

    result: list[torch.Tensor] = []
    trace = record(lambda: result.append(torch.sin(Doubled(torch.ones(3)))))
    assert torch.equal(result[0], torch.sin(torch.ones(3) * 2))
    assert {"aten::mul.Tensor", "aten::sin.default"} <= {case.op for case in trace.cases}


def test_ops_on_threads_that_the_program_starts_are_recorded() -> None:
    import threading
    from concurrent.futures import ThreadPoolExecutor

    class Worker(threading.Thread):
        def run(self) -> None:
            self.result = nn.functional.dropout(torch.ones(100), 0.5)
            torch.ones(3).cos()

    worker = Worker()

    def work() -> None:
        worker.start()
        worker.join()
        with ThreadPoolExecutor(1) as pool:
            pool.submit(torch.zeros, 3).result()
        torch.ones(3).sin()

    trace = record(work)
    assert {case.op for case in trace.cases} == {
        "aten::ones.default", "aten::sin.default", "aten::dropout.default", "aten::cos.default", "aten::zeros.default"
    }  # fmt: skip
    assert trace.n_recorded == sum(c.n_calls for c in trace.cases) + sum(i.n_calls for i in trace.not_audited)
    assert set(worker.result.unique().tolist()) == {0.0, 2.0}
    assert threading.Thread.start.__module__ == "threading"


def test_keys_depend_on_what_was_called_and_on_nothing_else() -> None:
    x = torch.arange(6.0).reshape(2, 3)
    keys = [only(record(lambda: torch.sin(x)), "aten::sin.default").key for _ in range(2)]
    assert keys[0] == keys[1]
    assert only(record(lambda: torch.sin(x.t())), "aten::sin.default").key != keys[0]


@pytest.mark.parametrize(
    "op", ["mkldnn_convolution", "cudnn_batch_norm", "_scaled_dot_product_flash_attention_for_cpu"]
)
def test_an_op_that_only_one_device_has_is_recognised(op: str) -> None:
    from audit.tracer.composites import is_vendor_op

    assert is_vendor_op(f"aten::{op}.default")


def test_a_device_specific_op_is_named_and_the_rest_is_audited() -> None:
    q = torch.randn(1, 1, 4, 8)
    trace = record(lambda: torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, q, q)[0].sin())
    [item] = trace.not_audited
    assert item.what == "aten::_scaled_dot_product_flash_attention_for_cpu.default"
    assert item.reason == "only this machine's device has this op, and another would run something else"
    assert item.missed
    assert [case.op for case in trace.cases] == ["aten::sin.default"]


def test_parts_of_a_composite_under_a_transform_are_named_without_blame() -> None:
    q = torch.randn(3, 1, 2, 4, 8)

    def attention(a: torch.Tensor) -> torch.Tensor:
        return nn.functional.scaled_dot_product_attention(a, a, a)

    trace = record(lambda: torch.func.vmap(torch.func.grad(lambda a: attention(a).sum()))(q))
    assert {item.what.partition("(")[0] for item in trace.not_audited} == {
        "aten::_scaled_dot_product_flash_attention_for_cpu.default",
        "aten::_scaled_dot_product_flash_attention_for_cpu_backward.default",
    }
    assert not any(item.missed for item in trace.not_audited)
    assert all(item.reason.startswith("under torch.func: ") for item in trace.not_audited)


def test_backward_of_what_a_transform_ran_is_named_without_blame() -> None:
    q = torch.randn(3, 1, 2, 4, 8, requires_grad=True)

    def attention(a: torch.Tensor) -> torch.Tensor:
        return nn.functional.scaled_dot_product_attention(a, a, a)

    def work() -> None:
        torch.func.vmap(attention)(q).sum().backward()
        torch.func.grad(lambda a: (attention(q[0]) * a).sum())(q[1]).sum().backward()

    trace = record(work)
    assert {item.what for item in trace.not_audited} == {
        "aten::_scaled_dot_product_flash_attention_for_cpu.default",
        "aten::_scaled_dot_product_flash_attention_for_cpu_backward.default",
    }
    assert not any(item.missed for item in trace.not_audited)


def test_composites_under_a_gradient_transform_are_recorded_whole_with_their_backward() -> None:
    lstm = nn.LSTM(4, 5)
    parameters = {name: p.detach() for name, p in lstm.named_parameters()}

    def loss(parameters: dict[str, torch.Tensor], q: torch.Tensor) -> torch.Tensor:
        attended = nn.functional.scaled_dot_product_attention(q, q, q)
        return torch.func.functional_call(lstm, parameters, (attended[0],))[0].sum()

    q = torch.randn(1, 3, 2, 4)
    trace = record(lambda: torch.func.grad(loss)(parameters, q))
    recurrent = only(trace, "aten::lstm.input")
    assert recurrent.grads is not None
    assert recurrent.grads[0] is not None
    assert recurrent.grads[0].sizes == (3, 2, 5)
    weights = recurrent.args[2]
    assert isinstance(weights, tuple)
    assert [isinstance(weight, TensorSpec) and weight.requires_grad for weight in weights] == [True] * 4
    assert recurrent.values[0].n_sampled == 1
    assert only(trace, "aten::scaled_dot_product_attention.default").grads is None
    assert not [item for item in trace.not_audited if item.computes]


def test_a_jacobian_runs_one_forward_and_many_backwards_which_are_recorded_apart() -> None:
    x = torch.randn(4, 8)
    trace = record(lambda: torch.func.jacrev(lambda a: nn.functional.layer_norm(a, (8,)).sum(0))(x))
    norm = only(trace, "aten::layer_norm.default")
    assert norm.grads is None
    assert only(trace, "aten::native_layer_norm_backward.default").phase == "backward"


def test_a_composite_takes_the_path_that_it_takes_without_a_tracer() -> None:
    """ctc_loss asks whether a dispatch mode is there and goes by ``_ctc_loss.Tensor``, with another node, under one."""
    labels, lengths = torch.tensor([[1, 2], [2, 3]]), torch.tensor([6, 6])

    def node_names() -> list[str]:
        log_probs = torch.randn(6, 2, 4, requires_grad=True).log_softmax(-1)
        loss = nn.functional.ctc_loss(log_probs, labels, lengths, torch.tensor([2, 2]), reduction="none")
        names, node = [], loss.grad_fn
        while node is not None:
            names.append(node.name())
            node = node.next_functions[0][0] if node.next_functions else None
        return names

    untraced = node_names()
    recorder = Recorder(None)
    recorder.start()
    traced = node_names()
    recorder.stop()
    assert "CtcLossBackward0" in untraced
    assert traced == untraced


def test_a_custom_op_is_named_and_runs() -> None:
    with torch.library._scoped_library("audit_test", "FRAGMENT") as library:
        library.define("twice(Tensor x) -> Tensor")
        library.impl("twice", lambda x: x * 2, "CompositeExplicitAutograd")
        trace = record(lambda: torch.ops.audit_test.twice(torch.ones(2)))
    assert [item.what for item in trace.not_audited] == ["audit_test::twice.default"]
    assert trace.not_audited[0].reason.startswith("custom op: its code is not in the trace")
    assert {case.op for case in trace.cases} == {"aten::ones.default", "aten::mul.Tensor"}


def test_fake_tensors_are_named_and_work_as_they_do_untraced() -> None:
    def work() -> None:
        with FakeTensorMode():
            out = nn.LayerNorm(4)(nn.Linear(3, 4)(torch.randn(2, 3)))
            out.sum().backward()
        assert out.shape == (2, 4)

    trace = record(work)
    assert trace.cases == ()
    reasons = {item.reason for item in trace.not_audited}
    assert reasons <= {"fake tensor: shapes alone, runs no kernel", "meta tensor: it has no values and runs no kernel"}


def test_making_a_tensor_on_the_meta_device_is_no_case() -> None:
    trace = record(lambda: torch.empty(1 << 40, device="meta"))
    assert trace.cases == ()
    assert [item.what for item in trace.not_audited] == ["aten::empty.memory_format"]


def test_a_graph_that_the_program_captures_holds_none_of_the_tracers_ops() -> None:
    x = torch.randn(2, 3)
    graphs = []

    def work() -> None:
        graphs.append(make_fx(lambda a: nn.functional.layer_norm(a, (3,)))(x))

    work()
    record(work)
    untraced, traced = ([str(node.target) for node in graph.graph.nodes] for graph in graphs)
    assert traced == untraced


def test_the_programs_own_dispatch_mode_sees_the_ops_that_it_sees_untraced() -> None:
    class Counting(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen[-1].append(str(func))
            return func(*args, **(kwargs or {}))

    seen: list[list[str]] = []

    def work() -> None:
        x = torch.randn(2, 3, requires_grad=True)
        seen.append([])
        with Counting():
            nn.functional.layer_norm(x, (3,)).sum().backward()

    work()
    record(work)
    assert seen[0] == seen[1] != []


def test_transforms_of_torch_func_work_and_their_inner_ops_are_recorded() -> None:
    x = torch.randn(5, 3)

    def work() -> None:
        per_sample = torch.func.vmap(torch.func.grad(lambda a: nn.functional.layer_norm(a, (3,)).pow(2).sum()))(x)
        assert per_sample.shape == (5, 3)
        assert torch.equal(torch.func.jacrev(lambda a: 2 * a)(x[0]), 2 * torch.eye(3))

    assert "aten::native_layer_norm.default" in {case.op for case in record(work).cases}


def test_a_tensor_whose_memory_was_freed_is_named() -> None:
    x = torch.randn(4)
    x.untyped_storage().resize_(0)
    [item] = record(lambda: x.view(2, 2)).not_audited
    assert item.reason == "tensor without memory: zeros by definition, or freed by the program"
