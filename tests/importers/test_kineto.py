"""A profiler's trace as a finished run: who owns which kernel, and what a damaged or hostile file leads to."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest

from audit.errors import UsageError
from audit.importers import recording
from audit.importers.collectives import Message, message_of
from audit.importers.kineto import read_recording
from audit.report.rows import case_rows
from audit.rules.judge import judge
from audit.run_records import Run
from audit.schema import Copy, Kernel, TensorSpec
from tests.importers.recorded import MI300X, MM, kernel, launch, op, trace

GEMM = "Cijk_Ailk_Bljk_BBS_BH_Bias_HAS_SAV_UserArgs_MT16x16x256_MI16x16x1"


def read(tmp_path: Path, *events: dict[str, Any], **properties: Any) -> Run:
    return read_recording(trace(tmp_path / "t.json", *events, **properties))


def orphans(run: Run) -> dict[str, tuple[Kernel, ...]]:
    return {item.reason.partition(":")[2].strip(): item.kernels for item in run.header.not_audited if item.kernels}


# --- cases ---------------------------------------------------------------------------------------------------------


def test_an_op_with_its_arguments_kernels_and_times_is_a_case(tmp_path: Path) -> None:
    run = read(
        tmp_path,
        op("aten::mm", 10, 8, 7, **MM), launch(12, 100), kernel(GEMM, 20, 2.5, 100, 7),
        op("aten::mm", 30, 8, 8, **MM), launch(32, 101), kernel(GEMM, 40, 3.5, 101, 8),
    )  # fmt: skip
    (case,) = run.cases
    assert (case.op, case.phase, case.n_calls) == ("aten::mm.default", "forward", 2)
    assert case.args == (
        TensorSpec((8, 16), (16, 1), "bfloat16", extent=128, storage=0),
        TensorSpec((16, 4), (1, 16), "bfloat16", extent=64, storage=1),
    )
    measurement = run.measurements[case.key]
    assert measurement.path.kernels == (Kernel(GEMM, 6.0, 2),)
    assert measurement.path.n_calls == 2
    assert measurement.path.complete
    time = measurement.device_time
    assert time is not None
    assert (time.median_us, time.iqr_us, time.n, time.total_us) == (3.0, 0.5, 2, 6.0)


def test_a_case_that_nobody_compared_is_not_called_supported(tmp_path: Path) -> None:
    run = read(tmp_path, op("aten::mm", 10, 8, 7, **MM), launch(12, 100), kernel(GEMM, 20, 2.5, 100, 7))
    judgement = judge(run)
    assert (run.header.evidence, run.header.source.kind) == ("measured", "imported")
    assert [verdict.status for verdict in judgement.verdicts] == ["inconclusive"]
    assert [finding.code for finding in judgement.verdicts[0].findings] == ["INC913"]
    assert judgement.verdicts[0].library == "hipBLASLt (TensileLite)"
    assert judgement.headline == (
        "Imported from a profile of AMD Instinct MI300X (gfx942), nothing was replayed and no numbers were compared: "
        "1 case of 1 op took 2.5 µs; path: no op with a finding."
    )


def test_a_naive_kernel_in_a_trace_is_a_fallback(tmp_path: Path) -> None:
    naive = "naive_conv_ab_nonpacked_fwd_nchw_ushort_double_ushort"
    run = read(
        tmp_path, op("aten::convolution", 10, 8, 7, **MM), op("aten::miopen_convolution", 11, 6, 8, **MM),
        launch(12, 100), kernel(naive, 20, 900, 100, 8),
    )  # fmt: skip
    judgement = judge(run)
    (verdict,) = judgement.verdicts
    assert (verdict.op, verdict.status) == ("aten::convolution.default", "falling_back")
    assert [row.has_repro for row in case_rows(judgement)] == [True]


def test_a_call_of_which_arguments_were_not_recorded_has_no_script(tmp_path: Path) -> None:
    arguments = {"Input Dims": [[2, 3], []], "Input type": ["float", "Scalar"]}
    naive = "naive_conv_ab_nonpacked_fwd_nchw_float_double_float"
    judgement = judge(read(tmp_path, op("aten::convolution", 10, 8, 7, **arguments), kernel(naive, 20, 900, 0, 7)))
    assert [(row.status, row.has_repro) for row in case_rows(judgement)] == [("falling_back", False)]


def test_what_is_only_made_of_ops_is_taken_apart_and_what_chooses_by_device_is_kept(tmp_path: Path) -> None:
    run = read(
        tmp_path,
        op("aten::linear", 10, 20, 1, **MM), op("aten::mm", 12, 8, 2, **MM), kernel(GEMM, 20, 2.5, 0, 2),
        op("aten::layer_norm", 40, 20, 3, **MM), op("aten::native_layer_norm", 42, 8, 4, **MM),
        kernel("void at::native::vectorized_layer_norm_kernel<float>", 50, 1.5, 0, 4),
    )  # fmt: skip
    assert [case.op for case in run.cases] == ["aten::mm.default", "aten::layer_norm.default"]
    norm = run.measurements[run.cases[1].key]
    assert norm.path.chosen_ops == ("aten::native_layer_norm.default",)


def test_phases_are_those_of_autograd_and_of_the_optimizer(tmp_path: Path) -> None:
    step = {
        "ph": "X",
        "cat": "user_annotation",
        "name": "Optimizer.step#SGD.step",
        "pid": 1,
        "tid": 1,
        "ts": 90,
        "dur": 50,
    }
    run = read(
        tmp_path,
        op("autograd::engine::evaluate_function: MmBackward0", 10, 50, 1), op("MmBackward0", 11, 40, 2),
        op("aten::mm", 12, 8, 3, **MM), kernel(GEMM, 20, 2, 0, 3),
        step, op("aten::_foreach_add_", 92, 8, 4, **MM), kernel("k", 100, 1, 0, 4),
    )  # fmt: skip
    assert [(case.op, case.phase) for case in run.cases] == [
        ("aten::mm.default", "backward"),
        ("aten::_foreach_add_", "optimizer"),
    ]


def test_copies_of_old_and_new_releases_are_host_traffic(tmp_path: Path) -> None:
    run = read(
        tmp_path,
        op("aten::nonzero", 10, 8, 7, **MM),
        kernel("CopyDeviceToHost", 20, 2, 0, 7),
        kernel("MEMORY_COPY_DEVICE_TO_HOST", 22, 2, 0, 7),
        {**kernel("Memcpy DtoH (Device -> Pageable)", 24, 2, 0, 7), "cat": "gpu_memcpy",
         "args": {"External id": 7, "bytes": 4096}},
    )  # fmt: skip
    assert run.measurements[run.cases[0].key].path.copies == (Copy("DtoH", 4096, 3),)


def test_a_list_whose_tensors_are_not_written_down_and_numbers_as_text_are_arguments(tmp_path: Path) -> None:
    arguments = {
        "Input Dims": [[[2, 3], [4]], [], [], [], []],
        "Input type": ["TensorList", "TensorList", "Scalar", "ScalarList", ""],
        "Concrete Inputs": ["", "", "1e-06", "[1, -1]", ""],
    }
    run = read(tmp_path, op("aten::cat", 1, 8, 7, **arguments), kernel("k", 20, 2, 0, 7))
    pair = (TensorSpec((2, 3), (3, 1), "unknown", extent=6), TensorSpec((4,), (1,), "unknown", extent=4, storage=1))
    assert run.cases[0].args == (pair, "not recorded", 1e-06, (1, -1), None)


# --- owners --------------------------------------------------------------------------------------------------------


def test_owned_and_orphaned_time_is_the_total_and_each_orphan_has_its_reason(tmp_path: Path) -> None:
    run = read(
        tmp_path,
        op("aten::mm", 10, 8, 7, **MM), launch(12, 100), kernel(GEMM, 20, 2.501, 100, 7),
        kernel("before", 1, 0.1, 99), kernel("before", 2, 0.2, 98),
        launch(50, 200, "hipGraphLaunch"), kernel("in a graph", 60, 0.3, 200), kernel("in a graph", 61, 0.7, 200),
        launch(70, 300, "hipMemcpyAsync"), kernel("by the program itself", 80, 1.1, 300),
    )  # fmt: skip
    assert orphans(run) == {
        "launched before the recording began, or the profiler lost the launch": (Kernel("before", 0.3, 2),),
        "a graph launch names no op; its ops ran when it was captured": (Kernel("in a graph", 1.0, 2),),
        "launched outside of any recorded op": (Kernel("by the program itself", 1.1, 1),),
    }
    owned = sum(round(k.us * 1000) for m in run.measurements.values() for k in m.path.kernels)
    left = sum(round(k.us * 1000) for item in run.header.not_audited for k in item.kernels)
    assert (owned, left, owned + left) == (2501, 2400, 4901)


def test_an_owner_known_by_time_alone_is_marked_inferred(tmp_path: Path) -> None:
    run = read(tmp_path, op("aten::mm", 10, 8, **MM), launch(12, 100), kernel(GEMM, 20, 2, 100))
    assert run.measurements[run.cases[0].key].notes == (
        "inferred: 1 of 1 kernels are put down to this op by time alone",
    )
    assert any("Inferred: 1 kernels" in note for note in run.header.notes)


def test_a_launch_on_another_thread_or_after_the_op_is_not_its_own(tmp_path: Path) -> None:
    run = read(
        tmp_path, op("aten::mm", 10, 8, **MM),
        launch(12, 100, tid=2), kernel("a", 20, 2, 100), launch(19, 101), kernel("b", 30, 2, 101),
    )  # fmt: skip
    assert run.cases == ()


def test_ops_that_overlap_without_nesting_are_siblings(tmp_path: Path) -> None:
    run = read(
        tmp_path,
        op("aten::mm", 10, 20, 1, **MM), op("aten::bmm", 20, 30, 2, **MM),
        kernel("a", 60, 2, 0, 1), kernel("b", 70, 3, 0, 2),
    )  # fmt: skip
    assert {case.op for case in run.cases} == {"aten::mm.default", "aten::bmm.default"}


def test_a_correlation_of_nought_belongs_to_nobody(tmp_path: Path) -> None:
    """ROCm/roctracer#100: every collective has it."""
    run = read(tmp_path, op("aten::mm", 10, 8, **MM), launch(12, 0), kernel("ncclDevKernel_Generic", 20, 2, 0))
    assert run.cases == ()


