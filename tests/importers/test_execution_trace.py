"""Execution traces, real ones and hand-written ones of every schema, become the cases that a tracer would record."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.profiler import ExecutionTraceObserver

from audit.errors import UsageError
from audit.importers import execution_trace
from audit.importers.account import ONE_DEVICE
from audit.importers.execution_trace import read_recording
from audit.importers.registry import find_importer
from audit.opset import read_opset, write_opset
from audit.schema import Case, Named, Source, TensorSpec, Trace
from audit.tracer.recorder import Recorder
from audit.tracer.unaudited import ON_HOST
from tests.importers.replayed import outcome_on_cpu

# --- real traces -------------------------------------------------------------------------------------------------


def program() -> None:
    """A training step, views, indices, attention, a convolution and lists of tensors."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Embedding(50, 16), torch.nn.Linear(16, 8), torch.nn.GELU())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    model(torch.arange(28).reshape(4, 7)).sum().backward()
    optimizer.step()
    x = torch.rand(6, 5).t()[1:]
    torch.cat([x, x]).index_select(0, torch.arange(3))
    torch.einsum("ij,kj->ik", x, x).to(torch.bfloat16)
    query = torch.rand(1, 2, 4, 8)
    F.scaled_dot_product_attention(query, query, query, is_causal=True)
    F.conv2d(torch.rand(2, 3, 8, 8).to(memory_format=torch.channels_last), torch.rand(4, 3, 3, 3), padding=1)
    x[:, torch.arange(2)].clamp(max=float("inf"))


def record(function: Callable[[], object], path: Path) -> Path:
    observer = ExecutionTraceObserver()
    observer.register_callback(str(path))
    observer.start()
    try:
        function()
    finally:
        observer.stop()
        observer.unregister_callback()
    return path


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record(program, tmp_path_factory.mktemp("recorded") / "step.json")


def traced(function: Callable[[], object]) -> Trace:
    recorder = Recorder(None)
    recorder.start()
    try:
        function()
    finally:
        recorder.stop()
    return recorder.build(Source("script", "test"), {})[0]


def calls_of(trace: Trace) -> Counter[tuple[object, ...]]:
    """How often each call was made; without the lengths of storages, which an execution trace does not hold."""
    calls: Counter[tuple[object, ...]] = Counter()
    for case in trace.cases:
        calls[case.op, case.phase, comparable(case.args), comparable(case.kwargs)] += case.n_calls
    return calls


def comparable(arg: Any) -> object:
    if isinstance(arg, TensorSpec):
        return arg.sizes, arg.strides, arg.dtype, arg.offset, arg.storage
    return tuple(map(comparable, arg)) if isinstance(arg, tuple) else repr(arg)


def test_the_cases_are_those_of_the_tracer(recorded: Path):
    seen = calls_of(read_recording(recorded))
    wanted = calls_of(traced(program))
    # Below autograd a reshape is a view to the tracer; the limits of uniform_ have more than six decimals.
    assert {op for op, *_ in wanted - seen} <= {"aten::uniform_.default", "aten::view.default"}
    assert sum(wanted.values()) > 60


def test_every_case_replays_on_the_cpu(recorded: Path):
    outcomes = {case.op: outcome_on_cpu(case) for case in read_recording(recorded).cases}
    assert {op: outcome.message for op, outcome in outcomes.items() if outcome.kind != "ok"} == {}


def test_phases_are_those_of_autograd_and_the_optimizer(recorded: Path):
    phases = {(case.op, case.phase) for case in read_recording(recorded).cases}
    assert ("aten::addmm.default", "forward") in phases
    assert ("aten::gelu_backward.default", "backward") in phases
    assert ("aten::add_.Tensor", "optimizer") in phases


def test_a_composite_that_chooses_by_device_is_taken_whole(recorded: Path):
    ops = {case.op for case in read_recording(recorded).cases}
    assert "aten::scaled_dot_product_attention.default" in ops
    assert not any("_for_cpu" in op or "mkldnn" in op for op in ops)


