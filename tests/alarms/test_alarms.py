"""A healthy device is not accused, and what is counted of it adds up."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from audit.opset.file import write_opset
from audit.schema import Source, Trace
from tests.alarms import zoo
from tests.alarms.__main__ import merged
from tests.alarms.counted import Row, as_json, from_json
from tests.alarms.page import counts, explanations, page, upper_bound
from tests.alarms.recorded import gpu_hidden, in_rounds
from tests.alarms.samples import samples
from tests.replay.conftest import Build

#: One of several classes, cheap, with outputs that a healthy device computes otherwise.
A_FEW = ("addmm", "nn.functional.layer_norm", "nn.functional.gelu", "linalg.inv", "topk", "scatter_add")


def row(op: str = "aten::exp.default", **given: object) -> Row:
    fields = {"op_class": "elementwise", "dtype": "float32", "phase": "forward", "status": "supported"}
    numbers = {"n_outputs": 1, "n_identical": 0, "n_not_compared": 0}
    return Row(**{"key": op, "op": op, **fields, **numbers, **given})  # type: ignore[arg-type]  # literals of a test


def file(*rows: Row, evidence: str = "simulated") -> dict[str, object]:
    counted = {"n_samples": 1, "n_raised": 0, "n_calls": 1, "left": [], "recorded_s": 1.0, "replayed_s": 2.0}
    made = {"evidence": evidence, "device": "sim", "torch": "2.13.0", "date": "2026-11-30", "lost": ""}
    return {**made, **counted, "rows": [as_json(row) for row in rows]}


WRONG = (("NUM201", "divergent", "output 0 is off by 1", "output 0", ""),)


def test_outputs_that_differ_are_what_alarms_are_counted_over() -> None:
    found = counts([row(), row(n_identical=1), row(status="divergent", n_outputs=3, n_identical=1, said=WRONG)])
    assert (found.n_cases, found.n_outputs, found.n_different, found.n_alarms) == (3, 5, 3, 1)


def test_an_output_with_two_findings_is_one_alarm() -> None:
    twice = (*WRONG, ("NUM202", "divergent", "output 0 has NaN", "output 0", ""))
    assert row(said=twice).n_alarmed == 1


def test_a_known_behaviour_is_counted_apart() -> None:
    tf32 = row(said=(("NUM201", "supported", "output is off by 1e-3", "output", "TF32 is on"),))
    assert (counts([tf32]).n_known, counts([tf32]).n_alarms) == (1, 0)
    maybe = row(said=(("NUM201", "divergent", "output is off by 1e-3", "output", "perhaps: TF32 is on"),))
    assert (counts([maybe]).n_known, counts([maybe]).n_alarms) == (0, 1)


def test_a_row_comes_back_as_it_was_written() -> None:
    written = row(said=WRONG, where="f32[4]")
    assert from_json(json.loads(json.dumps(as_json(written)))) == written


def test_a_note_stands_below_the_summary() -> None:
    before, after = page([file(row())], ["Measured before NUM215."]).split("Measured before NUM215.\n")
    assert before.endswith("|\n\n")
    assert after.startswith("\n## ")


def test_a_case_of_two_shards_counts_once() -> None:
    assert len(merged([file(row(), row("aten::log.default")), file(row())])["rows"]) == 2


def test_a_case_that_another_shard_replayed_is_not_left() -> None:
    whole = merged([{**file(row()), "left": ["aten::log.default"]}, file(row("aten::log.default"))])
    part = merged([{**file(row()), "left": ["aten::log.default"]}, {**file(row()), "left": ["aten::log.default"]}])
    assert (whole["left"], part["left"]) == ([], ["aten::log.default"])


def test_the_page_has_the_share_that_was_replayed() -> None:
    assert "all 1 distinct cases of 1 ops replayed in 2 s." in page([file(row())])
    part = {**file(row()), "left": ["aten::log.default", "aten::sin.default"]}
    assert "1 (33.3 %) of 3 distinct cases of 1 ops replayed in 2 s." in page([part])


def test_a_shard_without_rows_is_told() -> None:
    assert merged([file(row())], n_wanted=3)["lost"] == "2 jobs ended without their rows"


def test_the_page_has_counts_denominators_and_inconclusive_shares() -> None:
    unsaid = row("aten::mm.default", op_class="gemm", status="inconclusive", n_outputs=0,
                 said=(("INC902", "inconclusive", "no reference", "", ""),))  # fmt: skip
    text = page([file(row(), row("aten::sin.default", status="divergent", said=WRONG), unsaid)])
    assert "| elementwise | 2 | 0 | 2 | 2 | 0 | 1 | 500.00 | 974.68 |" in text
    assert "| gemm | 1 | 100.0 % (1 INC902) | 0 | 0 | 0 | 0 |  |  |" in text
    assert "| **all** | 2,001 | < 0.1 % (1 INC902) | 2,000 | 2,000 | 0 | 0 | 0.00 | 1.50 |" in page(
        [file(unsaid, *(row(f"aten::op{place}.default") for place in range(2000)))]
    )
    assert "| NUM201 | `aten::sin.default` | 1 | float32 | output 0 is off by 1 | **not explained** |" in text


@pytest.mark.parametrize(
    ("n_alarms", "n_different", "in_1000"),
    [(0, 3000, 1.00), (0, 2994, 1.0), (0, 247, 12.06), (2, 2866, 2.20), (8, 2866, 5.03), (1, 1, 1000.0)],
)
def test_few_outputs_prove_little(n_alarms: int, n_different: int, in_1000: float) -> None:
    assert 1000 * upper_bound(n_alarms, n_different) == pytest.approx(in_1000, abs=0.006)


def test_samples_and_programs_of_one_device_are_counted_apart() -> None:
    programs = {**file(row(n_outputs=2)), "source": "zoo", "n_samples": 70, "n_calls": 32_280, "replayed_s": 0.0}
    text = page([file(row()), programs])
    assert "| the simulated device | the samples of torch's op tests | 1 | 0 | 1 | 1 | 0 | 0 | 0.00 | 950.00 |" in text
    assert "| the simulated device | the programs of the zoo | 1 | 0 | 2 | 2 | 0 | 0 | 0.00 | 776.39 |" in text
    assert "70 programs, 32,280 calls, all 1 distinct cases of 1 ops replayed." in text


def test_the_cases_of_programs_are_spread_over_the_jobs(tmp_path: Path) -> None:
    build = Build()
    cases = tuple(build.case("aten::exp.default", build.tensor((size,))) for size in (2, 3, 4))
    source, notes = Source("module", "tests.zoo"), ("merged from 2 files",)
    write_opset(tmp_path / "zoo.audit", Trace(source, {}, cases, n_recorded=3, notes=notes), None)
    shards = [zoo.recorded(tmp_path / "zoo.audit", tmp_path, shard, 2) for shard in (0, 1)]
    assert [shard.cases for shard in shards] == [(cases[0], cases[2]), (cases[1],)]
    assert [shard.n_samples for shard in shards] == [2, 0]


def test_every_explanation_is_a_sentence_for_a_code() -> None:
    for known in explanations():
        assert known.code[:3] in ("SUP", "FBK", "NUM", "INC")
        assert len(known.why) > 20


def test_each_op_and_dtype_has_its_turn_before_one_has_a_second() -> None:
    build = Build()
    narrow, wide = build.tensor((4,)), build.tensor((4,), "float64")
    first, second = build.case("aten::exp.default", narrow), build.case("aten::exp.default", build.tensor((8,)))
    view = build.case("aten::view.default", narrow, (2, 2))
    other = build.case("aten::exp.default", wide)
    assert in_rounds([view, first, second, other]) == [first, other, second, view]


class FiveSamples:
    """An entry of OpInfo with samples of 1, 2, 3, 4 and more elements than are looked at."""

    dtypes = (torch.float32,)
    supports_autograd = False

    def sample_inputs(self, device: str, dtype: torch.dtype, requires_grad: bool) -> list[SimpleNamespace]:
        sizes = (1, 2, 3, 4, 1 << 20)
        return [SimpleNamespace(input=torch.empty(n, dtype=dtype), args=(), kwargs={}) for n in sizes]


def test_samples_are_spread_over_the_list_and_bounded_in_size() -> None:
    chosen = samples([FiveSamples()], ["float32", "int64"], 2)
    assert [(sample.dtype, sample.given.input.numel()) for sample in chosen] == [("float32", 1), ("float32", 3)]


def test_samples_are_made_as_if_there_were_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    with gpu_hidden():
        assert not torch.cuda.is_available()
    assert torch.cuda.is_available()


def counted(checkout: Path, output: Path, *options: str) -> list[Row]:
    """What the command counts, in a process of its own: autograd has threads before a device can be registered."""
    command = [sys.executable, "-m", "tests.alarms", *options, "-o", str(output)]
    subprocess.run(command, cwd=checkout, check=True, capture_output=True)
    return [from_json(values) for values in json.loads(output.read_text())["rows"]]


@pytest.mark.usefixtures("simulated_device")
def test_a_healthy_simulated_device_is_not_accused(checkout: Path, tmp_path: Path) -> None:
    options = ("--ops", *A_FEW, "--dtypes", "float32", "bfloat16", "--samples", "1")
    found = counted(checkout, tmp_path / "rows.json", *options)
    assert [(row.op, row.said) for row in found if row.alarms] == []
    total = counts(found)
    assert total.n_cases > 30
    assert total.n_different > 5
    assert total.n_inconclusive == 0


@pytest.mark.gpu
@pytest.mark.timeout(400)
def test_a_healthy_gpu_is_not_accused(checkout: Path, tmp_path: Path) -> None:
    options = ("--device", "cuda", "--jobs", "8", "--samples", "2", "--time-budget", "150")
    found = counted(checkout, tmp_path / "rows.json", *options)
    total = counts(found)
    assert total.n_different > 1000
    assert total.n_alarms <= total.n_different / 1000