def test_ranks_in_one_file_share_ids_and_keep_their_kernels(tmp_path: Path) -> None:
    def rank(pid: int, ts: float, name: str) -> list[dict[str, Any]]:
        return [
            {**op(name, ts, 8, 7, **MM), "pid": pid}, launch(ts + 2, 100, pid=pid),
            kernel(f"kernel of {name}", ts + 4, 2, 100, 7),
        ]  # fmt: skip

    run = read(tmp_path, *rank(1, 10, "aten::mm"), *rank(2, 30, "aten::bmm"))
    assert {(c.op, run.measurements[c.key].path.kernels[0].name) for c in run.cases} == {
        ("aten::mm.default", "kernel of aten::mm"),
        ("aten::bmm.default", "kernel of aten::bmm"),
    }


def test_a_call_whose_record_was_lost_is_said_and_not_taken_for_another_path(tmp_path: Path) -> None:
    run = read(
        tmp_path, op("aten::mm", 10, 8, 7, **MM), kernel(GEMM, 20, 2, 0, 7), op("aten::mm", 30, 8, 8, **MM),
        op("aten::view", 50, 1, 9, **MM),
    )  # fmt: skip
    measurement = run.measurements[run.cases[0].key]
    assert measurement.notes == ("1 of 2 calls have no record of the device",)
    assert not measurement.path.complete
    assert [(item.what, item.n_calls, item.computes) for item in run.header.not_audited] == [("aten::view", 1, False)]
    assert run.header.n_recorded == 3