def test_the_source_says_that_it_is_a_trace_and_the_values_are_made(recorded: Path):
    trace = read_recording(recorded)
    assert trace.source == Source("execution trace, values synthesised", "step.json")
    assert trace.n_recorded == sum(case.n_calls for case in trace.cases)


@pytest.mark.filterwarnings("ignore:ComplexHalf")
def test_dtypes_are_those_that_were_recorded(tmp_path: Path):
    names = (
        "uint8 int8 int16 int32 int64 float16 float32 float64 bfloat16 complex64 complex128 bool uint16 uint32 uint64 "
        "complex32 float8_e5m2 float8_e4m3fn float8_e5m2fnuz float8_e4m3fnuz float8_e8m0fnu"
    ).split()

    def convert() -> None:
        for name in names:
            torch.zeros(3, dtype=torch.float16).to(getattr(torch, name)).clone()

    cases = read_recording(record(convert, tmp_path / "dtypes.json")).cases
    asked = [dict(case.kwargs)["dtype"] for case in cases if case.op == "aten::_to_copy.default"]
    cloned = [case.args[0].dtype for case in cases if case.op == "aten::clone.default"]  # type: ignore[union-attr]
    assert asked == [Named("dtype", name) for name in names if name != "float16"]
    assert cloned == names


# --- hand-written traces -------------------------------------------------------------------------------------------

EXP = "aten::exp(Tensor self) -> Tensor"
TENSOR = ([[7, 8, 0, 6, 4, "cpu"]], [[2, 3]], ["Tensor(float)"], [[3, 1]])


def node(
    number: int,
    schema: str = EXP,
    inputs: tuple[list[Any], ...] = TENSOR,
    parent: int = 1,
    name: str = "aten::op",
    **attrs: object,
) -> dict[str, Any]:
    """A node as schema 1.1.1 has it."""
    attrs = {"rf_id": number, "op_schema": schema, **attrs}
    return {
        "id": number,
        "name": name,
        "ctrl_deps": parent,
        "inputs": dict(zip(("values", "shapes", "types", "strides"), inputs, strict=False)),
        "outputs": {"values": [], "shapes": [], "types": [], "strides": []},
        "attrs": [{"name": key, "type": "", "value": value} for key, value in attrs.items()],
    }


def read(folder: Path, *nodes: Mapping[str, Any], schema: str = "1.1.1-chakra.0.0.4") -> Trace:
    path = folder / "trace.json"
    path.write_text(json.dumps({"schema": schema, "pid": 1, "nodes": nodes, "finish_ts": 2}))
    importer = find_importer(path)
    assert importer is not None
    assert importer.name == "an execution trace of torch"
    return read_recording(path)


def the_case(trace: Trace) -> Case:
    assert len(trace.cases) == 1
    return trace.cases[0]


def test_schema_1_0_1_has_flat_nodes_without_strides(tmp_path: Path):
    flat = {
        "name": "aten::sum", "id": 5, "rf_id": 1, "parent": 2, "fw_parent": 0, "seq_id": -1, "scope": 0, "tid": 1,
        "fw_tid": 0, "op_schema": "aten::sum.dim_IntList(Tensor self, int[1]? dim, bool keepdim=False, *, "
        "ScalarType? dtype=None) -> Tensor",
        "inputs": [[7, 8, 0, 6, 2, "cuda:0"], [0], True, "<None>"], "input_shapes": [[2, 3], [[]], [], []],
        "input_types": ["Tensor(c10::Half)", "GenericList[Int]", "Bool", "None"],
        "outputs": [], "output_shapes": [], "output_types": [],
    }  # fmt: skip
    case = the_case(read(tmp_path, flat, schema="1.0.1"))
    assert case.op == "aten::sum.dim_IntList"
    assert case.args == (TensorSpec((2, 3), (3, 1), "float16", extent=6), (0,), True)


def test_schema_1_0_2_has_no_strides(tmp_path: Path):
    case = the_case(read(tmp_path, node(5, inputs=TENSOR[:3]), schema="1.0.2-chakra.0.0.4"))
    assert case.args == (TensorSpec((2, 3), (3, 1), "float32", extent=6),)


