"""Traces of real MI300X, MI210 and H100 as runs: the only evidence from AMD GPUs that there is."""

from __future__ import annotations

import csv
import json
from functools import cache
from pathlib import Path

import pytest

from audit.cli import main
from audit.importers.kineto import read_recording
from audit.report.device_time import library_rows, library_totals, unowned_rows
from audit.rules.judge import judge
from audit.rules.side_by_side import side_by_side
from audit.run_records import Run
from audit.schema import Case, TensorSpec
from audit.verdicts import SideBySide
from tests.importers.joined import Op, ns_by_op, total_ns

BERT, QWEN, TIMESFORMER = "bert-small-bf16", "qwen1.5-0.5b-prefill-bf16", "timesformer-bf16"
RESNET, NORMS = "mi300x-resnet-train-8gpu", "mi300x-normalization-layers"
WITH_OPS = (
    *(f"{gpu}-{model}" for gpu in ("mi300x", "h100") for model in (BERT, QWEN, TIMESFORMER)),
    RESNET, NORMS, "mi300x-inductor-triton",
)  # fmt: skip
ALL = (*WITH_OPS, "mi210-kernels-only")


@cache
def imported(traces: Path, name: str) -> Run:
    return read_recording(traces / f"{name}.json.gz")


def milliseconds(run: Run) -> tuple[float, float]:
    """(in cases, in what is no case)."""
    cases = sum(m.device_time.total_us for m in run.measurements.values() if m.device_time and m.device_time.total_us)
    left = sum(kernel.us for item in run.header.not_audited for kernel in item.kernels)
    return cases / 1000, left / 1000


def as_op(case: Case) -> Op:
    args = (*case.args, *(arg for _, arg in case.kwargs))
    return case.op.partition(".")[0], str([list(arg.sizes) for arg in args if isinstance(arg, TensorSpec)])


@pytest.mark.parametrize("name", ALL)
def test_attributed_and_orphaned_time_are_the_total_exactly(traces: Path, name: str) -> None:
    run = imported(traces, name)
    cases_ms, left_ms = milliseconds(run)
    assert round(cases_ms * 1e6) + round(left_ms * 1e6) == total_ns(traces / f"{name}.json.gz")


@pytest.mark.parametrize("name", WITH_OPS)
def test_device_times_by_op_are_those_of_a_join_by_correlation_id(traces: Path, name: str) -> None:
    run = imported(traces, name)
    ours: dict[Op, int] = {}
    for case in run.cases:
        if case.op.startswith("aten::"):
            kernels = run.measurements[case.key].path.kernels
            op = as_op(case)
            ours[op] = ours.get(op, 0) + sum(round(kernel.us * 1000) for kernel in kernels)
    assert ours == ns_by_op(traces / f"{name}.json.gz", set(ours))
    assert ours


@pytest.mark.parametrize(
    ("name", "total_ms", "shares"),
    [
        ("mi300x-bert-small-bf16", 0.391,
         {"hipBLASLt": "44.6 %", "AOTriton": "29.1 %", "PyTorch native": "25.7 %", "runtime": "0.6 %"}),
        ("mi300x-timesformer-bf16", 119.853,
         {"PyTorch native": "53.5 %", "hipBLASLt": "45.2 %", "runtime": "0.9 %", "MIOpen": "0.3 %",
          "unknown": "0.1 %"}),
        ("mi300x-qwen1.5-0.5b-prefill-bf16", 43.063,
         {"PyTorch native": "47.6 %", "hipBLASLt": "39.2 %", "AOTriton": "13.2 %", "runtime": "<0.1 %"}),
        ("mi300x-normalization-layers", 1.019, {"PyTorch native": "86.9 %", "MIOpen": "10.5 %", "runtime": "2.6 %"}),
        ("mi300x-resnet-train-8gpu", 100.230,
         {"RCCL/NCCL": "71.4 %", "PyTorch native": "12.2 %", "MIOpen": "11.0 %", "runtime": "3.0 %",
          "composable_kernel": "2.3 %", "rocBLAS": "0.2 %", "hipBLASLt": "<0.1 %"}),
        ("mi300x-inductor-triton", 12.549, {"hipBLASLt": "64.0 %", "AOTriton": "29.4 %", "Triton": "6.7 %"}),
        ("mi210-kernels-only", 5.343,
         {"MIOpen": "55.0 %", "PyTorch native": "43.4 %", "hipBLASLt": "1.7 %"}),
    ],
)  # fmt: skip
def test_kernel_time_by_library(traces: Path, name: str, total_ms: float, shares: dict[str, str]) -> None:
    totals = library_totals(judge(imported(traces, name)))
    assert {row.name: row.share for row in totals} == shares
    assert round(sum(row.us for row in totals) / 1000, 3) == total_ms