def test_what_is_nested_without_end_or_launched_by_one_id_ends_soon(tmp_path: Path) -> None:
    n = 3000
    inside = [op("aten::mm", k, 10 * n - 2 * k, k + 1, **MM) for k in range(n)]
    launches = [launch(n + k, 7, tid=k % 2) for k in range(n)]
    run = read(tmp_path, *inside, *launches, *(kernel("k", n + k, 1, 7, k + 1) for k in range(n)))
    owned = sum(kernel.count for m in run.measurements.values() for kernel in m.path.kernels)
    left = sum(kernel.count for item in run.header.not_audited for kernel in item.kernels)
    assert owned + left == n


def test_a_collective_says_what_it_moved_and_how_fast(tmp_path: Path) -> None:
    """16 MB in bf16 over 8 ranks pass the bus 2 x 7/8 times: 28 MB in 2 ms, and half as fast with 6 ms of waiting."""
    said = {"Collective name": "allreduce", "In msg nelems": 8_000_000, "Out msg nelems": 8_000_000, "Group size": 8,
            "dtype": "BFloat16"}  # fmt: skip

    def reduced(ts: float, dur: float) -> dict[str, Any]:
        event = kernel("ncclDevKernel_Generic", ts, dur, 0, 7)
        return {**event, "args": {**event["args"], **said}}

    run = read(tmp_path, op("c10d::allreduce_", 10, 8, 7, **MM), reduced(20, 2000), reduced(3000, 6000))
    (item,) = run.header.not_audited
    assert item.reason.endswith("; 16 MB a call at 7 GB/s of bus bandwidth, waiting included")


