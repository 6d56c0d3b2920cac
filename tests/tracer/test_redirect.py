"""Programs that name ``cuda`` on a machine without a GPU find torch as it is otherwise."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from audit.codec import tensors_of
from audit.schema import Case, Copy, DeviceInfo, Named, Source, Trace
from audit.tracer import virtual_gpu
from audit.tracer.cuda_answers import capability
from audit.tracer.recorder import Recorder
from audit.tracer.redirect import cuda_redirected_to_cpu
from audit.tracer.shapes_only import ShapesOnly

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="nothing is redirected where there is a GPU")


@pytest.fixture(autouse=True)
def redirected() -> Iterator[None]:
    facts = {"total_memory_bytes": str(192 << 30), "compute_units": "304"}
    with cuda_redirected_to_cpu(DeviceInfo("none", "AMD Instinct MI300X", "gfx942", facts)):
        yield


def test_a_model_made_on_the_meta_device_takes_no_memory() -> None:
    with torch.device("meta"):
        model = torch.nn.Linear(1 << 20, 1 << 20)
        assert torch.zeros(3).is_meta
    assert model.weight.is_meta


def test_a_block_of_the_cuda_device_makes_tensors_there() -> None:
    with torch.device("cuda:0"):
        assert torch.ones(2).is_cuda
        assert not torch.ones(2, device="cpu").is_cuda


def test_torchscript_compiles_the_functions_that_are_redirected() -> None:
    def ramp(n: int) -> torch.Tensor:
        return torch.arange(n) + torch.zeros(n)

    assert torch.jit.script(ramp)(3).tolist() == [0.0, 1.0, 2.0]


def test_forward_mode_derivatives_work() -> None:
    assert torch.func.jacfwd(lambda x: x * x)(torch.tensor(3.0)).item() == 6.0


def test_a_generator_is_an_instance_of_its_class() -> None:
    assert isinstance(torch.Generator("cuda"), torch.Generator)
    assert isinstance(torch.default_generator, torch.Generator)
    assert not isinstance(3, torch.Generator)


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.ones(2).to(0),
        lambda: torch.ones(2, device=0),
        lambda: torch.empty(2, pin_memory=True).fill_(1.0).cuda(),
        lambda: torch.ones(2, dtype=torch.float64).type("torch.cuda.FloatTensor"),
        lambda: torch.cuda.FloatTensor([1.0, 1.0]),
        lambda: torch.tensor([1.0, 1.0], device="cuda:0"),
        lambda: torch.tensor([1.0, 1.0]).to("cuda", non_blocking=True),
        lambda: torch.ones(2).to(torch.ones(1, device="cuda")),
        lambda: torch.ones(2).to(device="cuda", dtype=torch.float32, copy=True),
        lambda: torch.as_tensor([1.0, 1.0], device="cuda"),
        lambda: torch.ones(1, device="cuda").new_tensor([1.0, 1.0]),
        lambda: torch.ones(1, device="cuda").new_ones(2),
        lambda: torch.ones(4, device="cuda")[::2].detach(),
        lambda: copy.deepcopy(torch.ones(2, device="cuda")),
        lambda: torch.nn.Parameter(torch.ones(2).cuda()).data,
    ],
)
def test_every_way_to_name_a_gpu_gives_a_tensor_there(make: Callable[[], torch.Tensor]) -> None:
    tensor = make()
    assert (tensor.device, tensor.get_device()) == (torch.device("cuda:0"), 0)
    assert (tensor.is_cuda, tensor.is_cpu) == (True, False)
    assert (tensor.dtype, tensor.tolist()) == (torch.float32, [1.0, 1.0])


def test_what_training_scripts_ask_of_torch_cuda_is_answered() -> None:
    torch.cuda.set_rng_state(torch.cuda.get_rng_state())
    torch.cuda.set_rng_state_all(torch.cuda.get_rng_state_all())
    torch.cuda.nvtx.range_push("step")
    torch.cuda.nvtx.range_pop()
    torch.ones(2).record_stream(torch.cuda.current_stream())
    assert not torch.cuda.is_current_stream_capturing()
    assert torch.cuda.memory_summary() == ""


def test_the_switches_of_cudnn_work_and_are_put_back() -> None:
    with torch.backends.cudnn.flags(enabled=False, benchmark=True, benchmark_limit=3):
        assert not torch.backends.cudnn.enabled
        assert torch._C._cuda_get_cudnn_benchmark_limit() == 3
    assert torch.backends.cudnn.enabled
    assert torch._C._cuda_get_cudnn_benchmark_limit() == 10


def test_a_data_parallel_module_runs() -> None:
    model = torch.nn.DataParallel(torch.nn.Linear(3, 2).cuda(), device_ids=[0])
    assert model(torch.ones(4, 3)).shape == (4, 2)
    assert torch.nn.Linear(3, 2).to(0).weight.is_cuda


def test_the_accelerator_module_tells_the_same_story_without_asking_the_driver() -> None:
    assert torch.accelerator.is_available()
    assert torch.accelerator.current_accelerator() == torch.device("cuda")
    assert torch.accelerator.current_stream().is_capturing() is False
    torch.accelerator.synchronize()
    assert torch.ones(2, device=torch.accelerator.current_accelerator()).is_cuda


def test_an_optimizer_steps_on_any_build_of_torch() -> None:
    model = torch.nn.Linear(2, 2).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(1, 2, device="cuda")).sum().backward()
    before = model.weight.detach().clone()
    optimizer.step()
    assert not torch.equal(model.weight, before)


# --- where a tensor is -----------------------------------------------------------------------------------------------


def test_moving_between_the_devices_copies_and_staying_does_not() -> None:
    here = torch.zeros(2)
    there = here.cuda()
    there += 1
    back = there.cpu()
    back += 1
    assert (here.tolist(), there.tolist(), back.tolist()) == ([0.0, 0.0], [1.0, 1.0], [2.0, 2.0])
    assert (here.is_cuda, there.is_cuda, back.is_cuda) == (False, True, False)
    assert there.cuda() is there
    assert there.to("cuda:0", torch.float32) is there
    assert here.cpu() is here


def test_a_module_goes_there_and_back_with_its_buffers() -> None:
    model = torch.nn.BatchNorm1d(2).cuda()
    assert {tensor.device.type for tensor in model.state_dict().values()} == {"cuda"}
    assert {tensor.device.type for tensor in model.cpu().state_dict().values()} == {"cpu"}


def test_a_checkpoint_is_loaded_to_where_it_is_sent(tmp_path: Path) -> None:
    torch.save({"w": torch.ones(2)}, tmp_path / "c.pt")
    assert torch.load(tmp_path / "c.pt", map_location="cuda")["w"].is_cuda
    assert torch.load(tmp_path / "c.pt", map_location={"cpu": "cuda:0"})["w"].is_cuda
    assert not torch.load(tmp_path / "c.pt")["w"].is_cuda
    assert not torch.load(tmp_path / "c.pt", map_location="cpu")["w"].is_cuda


def test_a_default_device_is_kept_and_told() -> None:
    torch.set_default_device("cuda")
    try:
        assert torch.ones(2).is_cuda
        assert not torch.ones(2, device="cpu").is_cuda
    finally:
        torch.set_default_device(None)
    assert not torch.ones(2).is_cuda


def test_the_wrappers_of_function_transforms_know_where_their_tensor_is() -> None:
    seen = []

    def look(x: torch.Tensor) -> torch.Tensor:
        seen.append(x.device.type)
        return (x * x).sum()

    torch.func.vmap(torch.func.grad(look))(torch.ones(3, 2, device="cuda"))
    torch.func.grad(look)(torch.ones(2))
    assert seen == ["cuda", "cpu"]


def test_meta_and_sparse_tensors_say_where_they_are() -> None:
    assert torch.ones(2, device="meta").device.type == "meta"
    assert torch.nn.Linear(2, 2, device="meta").to_empty(device="cuda").weight.is_cuda
    assert torch.sparse_coo_tensor([[0, 1]], [1.0, 1.0], device="cuda", check_invariants=True).is_cuda


# --- what is recorded ------------------------------------------------------------------------------------------------


def traced(program: Callable[[], Any], shapes: ShapesOnly | None = None) -> Trace:
    recorder = Recorder(None, shapes)
    recorder.start()
    try:
        program()
    finally:
        recorder.stop()
    return recorder.build(Source("script", "p"), {})[0]


def step() -> None:
    data = torch.rand(4, 3) - 0.5  # prepared on the CPU
    model = torch.nn.Linear(3, 2).to("cuda")
    loss = model(data.to("cuda")).square().mean()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    torch.optim.AdamW(model.parameters()).step()
    assert model.weight.grad is not None
    assert model.weight.grad.is_cuda
    assert loss.is_cuda


def hosts(case: Case) -> list[bool]:
    return [spec.host for spec in tensors_of(case.args, case.kwargs, case.grads)]


@pytest.mark.parametrize("fake", [False, True])
def test_device_ops_are_told_from_what_runs_on_the_cpu(fake: bool) -> None:
    shapes = ShapesOnly() if fake else None
    if shapes is None:
        trace = traced(step)
    else:
        with shapes.tracing():
            trace = traced(step, shapes)
    ops = {case.op for case in trace.cases}
    on_cpu = {item.what for item in trace.not_audited if item.reason == "ran on the CPU in the program"}
    assert not any(item.computes for item in trace.not_audited if item.what in on_cpu)  # no alarm in the headline
    assert {"aten::addmm.default", "aten::mean.default", "aten::_foreach_addcdiv_.ScalarList"} <= ops
    assert {"aten::rand.default", "aten::sub.Tensor", "aten::uniform_.default"} <= on_cpu
    assert not {"aten::addmm.default", "aten::mean.default"} & on_cpu
    copies = [case for case in trace.cases if case.op == "aten::_to_copy.default"]
    assert [hosts(case) for case in copies] == [[True]] * len(copies)  # from the host to the device, and none back
    assert sum(case.n_calls for case in copies) == 3
    assert not any(any(hosts(case)) for case in trace.cases if case.op in ("aten::addmm.default", "aten::mm.default"))


def test_a_copy_back_is_recorded_as_one() -> None:
    trace = traced(lambda: torch.ones(3, device="cuda").cpu() + 1)
    (copied,) = [case for case in trace.cases if case.op == "aten::_to_copy.default"]
    assert hosts(copied) == [False]
    assert dict(copied.kwargs)["device"] == Named("device", "cpu")
    assert "aten::add.Tensor" in {item.what for item in trace.not_audited}


def test_a_cast_a_layout_and_a_copy_within_the_gpu_stay_on_it() -> None:
    def program() -> None:
        x = torch.ones(2, 3, 4, 4, device="cuda")
        x.half()
        x.to(memory_format=torch.channels_last)
        x.to(x.device, copy=True)
        torch.zeros_like(x, dtype=torch.float64)
        with torch.autocast("cuda", torch.bfloat16):
            torch.nn.functional.linear(x, torch.ones(5, 4, device="cuda", requires_grad=True)).sum().backward()

    devices = [dict(case.kwargs).get("device") for case in traced(program).cases]
    assert len([device for device in devices if device is not None]) == 5
    assert set(devices) == {None, Named("device", "device")}


def test_the_batch_sizes_of_a_packed_sequence_stay_on_the_host() -> None:
    def program() -> None:
        lstm, x = torch.nn.LSTM(3, 2).cuda(), torch.randn(4, 2, 3, device="cuda")
        packed = torch.nn.utils.rnn.pack_padded_sequence(x, torch.tensor([4, 2]))
        assert packed.data.is_cuda
        assert not packed.batch_sizes.is_cuda
        lstm(packed)[0].data.sum().backward()

    (lstm,) = [case for case in traced(program).cases if case.op == "aten::lstm.data"]
    assert hosts(lstm)[:2] == [False, True]


def on_cpu(trace: Trace) -> dict[str, int]:
    return {item.what: item.n_calls for item in trace.not_audited if item.reason == "ran on the CPU in the program"}


def test_what_cpp_makes_for_a_tensor_of_the_gpu_is_there() -> None:
    def program() -> None:
        lengths = torch.tensor([4, 2])
        lstm, x = torch.nn.LSTM(3, 2).cuda(), torch.randn(4, 2, 3, device="cuda")
        packed = torch.nn.utils.rnn.pack_padded_sequence(x, lengths)
        padded, _ = torch.nn.utils.rnn.pad_packed_sequence(lstm(packed)[0])  # at::full, then copies into slices of it
        assert padded.is_cuda
        chosen = torch.where(padded > 0, padded, 0.0)  # at::scalar_tensor
        chosen.gather(0, torch.zeros(1, 2, 2, dtype=torch.int64, device="cuda")).sum().backward()  # at::zeros

    trace = traced(program)
    ops = {case.op: case for case in trace.cases}
    assert {"aten::full.default", "aten::scalar_tensor.default", "aten::zeros.default"} <= set(ops)
    assert not {"aten::full.default", "aten::scalar_tensor.default"} & set(on_cpu(trace))
    assert not any(any(hosts(case)) for case in trace.cases if case.op in ("aten::copy_.default", "aten::where.self"))
    assert trace.n_recorded == sum(case.n_calls for case in trace.cases) + sum(n.n_calls for n in trace.not_audited)


@pytest.mark.parametrize("first", [0, 1])
def test_operands_of_one_call_are_in_one_place_whichever_is_settled_first(first: int) -> None:
    left, right = torch.ones(2), torch.ones(2)
    places = [virtual_gpu.OpenPlace(), virtual_gpu.OpenPlace()]
    for tensor, place in zip((left, right), places, strict=True):
        virtual_gpu.leave_open(tensor, place)
    assert virtual_gpu.open_place_of((left, right), {}) is places[0]
    places[first].settle()
    assert virtual_gpu.is_on_gpu(left)
    assert virtual_gpu.is_on_gpu(right)


def test_what_the_program_makes_on_the_cpu_stays_there_beside_the_gpu() -> None:
    index = traced(lambda: torch.rand(4, device="cuda")[torch.zeros(2, dtype=torch.int64)] * torch.full((), 2.0))
    assert {"aten::zeros.default": 1, "aten::full.default": 1}.items() <= on_cpu(index).items()
    assert [hosts(case) for case in index.cases if case.op in ("aten::index.Tensor", "aten::mul.Tensor")] == [
        [False, True],
        [False, True],
    ]


def test_what_a_default_device_makes_is_recorded_on_the_gpu() -> None:
    def program() -> None:
        with torch.device("cuda"):
            torch.zeros(3).exp_()

    trace = traced(program)
    assert [case.op for case in trace.cases] == ["aten::zeros.default", "aten::exp_.default"]
    assert on_cpu(trace) == {}


@pytest.mark.parametrize(
    ("dtype", "by_length"),
    [(torch.float32, (512, 8, 32, 1)), (torch.bfloat16, (512, 128, 8, 1)), (torch.float64, (512, 128, 8, 1))],
    ids=["memory-efficient: by length", "flash: like the query", "math: by heads"],
)
def test_attention_lays_its_results_out_as_the_kernel_of_a_gpu_does(
    dtype: torch.dtype, by_length: tuple[int, ...]
) -> None:
    strides = []

    def program() -> None:
        leaves = [torch.rand(2, 4, 16, 8, dtype=dtype).to("cuda").requires_grad_() for _ in range(3)]
        output = torch.nn.functional.scaled_dot_product_attention(*leaves, dropout_p=0.0)
        grads = torch.autograd.grad(output, leaves, torch.ones_like(output))
        strides.extend(tensor.stride() for tensor in (output, *grads))
        expected = torch.nn.functional.scaled_dot_product_attention(*(leaf.detach().cpu() for leaf in leaves))
        assert output.cpu().equal(expected)

    trace = traced(program)
    assert strides == [by_length] * 4
    assert not {"aten::new_empty_strided.default", "aten::copy_.default"} & {case.op for case in trace.cases}


def test_an_op_whose_dtype_only_a_gpu_takes_is_recorded_and_computed_in_fp32() -> None:
    def program() -> None:
        counted = torch.histc(torch.tensor([1, 1, 3], dtype=torch.int32, device="cuda"), 4, 0, 3)
        assert (counted.dtype, counted.tolist(), counted.is_cuda) == (torch.int32, [0, 2, 0, 1], True)
        with pytest.raises(RuntimeError, match="must match the size"):
            counted + torch.ones(3, device="cuda")

    trace = traced(program)
    (histogram,) = [case for case in trace.cases if case.op == "aten::histc.default"]
    assert [spec.dtype for spec in tensors_of(histogram.args, histogram.kwargs, None)] == ["int32"]
    assert trace.n_recorded == sum(case.n_calls for case in trace.cases) + sum(n.n_calls for n in trace.not_audited)
    with pytest.raises((NotImplementedError, RuntimeError), match="not implemented for"):
        traced(lambda: torch.histc(torch.tensor([1], dtype=torch.int32), 4, 0, 3))


def test_a_program_without_a_gpu_is_audited_whole() -> None:
    assert {case.op for case in traced(lambda: torch.ones(3) + 1).cases} == {"aten::ones.default", "aten::add.Tensor"}


def test_jagged_attention_and_fake_tensors_of_torchs_own_run_to_their_end() -> None:
    from torch.nn.attention.flex_attention import flex_attention

    def program() -> None:
        x = torch.nested.nested_tensor([torch.rand(3, 8), torch.rand(5, 8)], layout=torch.jagged, device="cuda")
        heads = torch.nn.Linear(8, 24, device="cuda")(x).chunk(3, -1)
        q, k, v = (head.unflatten(-1, [2, 4]).transpose(1, 2) for head in heads)
        torch.nn.functional.scaled_dot_product_attention(q, k, v).values().sum().backward()
        q = torch.rand(1, 2, 16, 16, device="cuda", requires_grad=True)
        flex_attention(q, q, q).sum().backward()
        assert q.grad is not None

    trace = traced(program)
    assert "aten::addmm.default" in {case.op for case in trace.cases}


# --- a ROCm machine answers ------------------------------------------------------------------------------------------


def test_it_is_a_rocm_build_with_the_chosen_gpu() -> None:
    assert torch.version.hip is not None
    assert torch.version.cuda is None
    assert torch.cuda.get_device_capability() == (9, 4)
    properties = torch.cuda.get_device_properties(0)
    assert properties.gcnArchName.partition(":")[0] == "gfx942"
    assert (properties.major, properties.minor, properties.multi_processor_count) == (9, 4, 304)
    assert torch.backends.cuda.is_built()
    assert torch.backends.cudnn.is_available()
    assert torch.cuda.memory.max_memory_allocated() == 0


@pytest.mark.parametrize(
    ("arch", "expected"), [("gfx942", (9, 4)), ("gfx90a", (9, 0)), ("gfx1100", (11, 0)), ("gfx1201", (12, 0))]
)
def test_the_capability_is_read_off_the_arch_as_hip_does(arch: str, expected: tuple[int, int]) -> None:
    assert capability(arch) == expected


def test_what_needs_a_driver_gives_nothing_and_does_not_raise() -> None:
    torch.cuda.tunable.enable(True)
    torch.cuda.profiler.start()
    torch.cuda.memory.reset_accumulated_memory_stats()
    torch.cuda.nccl.version()
    assert torch.cuda.mem_get_info()[1] == 192 << 30
    with torch.cuda.device(0), torch.cuda.stream(torch.cuda.Stream()):
        pass


def test_the_body_of_a_graph_runs_once_and_is_recorded() -> None:
    def program() -> None:
        graph = torch.cuda.CUDAGraph()
        x = torch.ones(2, device="cuda")
        with torch.cuda.graph(graph):
            y = x * 3
        graph.replay()
        assert y.tolist() == [3.0, 3.0]

    assert "aten::mul.Tensor" in {case.op for case in traced(program).cases}


def test_what_a_custom_op_copies_to_the_host_and_back_is_told_with_it() -> None:
    @torch.library.custom_op("audit_named::through_host", mutates_args=())
    def through_host(x: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(x).copy_(x.cpu() * 2)

    def program() -> torch.Tensor:
        x = torch.ones(3, 5, device="cuda")
        x.cpu()  # the program's own copy is no part of the op
        return through_host(through_host(x))

    trace = traced(program)
    [item] = [item for item in trace.not_audited if item.what.startswith("audit_named::")]
    assert (item.n_calls, item.copies) == (2, (Copy("DtoH", 120, 2), Copy("HtoD", 120, 2)))


def test_nothing_of_it_is_left_behind() -> None:
    facts = DeviceInfo("none", "AMD Instinct MI300X", "gfx942", {})
    watched = [
        (torch.Tensor, "to"), (torch.Tensor, "cuda"), (torch.Tensor, "numpy"), (torch, "ones"), (torch, "load"),
        (torch.cuda, "is_available"), (torch.version, "hip"), (torch.Tensor, "_make_wrapper_subclass"),
    ]  # fmt: skip
    before = [getattr(owner, name) for owner, name in watched]
    with cuda_redirected_to_cpu(facts):
        kept = torch.ones(2, device="cuda")
        assert kept.is_cuda
    assert [getattr(owner, name) for owner, name in watched] == before