def test_tensors_of_one_storage_share_it(tmp_path: Path):
    schema = "aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor"
    values = [[7, 8, 0, 6, 4, "cpu"], [9, 8, 2, 3, 4, "cpu"], 1]
    inputs = (values, [[2, 3], [3], []], ["Tensor(float)", "Tensor(float)", "Int"], [[3, 1], [2], []])
    case = the_case(read(tmp_path, node(5, schema, inputs)))
    assert case.args == (
        TensorSpec((2, 3), (3, 1), "float32", extent=6),
        TensorSpec((3,), (2,), "float32", offset=2, extent=7),
    )
    assert case.kwargs == ()  # alpha was the default


def test_what_a_call_does_inside_is_no_case(tmp_path: Path):
    trace = read(tmp_path, node(6, parent=5), node(7, parent=6), node(5), node(9, parent=1))
    assert the_case(trace).n_calls == 2


def test_the_parts_of_a_composite_are_cases(tmp_path: Path):
    composite = node(5, "aten::reshape(Tensor(a) self, SymInt[] shape) -> Tensor(a)")
    trace = read(tmp_path, node(6, parent=5), node(7, parent=5), composite)
    assert (the_case(trace).op, the_case(trace).n_calls) == ("aten::exp.default", 2)


def test_old_overloads_are_called_as_they_are_now(tmp_path: Path):
    schema = "aten::sum.SymInt(Tensor self, SymInt[1] dim, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor"
    inputs = ([TENSOR[0][0], [0], True, "<None>"], [[2, 3], [[]], [], []],
              ["Tensor(float)", "GenericList[Int]", "Bool", "None"], [[3, 1], [[]], [], []])  # fmt: skip
    assert the_case(read(tmp_path, node(5, schema, inputs))).op == "aten::sum.dim_IntList"


def test_beside_a_gpu_what_ran_on_the_cpu_is_listed_and_its_operands_stay_there(tmp_path: Path):
    schema = "aten::mul.Tensor(Tensor self, Tensor other) -> Tensor"
    values = [[7, 8, 0, 6, 4, "cuda:1"], [9, 10, 0, 1, 8, "cpu"]]
    inputs = (values, [[2, 3], []], ["Tensor(float)", "Tensor(double)"], [[3, 1], []])
    trace = read(tmp_path, node(5, schema, inputs), node(6))
    assert [spec.host for spec in the_case(trace).args if isinstance(spec, TensorSpec)] == [False, True]
    assert [(item.what, item.reason) for item in trace.not_audited] == [("aten::exp.default", ON_HOST)]


@pytest.mark.parametrize(
    ("nodes", "what", "reason"),
    [
        ([node(5, inputs=(["<X>"], [[]], ["SymInt"], [[]]))], "aten::exp.default",
         "argument of type SymInt, of which the recorder kept no value"),
        ([node(5, inputs=([[7, 0, 0, 0, 0, ""]], [[2]], ["Tensor(float)"], [[]]))], "aten::exp.default",
         "not strided tensor (it has no storage)"),
        ([node(5, inputs=([[1] * 4097], [[[]] * 4097], [f"GenericList[{','.join(['Int'] * 4097)}]"], [[]]))],
         "aten::exp.default", "a list of more than 4096 elements, which the recorder cuts off"),
        ([node(5, inputs=([], [], [], []))], "aten::exp.default", "0 arguments were recorded for 1 of the schema"),
        ([node(5, inputs=([[7, 8, 0, 1, 4, "cpu"]], [[-2]], ["Tensor(float)"], [[1]]))], "aten::exp.default",
         "no call that torch could have made: the call has a tensor of sizes (-2), strides (1), offset 0, extent -2"),
        ([node(5, "aten::_cslt_compress(Tensor input) -> Tensor")], "aten::_cslt_compress.default", ONE_DEVICE),
        ([node(5, "aten::exp(Tensor self, -> Tensor")], "aten::exp.default",
         "its recorded schema is none that torch reads"),
        ([node(5, "c10d::allreduce_(Tensor self) -> Tensor")], "c10d::allreduce_.default",
         "collective: needs the other ranks"),
        ([node(5, "", name="triton_poi_fused_0", kernel_backend="triton")], "triton_poi_fused_0",
         "Triton kernel: its code is not in the trace"),
    ],
    ids=["no value", "sparse", "long list", "no arguments", "bad size", "vendor", "schema", "collective", "triton"],
)  # fmt: skip
def test_what_cannot_be_a_case_is_named_with_its_reason(
    nodes: list[dict[str, Any]], what: str, reason: str, tmp_path: Path
):
    trace = read(tmp_path, *nodes)
    assert [(item.what, item.reason, item.n_calls) for item in trace.not_audited] == [(what, reason, 1)]
    assert (trace.cases, trace.n_recorded) == ((), 1)