@pytest.mark.parametrize(
    ("details", "message"),
    [
        ({"Collective name": "broadcast", "In msg nelems": 10, "dtype": "Long"}, Message(80, 80.0)),
        ({"Collective name": "_allgather_base", "In msg nelems": 10, "Out msg nelems": 40, "Group size": 4,
          "dtype": "Float"}, Message(160, 120.0)),
        ({"Collective name": "allreduce", "In msg nelems": 10, "dtype": "Float"}, None),
        ({"Collective name": "allreduce", "In msg nelems": 10, "Group size": 0, "dtype": "Float"}, None),
        ({"Collective name": "allreduce", "In msg nelems": -1, "Group size": 8, "dtype": "Float"}, None),
        ({"Collective name": ["allreduce"], "In msg nelems": 10, "Group size": 8, "dtype": "Float"}, None),
        ({"Collective name": "allreduce", "In msg nelems": 10, "Group size": 8, "dtype": ["Float"]}, None),
    ],
)  # fmt: skip
def test_a_message_is_known_where_all_of_it_was_written_down(details: dict[str, Any], message: Message | None) -> None:
    assert message_of(details) == message


def test_streams_that_overlap_are_busy_once_and_take_device_time_twice(tmp_path: Path) -> None:
    def on(stream: int, ts: float, dur: float, device: int = 0) -> dict[str, Any]:
        event = kernel("k", ts, dur)
        return {**event, "args": {**event["args"], "stream": stream, "device": device}}

    run = read(tmp_path, on(0, 100, 50), on(1, 120, 50), on(0, 300, 10), on(0, 100, 20, device=1))
    assert run.header.notes[1] == (
        "Device time of 4 kernels, copies and fills: 0.130 ms (3 streams, 2 devices); 0.130 ms of it belong to no "
        "recorded op. Some work was under way for 0.100 ms."
    )


def test_collectives_are_listed_with_their_time(tmp_path: Path) -> None:
    run = read(tmp_path, op("c10d::allreduce_", 10, 8, 7, **MM), kernel("ncclDevKernel_Generic", 20, 5, 0, 7))
    assert run.cases == ()
    (item,) = run.header.not_audited
    assert (item.what, item.kernels) == ("c10d::allreduce_", (Kernel("ncclDevKernel_Generic", 5.0, 1),))
    assert item.reason.startswith("collective:")


# --- the device ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("properties", "name", "arch", "evidence"),
    [
        ({"deviceProperties": [{**MI300X, "name": ""}]}, "unnamed AMD GPU", "gfx942", "measured"),
        ({"deviceProperties": [{"name": "  "}]}, "unnamed AMD GPU", "unknown", "measured"),
        ({"deviceProperties": None}, "unnamed AMD GPU", "unknown", "measured"),
        ({"deviceProperties": "none"}, "unnamed AMD GPU", "unknown", "measured"),
        ({"deviceProperties": [{"id": 0, "name": "NVIDIA H100 80GB HBM3", "computeMajor": 9, "computeMinor": 0}],
          "hip_runtime_version": None, "cuda_runtime_version": 12040}, "NVIDIA H100 80GB HBM3", "sm_90", "stand-in"),
        ({"deviceProperties": [], "hip_runtime_version": None}, "unnamed NVIDIA GPU", "unknown", "stand-in"),
    ],
)  # fmt: skip
def test_a_device_is_named_by_what_the_trace_says_of_it(
    tmp_path: Path, properties: dict[str, Any], name: str, arch: str, evidence: str
) -> None:
    run = read(tmp_path, kernel("k", 20, 2), **properties)
    assert (run.header.device.name, run.header.device.arch, run.header.evidence) == (name, arch, evidence)