def test_a_third_of_a_trace_may_be_of_the_step_before(traces: Path) -> None:
    """Its kernels ran while the profiler recorded, and its ops were called before."""
    run = imported(traces, f"mi300x-{QWEN}")
    (orphans,) = unowned_rows(judge(run))
    assert (orphans.what, orphans.share) == ("kernels without a recorded launch", "30.9 %")
    assert orphans.kernels[0].name.startswith("Cijk_Alik_Bljk_B_BS_BH_Bias_HA_S_SAV_UserArgs_MT256x128x64")
    assert sum(kernel.count for kernel in orphans.kernels) == 463


# --- two devices ---------------------------------------------------------------------------------------------------


def timesformers(traces: Path, here: str, there: str) -> SideBySide:
    return side_by_side(*(imported(traces, f"{gpu}-{TIMESFORMER}") for gpu in (here, there)))


def test_the_product_that_is_28_times_slower_on_mi300x_comes_first(traces: Path) -> None:
    beside = timesformers(traces, "mi300x", "h100")
    first = beside.rows[0]
    assert (first.op, first.signature) == ("aten::bmm.default", "bf16[37632, 8, 64], bf16[37632, 64, 8]")
    assert first.here_us is not None
    assert first.there_us is not None
    assert (round(first.here_us), round(first.there_us), round(first.here_us / first.there_us)) == (1143, 41, 28)
    assert (round(first.cost_us), first.n_here, first.n_there) == (13220, 12, 12)


def test_exchanged_the_same_product_is_what_h100_gains_and_the_softmax_what_it_loses(traces: Path) -> None:
    beside, back = timesformers(traces, "mi300x", "h100"), timesformers(traces, "h100", "mi300x")
    costs = {(row.op, row.phase, row.signature): row.cost_us for row in beside.rows}
    assert {(row.op, row.phase, row.signature): -row.cost_us for row in back.rows} == costs
    assert back.rows[0].op == "aten::_softmax.default"
    assert back.rows[-1].signature == "bf16[37632, 8, 64], bf16[37632, 64, 8]"
    assert beside.only_here == back.only_there


def test_a_convolution_is_the_same_case_where_miopen_and_where_cudnn_serves_it(traces: Path) -> None:
    beside = timesformers(traces, "mi300x", "h100")
    (row,) = (row for row in beside.rows if row.op == "aten::convolution.default")
    assert row.here_library == "MIOpen (ConvAsmImplicitGemmGTC*)"
    assert row.there_library == "cuDNN"


# --- ResNet --------------------------------------------------------------------------------------------------------


def test_layout_changes_and_casts_around_convolutions_have_their_share_of_the_step(traces: Path) -> None:
    """They take longer than the convolutions themselves: 6.7 ms, of 28.7 that are no waiting for the other ranks."""
    run = imported(traces, RESNET)
    rows = {(row.name, row.work): row for row in library_rows(judge(run))}
    layout, cast = rows["MIOpen", "layout"], rows["MIOpen", "cast"]
    assert (round(layout.us), layout.share, layout.count) == (5642, "5.6 %", 999)
    assert (round(cast.us), cast.share, cast.count) == (1033, "1.0 %", 165)
    work = [rows["MIOpen", "conv"].us, rows["composable_kernel", "conv or gemm"].us, rows["rocBLAS", "gemm"].us]
    assert round(sum(work)) == 6109
    assert round(sum(row.us for row in rows.values() if row.name != "RCCL/NCCL")) == 28714


