"""The comparison of a trace with a run: the CPU in the GPU's place gives 100 %, and a trace that lacks an op fails."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
import torch

from tests.fidelity.__main__ import PROGRAMS, examine
from tests.fidelity.comparison import Comparison, compare

#: Composites, autocast and an optimizer; without attention, which a trace lays out as a GPU does and the CPU does not.
QUICK = "cnn_amp"


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fidelity")


@pytest.fixture(scope="module")
def examined(output: Path) -> Comparison:
    if torch.cuda.is_available():
        pytest.skip("on a machine with a GPU `make fidelity` compares with it")
    return examine(QUICK, "cpu", output)


@pytest.mark.slow
def test_a_replayed_trace_leads_to_every_op_of_the_program(examined: Comparison) -> None:
    assert examined.missed == ()
    assert examined.failed == ()
    assert examined.n_calls > 1000
    assert examined.calls_fraction == examined.time_fraction == 1.0
    assert examined.passes


@pytest.mark.slow
@pytest.mark.usefixtures("examined")
def test_a_trace_that_lacks_one_op_fails(output: Path) -> None:
    op = "aten::convolution.default"
    observed, hosts, cases = (
        json.loads((output / f"{QUICK}.{what}.json").read_text()) for what in ("observed", "hosts", "replayed")
    )
    lacking = [case for case in cases if case["op"] != op]
    assert len(lacking) < len(cases)
    comparison = compare(QUICK, observed, hosts, lacking)
    assert comparison.calls_fraction < 1.0
    assert op.removesuffix(".default") in {difference.op for difference in comparison.critical}
    assert not comparison.passes


def test_what_is_missed_counts_by_its_calls_and_by_its_time() -> None:
    observed = [["aten::mm", ["float"], "[[2, 2]]", 9, 10.0], ["aten::exp", ["float"], "[[2]]", 1, 90.0]]
    replayed = [
        {"op": "aten::mm.default", "phase": "forward", "n_calls": 3, "failed": "", "ran": [[*observed[0][:3], 3, 1.0]]}
    ]
    on_host = [["aten::add", ["float"], "[[]]", 4, 0.0]]
    comparison = compare("program", [*observed, ["aten::add", ["float"], "[[]]", 4, 50.0]], on_host, replayed)
    assert (comparison.calls_fraction, comparison.time_fraction) == (0.9, pytest.approx(0.1))
    assert [difference.op for difference in comparison.missed] == ["aten::exp"]
    assert comparison.extra_fraction == 0.0


def test_flat_weights_of_a_recurrent_layer_are_no_other_call() -> None:
    dtypes = ["float", "TensorList", "Scalar", "float", "float"]
    flat = ["aten::_cudnn_rnn", dtypes, "[[32, 3, 32], [], [], [12672], [2, 3, 32]]", 2, 9.0]
    apart = ["aten::_cudnn_rnn", [*dtypes[:3], "", "float"], "[[32, 3, 32], [], [], [], [2, 3, 32]]", 2, 9.0]
    case = {"op": "aten::gru.input", "phase": "forward", "n_calls": 1, "failed": "", "ran": [apart]}
    assert compare("program", [flat], [], [case]).missed == ()


def test_every_program_ends_its_set_up_where_the_observation_begins() -> None:
    programs = sorted(PROGRAMS.glob("*.py"))
    assert len(programs) >= 16
    for program in programs:
        assert program.read_text().count("torch.cuda.synchronize()") == 1, program.name


@pytest.mark.gpu
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", sorted(path.stem for path in PROGRAMS.glob("*.py")))
def test_a_trace_made_without_a_gpu_leads_to_what_the_gpu_runs(name: str, tmp_path: Path) -> None:
    if not torch.cuda.is_available():
        pytest.skip("needs a HIP or CUDA GPU")
    comparison = examine(name, "cuda", tmp_path)
    assert comparison.passes, json.dumps([dataclasses.asdict(item) for item in comparison.missed[:20]], indent=1)