def test_versions_are_written_as_elsewhere(tmp_path: Path) -> None:
    distributed = {"rank": 3, "world_size": 8, "nccl_version": "2.22.3", "hosts": ["secret.example"]}
    run = read(tmp_path, kernel("k", 20, 2), distributedInfo=distributed)
    assert run.header.environment == {"hip": "6.4.43483", "nccl": "2.22.3", "rank": "3", "world_size": "8"}


# --- files ---------------------------------------------------------------------------------------------------------


def test_a_file_that_was_cut_off_gives_what_it_has_and_says_so(tmp_path: Path) -> None:
    events = [op("aten::mm", 10, 8, 7, **MM), kernel(GEMM, 20, 2, 0, 7), kernel("lost", 30, 2, 0, 7)]
    whole = trace(tmp_path / "t.json", *events).read_bytes()
    path = tmp_path / "cut.json"
    path.write_bytes(whole[: whole.index(b'"lost"') + 3])
    run = read_recording(path)
    assert [case.op for case in run.cases] == ["aten::mm.default"]
    assert run.end is not None
    assert not run.end.complete
    assert run.end.reason == "the file ends too early, after 2 events; what it holds until then is read"


@pytest.mark.parametrize("n", [400, 4000])
def test_a_compressed_file_that_was_cut_off_gives_what_it_has(tmp_path: Path, n: int) -> None:
    """Of a small one, too, which a single read would decompress whole."""
    pairs = [(op("aten::mm", 10 * k, 8, k, **MM), kernel(f"k{k}", k, 2, 0, k)) for k in range(1, n)]
    path = trace(tmp_path / "t.json.gz", *(event for pair in pairs for event in pair))
    path.write_bytes(path.read_bytes()[: -path.stat().st_size // 4])
    run = read_recording(path)
    assert run.end is not None
    assert "ends too early" in run.end.reason
    assert n // 2 < run.cases[0].n_calls < n


def test_events_without_a_name_or_a_time_are_counted(tmp_path: Path) -> None:
    run = read(
        tmp_path, op("aten::mm", 10, 8, 7, **MM), kernel(GEMM, 20, 2, 0, 7),
        kernel(GEMM, 20, None, 0, 7), kernel(GEMM, 20, -3, 0, 7), kernel("", 20, 2, 0, 7),
        kernel(GEMM, 20, "inf", 0, 7),
        {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": "soon", "dur": 1},
        kernel("of no id that a column holds", 20, 0, 1 << 70, -(1 << 70), pid=1 << 80),
        {"ph": "i", "cat": "kernel"}, {"cat": ["kernel"]}, {"ph": "X", "cat": "kernel", "name": 7, "args": 3},
    )  # fmt: skip
    assert [n for n in run.header.notes if n.startswith("Left out")] == ["Left out: 6 events without a name or a time."]
    assert run.measurements[run.cases[0].key].path.kernels == (Kernel(GEMM, 2.0, 1),)


@pytest.mark.parametrize(
    ("written", "reason"),
    [
        ({"Input Dims": [[-8, 16]], "Input type": ["float"]}, "expected a list of sizes"),
        (
            {"Input Dims": [[1 << 62, 1 << 62]], "Input type": ["float"]},
            "has a tensor of sizes (4611686018427387904, 4611686018427387904)",
        ),
        ({"Input Dims": {"a": 1}, "Input type": ["float"]}, "expected a list of arguments, got dict"),
        ({"Input Dims": [[1]], "Input type": [["float"]]}, "expected the name of a type, got list"),
        ({"Input Dims": json.loads("[" * 900 + "]" * 900), "Input type": ["float"]}, "expected a list of"),
        ({"Input Dims": [[[[[[1]]]]]], "Input type": ["TensorList"]}, "expected a list of sizes"),
    ],
)
def test_arguments_that_cannot_be_keep_their_time_and_lose_their_case(
    tmp_path: Path, written: dict[str, Any], reason: str
) -> None:
    run = read(tmp_path, op("aten::relu", 10, 8, 7, **written), kernel("k", 20, 2, 0, 7))
    (item,) = run.header.not_audited
    assert (item.what, item.kernels) == ("aten::relu", (Kernel("k", 2.0, 1),))
    assert reason in item.reason


@pytest.mark.parametrize(
    ("content", "slug"),
    [
        (b'{"traceEvents": []}', "no-device-records"),
        (b'{"traceEvents": {}}', "no-device-records"),
        (b'{"traceEvents": [', "no-device-records"),
        (b'{"traceEvents": [7]}', "unreadable-recording"),
        (b'{"traceEvents": [{"a": 1} {"b": 2}, {"c": 3}, {"d": 4}]}', "unreadable-recording"),
        (b'{"traceEvents": ' + b"[" * 200_000, "unreadable-recording"),
        (b'{"traceEvents": [{"ts": ' + b"9" * 5000 + b"}]}", "unreadable-recording"),
        (b'{"traceEvents": [{"name": "' + b"x" * (1 << 25), "unreadable-recording"),
        (b'{"traceEvents": []} {"traceEvents": []}', "unreadable-recording"),
        (b'{"a": "' + b'x", "b": "'.join([b"x" * (1 << 20)] * 20) + b'"}', "unreadable-recording"),
        (b"\x1f\x8b\x08\x00 and no more", "no-device-records"),
    ],
)
def test_a_file_that_is_no_trace_is_one_sentence(tmp_path: Path, content: bytes, slug: str) -> None:
    path = tmp_path / "t.json"
    path.write_bytes(content)
    with pytest.raises(UsageError) as caught:
        read_recording(path)
    assert caught.value.slug == slug
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("limit", ["MAX_ROWS", "MAX_TEXT_CHARS"])
def test_more_than_memory_is_meant_to_hold_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    monkeypatch.setattr(recording, limit, 60)
    names = (f"kernel number {n}" for n in range(61))
    with pytest.raises(UsageError, match="too-large-recording"):
        read(tmp_path, *(kernel(name, 20, 2) for name in names))


def test_a_small_file_that_unpacks_without_end_is_refused_early(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("audit.importers.event_stream._FREE_BYTES", 1 << 20)
    path = tmp_path / "t.json.gz"
    path.write_bytes(gzip.compress(b'{"traceEvents": [' + b" " * (1 << 24)))
    with pytest.raises(UsageError, match=r"unpacks to over 250 times its [\d,]+ bytes.*\[too-large-recording\]"):
        read_recording(path)


def test_what_a_download_left_behind_a_trace_does_no_harm(tmp_path: Path) -> None:
    content = gzip.compress(json.dumps({"traceEvents": [kernel("k", 1, 2)]}).encode())
    (tmp_path / "t.json.gz").write_bytes(content + b"<html>")
    run = read_recording(tmp_path / "t.json.gz")
    assert run.end is not None
    assert run.end.complete


def test_a_named_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "t.json")
    with pytest.raises(UsageError, match="unreadable-recording"):
        read_recording(tmp_path / "t.json")


def test_a_line_break_in_a_name_and_a_broken_character_are_read(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_bytes(b'[{"ph":"X","cat":"kernel","name":"a\nb\xff","ts":1,"dur":2,"args":{}},]')
    run = read_recording(path)
    assert run.header.not_audited[0].kernels == (Kernel("a\nb�", 2.0, 1),)


def test_memory_is_that_of_what_is_kept_and_not_of_the_file(tmp_path: Path, fresh_python: Any) -> None:
    """100 MB of Python frames, compressed to 1 MB, are read in 50 MB; one event of them is in memory at a time."""
    frame = json.dumps({"ph": "X", "cat": "python_function", "name": "f" * 200, "ts": 1, "dur": 1, "args": {"x": 1}})
    path = tmp_path / "t.json.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(b'{"traceEvents": [')
        for _ in range(400):
            file.write((frame + ",").encode() * 1000)
        file.write(json.dumps(kernel("k", 1, 2)).encode() + b"]}")
    peak = fresh_python(f"""
        import resource
        from pathlib import Path
        from audit.importers.kineto import read_recording
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        read_recording(Path({str(path)!r}))
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
    """)
    assert int(peak) < 50_000