def test_nodes_that_go_in_circles_do_not_hang(tmp_path: Path):
    trace = read(tmp_path, node(5, "", parent=6), node(6, "", parent=5), node(7, parent=5))
    assert the_case(trace).n_calls == 1


@pytest.mark.parametrize(
    "broken", [{"id": "x"}, {"name": 3}, {"ctrl_deps": None}, {"inputs": 7}, {"inputs": {"values": []}}], ids=str
)
def test_a_node_that_is_none_is_refused(broken: dict[str, Any], tmp_path: Path):
    with pytest.raises(UsageError, match=r"\[unreadable-recording\]$"):
        read(tmp_path, {**node(5), **broken})


def test_a_trace_cut_off_anywhere_is_refused_in_one_sentence(recorded: Path, tmp_path: Path):
    content = recorded.read_bytes()
    end = content.rindex(b"]")
    path = tmp_path / "cut.json"
    for n_bytes in range(0, end, end // 40):
        path.write_bytes(content[:n_bytes])
        with pytest.raises(UsageError, match=r"\[unreadable-recording\]$"):
            read_recording(path)
    path.write_bytes(gzip.compress(content)[:-20])
    with pytest.raises(UsageError, match=r"\[unreadable-recording\]$"):
        read_recording(path)


JUNK = (None, True, -1, 1 << 80, 1e308, "", "x" * 5000, "\ud800", [], [[]], {}, {"a": 1})


def places(content: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to each value of a JSON content."""
    yield path
    if isinstance(content, (list, dict)):
        for key in content if isinstance(content, dict) else range(len(content)):
            yield from places(content[key], (*path, key))


@pytest.mark.filterwarnings("ignore:ComplexHalf")
def test_whatever_stands_in_a_node_it_is_a_case_or_listed_or_refused(tmp_path: Path):
    schema = "aten::cat(Tensor[] tensors, int dim=0) -> Tensor"
    tensors = [[7, 8, 0, 6, 4, "cpu"], [9, 8, 0, 6, 4, "cuda:0"]]
    good = node(5, schema, ([tensors, 0], [[[2, 3], [2, 3]], []], ["GenericList[Tensor(float),Tensor(int)]", "Int"],
                            [[[3, 1], [3, 1]], []]))  # fmt: skip
    output, refused = tmp_path / "step.audit", set()
    for place in list(places(good))[1:]:
        for junk in JUNK:
            changed = json.loads(json.dumps(good))
            holder = changed
            for key in place[:-1]:
                holder = holder[key]
            holder[place[-1]] = junk
            path = tmp_path / "trace.json"
            path.write_text(json.dumps({"schema": "1.1.1", "nodes": [changed, node(9)]}))
            try:
                trace = read_recording(path)
            except UsageError as error:
                refused.add(error.slug)
                continue
            write_opset(output, trace, None)
            assert read_opset(output).n_recorded == sum(item.n_calls for item in (*trace.cases, *trace.not_audited))
    assert refused == {"unreadable-recording"}


def test_more_nodes_than_are_kept_in_memory_are_refused(recorded: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(execution_trace, "MAX_NODES", 20)
    with pytest.raises(UsageError, match=r"\[too-large-recording\]$"):
        read_recording(recorded)
