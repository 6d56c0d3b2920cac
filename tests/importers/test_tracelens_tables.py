"""Our numbers beside the tables that TraceLens (AMD-AGI/TraceLens, MIT licence) publishes of the same traces.

``tracelens_ops.csv`` has every row of their ``ops_summary.csv`` (device time and calls by the op that launched),
``tracelens_cases.csv`` their rows by sizes, ``tracelens_totals.csv`` their sums by category and of the timeline: facts
of theirs as they print them, with the file and the commit, and beside them which of our cases hold the same work and
why these are other ops. A difference that is not written there is a failure.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TypeAlias

import pytest

from audit.importers.device_time import busy_us_by_device
from audit.importers.kineto import read_recording
from audit.importers.owners import Owner, Owners, nest
from audit.importers.recording import Recording, read_events
from audit.rules.floor import floor_of
from audit.rules.rates import product_of, rates_of
from audit.run_records import Run
from audit.schema import Case, TensorSpec
from tests.importers.joined import device_events, events

pytestmark = pytest.mark.evidence

#: They subtract start from end in doubles of microseconds since the host was started: 2^-11 µs apart at these times.
#: Ours are the durations as written.
CLOCK_US = 2.0**-11
#: An op, or an op and the phase that it ran in.
Name: TypeAlias = str


def table(name: str) -> list[dict[str, str]]:
    with (Path(__file__).parent / f"tracelens_{name}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def traces_of(name: str) -> list[str]:
    return list(dict.fromkeys(row["trace"] for row in table(name)))


def imported(traces: Path, name: str) -> Run:
    return read_recording(traces / f"{name}.json.gz")


def cases_named(run: Run, names: Collection[Name]) -> Iterator[Case]:
    for case in run.cases:
        base = case.op.partition(".")[0]
        if base in names or f"{base}/{case.phase}" in names:
            yield case


def device_us(run: Run, cases: Collection[Case], left_out: str = "") -> tuple[float, int]:
    """What ran for these cases and for how long, without a kernel that the other side leaves out."""
    kernels = [k for case in cases for k in run.measurements[case.key].path.kernels if k.name != left_out]
    return sum(kernel.us for kernel in kernels), sum(kernel.count for kernel in kernels)


# --- by op ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", traces_of("ops"))
def test_every_op_has_their_device_time_and_their_calls(traces: Path, name: str) -> None:
    run = imported(traces, name)
    groups: dict[str, list[dict[str, str]]] = defaultdict(list)
    for row in table("ops"):
        if row["trace"] == name:
            groups[row["our_ops"]].append(row)
    of_them: list[str] = []
    for names, rows in groups.items():
        cases = list(cases_named(run, names.split()))
        of_them += [case.key for case in cases]
        us, n_records = device_us(run, cases, rows[0]["left_out"])
        assert us == pytest.approx(sum(float(row["their_us"]) for row in rows), rel=0, abs=n_records * CLOCK_US), names
        n_calls = sum(int(row["their_calls"]) - int(row["their_calls_inside"]) for row in rows)
        assert sum(case.n_calls for case in cases) == n_calls, names
    assert sorted(of_them) == sorted(case.key for case in run.cases)


def test_an_op_of_another_name_has_a_reason() -> None:
    for row in table("ops"):
        is_same = row["our_ops"] == row["their_op"] and row["left_out"] == "" and row["their_calls_inside"] == "0"
        assert is_same or row["why"] or row["their_op"].startswith("aten::add_"), row


def test_the_last_digits_of_theirs_are_those_of_doubles(traces: Path) -> None:
    """Done as they do it, the sum of the products is theirs to the last digit."""
    path = traces / "mi300x-timesformer-bf16.json.gz"
    everything = events(path)
    products = [event for event in everything if event.get("cat") == "cpu_op" and event["name"] == "aten::bmm"]
    launched = {
        event["args"]["correlation"]
        for event in everything
        if event.get("cat") == "cuda_runtime"
        and any(op["ts"] <= event["ts"] <= op["ts"] + op["dur"] and op["tid"] == event["tid"] for op in products)
    }
    ran = [event for event in device_events(path) if event["args"]["correlation"] in launched]
    assert sum((event["ts"] + event["dur"]) - event["ts"] for event in ran) == 41328.7802734375
    assert sum(round(event["dur"] * 1000) for event in ran) == 41_328_781


# --- by sizes ------------------------------------------------------------------------------------------------------


def case_of_sizes(run: Run, op: str, sizes: str) -> list[Case]:
    """More than one where strides differ."""
    return [case for case in cases_named(run, (op,)) if sizes_text(case) == sizes]


def sizes_text(case: Case) -> str:
    return " ".join("x".join(map(str, arg.sizes)) for arg in case.args if isinstance(arg, TensorSpec))


@pytest.mark.parametrize("name", traces_of("cases"))
def test_calls_of_the_same_sizes_have_their_device_time(traces: Path, name: str) -> None:
    run = imported(traces, name)
    for row in table("cases"):
        if row["trace"] == name:
            cases = case_of_sizes(run, row["our_op"], row["sizes"])
            us, n_records = device_us(run, cases)
            assert us == pytest.approx(float(row["their_us"]), rel=0, abs=n_records * CLOCK_US), row
            assert sum(case.n_calls for case in cases) == int(row["calls"]), row


@pytest.mark.parametrize("name", traces_of("cases"))
def test_the_work_behind_a_limit_is_theirs(traces: Path, name: str) -> None:
    """Told from the limit that we print: arithmetic, where that is what limits, else the bytes that must move.

    Theirs counts the addition of an ``addmm``'s bias, one operation an element; ours leaves out what the last level
    of cache can hold.
    """
    run = imported(traces, name)
    bandwidth_gbs, tflops = rates_of(run.header.device, None, "bfloat16")
    product = product_of(run.header.device)
    assert bandwidth_gbs
    assert tflops
    assert product is not None
    assert product.cache_mib is not None
    for row in table("cases"):
        if row["trace"] == name:
            (case, *_) = case_of_sizes(run, row["our_op"], row["sizes"])
            limit = floor_of(case, run.header.device)
            assert limit is not None
            if limit.bound == "compute":
                theirs = float(row["their_gflop"]) - bias_gflop(case)
                assert limit.us * tflops / 1e3 == pytest.approx(theirs, rel=1e-9), row
            else:
                moved_mib = limit.us * bandwidth_gbs * 1e3 / (1 << 20) + product.cache_mib
                assert moved_mib == pytest.approx(float(row["their_mib"]), rel=1e-9), row


def bias_gflop(case: Case) -> float:
    if not case.op.startswith("aten::addmm"):
        return 0.0
    _, left, right = (arg.sizes for arg in case.args[:3] if isinstance(arg, TensorSpec))
    return left[0] * right[1] / 1e9


def test_their_roofline_is_at_rates_that_were_reached_and_ours_at_the_datasheets(traces: Path) -> None:
    """708 TFLOP/s and 1307.4: an MI300X has 65.7 % of theirs and 35.5 % of ours in the same product."""
    run = imported(traces, "mi300x-timesformer-bf16")
    (row,) = (row for row in table("cases") if row["sizes"] == "3072 25089x768 768x3072" and row["their_roofline_us"])
    (case,) = case_of_sizes(run, row["our_op"], row["sizes"])
    limit, time = floor_of(case, run.header.device), run.measurements[case.key].device_time
    assert limit is not None
    assert time is not None
    assert time.total_us is not None
    assert float(row["their_gflop"]) / float(row["their_roofline_us"]) == pytest.approx(0.708)
    assert round(100 * float(row["their_roofline_us"]) / (float(row["their_us"]) / 12), 1) == 65.7
    assert round(100 * limit.us / (time.total_us / 12), 1) == 35.5


# --- sums ----------------------------------------------------------------------------------------------------------


def without(recording: Recording, left_out: str) -> Recording:
    """Only what some call launched, and no kernel of that name."""
    owners, texts, records = Owners(recording, nest(recording)), recording.names.texts, recording.records
    kept = [
        place
        for place, name in enumerate(records.name)
        if texts[name] != left_out and isinstance(owners.of(place), Owner)
    ]
    for column in (records.name, records.start_us, records.ns, records.place):
        column[:] = type(column)(column.typecode, [column[place] for place in kept])
    return recording


@pytest.mark.parametrize("row", table("totals"), ids=lambda row: f"{row['trace']} {row['their_row']}")
def test_sums_are_theirs(traces: Path, row: dict[str, str]) -> None:
    """By category with the fills, which their later tables have; of the timeline without orphans."""
    run = imported(traces, row["trace"])
    if row["our_ops"] == "(busy)":
        recording = without(read_events(traces / f"{row['trace']}.json.gz"), row["left_out"])
        us, n_records = sum(busy_us_by_device(recording).values()), len(recording.records.ns)
    elif row["our_ops"] == "(collectives)":
        kernels = [kernel for item in run.header.not_audited if "c10d" in item.what for kernel in item.kernels]
        us, n_records = sum(kernel.us for kernel in kernels), sum(kernel.count for kernel in kernels)
    else:
        us, n_records = device_us(run, list(cases_named(run, row["our_ops"].split())))
    assert us == pytest.approx(1000 * float(row["their_ms"]), rel=0, abs=n_records * CLOCK_US)