@pytest.mark.parametrize("name", WITH_OPS)
def test_no_call_is_faster_than_its_limit(traces: Path, name: str) -> None:
    timed = [v for v in judge(imported(traces, name)).verdicts if v.device_us is not None and v.floor_us is not None]
    assert [(v.op, v.signature) for v in timed if v.device_us is not None and v.device_us < (v.floor_us or 0.0)] == []
    assert timed or name == NORMS  # whose operands fit the cache


def test_collectives_say_what_they_moved_and_how_fast(traces: Path) -> None:
    items = [item for item in imported(traces, RESNET).header.not_audited if item.what == "c10d::allreduce_"]
    assert [item.reason.partition("; ")[2] for item in items] == [
        "17.6 MB a call at 3.45 GB/s of bus bandwidth, waiting included",
        "5.75 MB a call at 1.48 GB/s of bus bandwidth, waiting included",
    ]


def test_a_convolution_says_what_was_done_around_it(traces: Path) -> None:
    judgement = judge(imported(traces, RESNET))
    dearest = next(verdict for verdict in judgement.verdicts if verdict.op == "aten::convolution_backward.default")
    assert [finding.message.partition(")")[0] for finding in dearest.findings if finding.code == "FBK303"] == [
        "ran batched_transpose_32x32_half and 2 more of its kind (MIOpen (layout transform",
        "ran SubTensorOpWithCastTensor1d (MIOpen (cast",
    ]
    assert [round(float(str(finding.data["kernel_us"]))) for finding in dearest.findings[:2]] == [391, 179]


# --- the command ---------------------------------------------------------------------------------------------------


def test_a_trace_beside_another_becomes_a_run_folder(
    traces: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    here, there = (str(traces / f"{gpu}-{TIMESFORMER}.json.gz") for gpu in ("mi300x", "h100"))
    out = tmp_path / "out"
    assert main(["run", here, "--compare", there, "-o", str(out), "--format", "html,json,csv", "-q"]) == 0
    printed = capsys.readouterr().out
    assert "Imported" in printed
    assert "+13.2 ms 1.14 ms 40.9 µs 28.0× bmm" in printed
    summary = json.loads((out / "summary.json").read_text())
    assert (summary["evidence"], summary["source"]["kind"]) == ("measured", "imported")
    assert summary["coverage"]["cases"]["by_status"]["supported"] == 0
    assert summary["beside"]["rows"][0]["op"] == "aten::bmm.default"
    with (out / "cases.csv").open(encoding="utf-8", newline="") as file:
        dearest = max(csv.DictReader(file), key=lambda row: float(row["step_cost_us"]))
    assert (dearest["op"], dearest["there_device"]) == ("aten::bmm.default", "NVIDIA H100 80GB HBM3")
    page = (out / "report.html").read_text()
    assert "Beside NVIDIA H100 80GB HBM3" in page
    assert "no numbers were compared" in page
    assert main(["report", str(out)]) == 0
    assert "28.0× bmm" in capsys.readouterr().out


def test_the_slow_product_of_timesformer_is_slow_by_the_limits_of_its_own_device_alone(traces: Path) -> None:
    """SPD403 needs no second device: the MI300X trace has it, and the H100's, where the same call is fast, does not."""
    slow = {}
    for gpu in ("mi300x", "h100"):
        verdicts = judge(imported(traces, f"{gpu}-{TIMESFORMER}")).verdicts
        found = [v for v in verdicts if any(f.code == "SPD403" for f in v.findings)]
        slow[gpu] = [v.op for v in sorted(found, key=lambda v: -(v.total_us or 0.0))]
    assert slow["mi300x"][0] == "aten::bmm.default"
    assert slow["h100"] == []  # its patches of three channels took 1.3 ms for 30 GFLOP, once: that is no spread
