"""A ``torch.export`` file as a target: its example or made inputs, open sizes; hostile files are refused unread."""

from __future__ import annotations

import json
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from audit.errors import UsageError
from audit.schema import Source, TensorSpec, Trace
from audit.targets import InputShape
from audit.tracer import exported_program
from audit.tracer.program import Program, run_program
from audit.tracer.recorder import Recorder


class Tagger(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(50, 16)
        self.head = nn.Linear(16, 3)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor | None = None) -> dict[str, torch.Tensor]:
        x = self.head(self.embedding(ids))
        return {"logits": x if mask is None else x.masked_fill(mask[..., None], float("-inf"))}


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    batch, seq = torch.export.Dim("batch"), torch.export.Dim("seq")
    program = torch.export.export(
        Tagger(),
        (torch.randint(0, 50, (2, 7)),),
        {"mask": torch.zeros(2, 7, dtype=torch.bool)},
        dynamic_shapes={"ids": {0: batch, 1: seq}, "mask": {0: batch, 1: seq}},
    )
    path = tmp_path_factory.mktemp("exported") / "tagger.pt2"
    torch.export.save(program, path)
    return path


def traced(path: Path, mode: str | None = None, **shape: Any) -> tuple[Trace, str | None]:
    recorder = Recorder(None)
    source = run_program(Program(str(path), kind="exported", mode=mode, shape=InputShape(**shape)), recorder)
    return recorder.build(Source("exported", path.name), {})[0], source.error


def sizes_of_indices(trace: Trace) -> tuple[int, ...]:
    (lookup,) = [case for case in trace.cases if case.op == "aten::embedding.default"]
    assert isinstance(lookup.args[1], TensorSpec)
    return lookup.args[1].sizes


def test_it_runs_on_the_example_it_was_exported_with(exported: Path) -> None:
    trace, error = traced(exported)
    assert error is None
    assert sizes_of_indices(trace) == (2, 7)
    assert "aten::masked_fill.Scalar" in {case.op for case in trace.cases}


def test_open_sizes_are_set_and_fixed_ones_are_not(exported: Path, tmp_path: Path) -> None:
    trace, error = traced(exported, batch=5, seq=11)
    assert error is None
    assert sizes_of_indices(trace) == (5, 11)
    fixed = tmp_path / "fixed.pt2"
    torch.export.save(torch.export.export(nn.Linear(3, 2), (torch.ones(4, 3),)), fixed)
    with pytest.raises(UsageError, match="dynamic_shapes"):
        exported_program.define(fixed, InputShape(batch=2))


def test_it_trains(exported: Path) -> None:
    trace, error = traced(exported, mode="train")
    assert error is None
    assert "aten::embedding_dense_backward.default" in {case.op for case in trace.cases}


def test_without_an_example_inputs_are_made_from_the_signature(exported: Path, tmp_path: Path) -> None:
    without = rewritten(exported, tmp_path, lambda name, data: None if "sample_inputs" in name else data)
    trace, error = traced(without)
    assert error is None
    assert sizes_of_indices(trace) == (2, 7)


def test_a_program_exported_on_a_gpu_runs_here(exported: Path, tmp_path: Path) -> None:
    gpu = b'"device": {"type": "cuda", "index": 0}'
    moved = rewritten(
        exported, tmp_path, lambda name, data: data.replace(b'"device": {"type": "cpu", "index": null}', gpu)
    )
    with zipfile.ZipFile(moved) as archive:
        assert any(gpu in archive.read(name) for name in archive.namelist())
    assert traced(moved)[1] is None


# --- files of strangers --------------------------------------------------------------------------------------------


def rewritten(path: Path, folder: Path, change: Callable[[str, bytes], bytes | None]) -> Path:
    target = folder / "changed.pt2"
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as new:
        for name in old.namelist():
            data = change(name, old.read(name))
            if data is not None:
                new.writestr(name, data)
    return target


class Bomb:
    """Writes the file ``ran`` when it is unpickled."""

    def __init__(self, ran: Path) -> None:
        self.ran = ran

    def __reduce__(self) -> Any:
        return (Path.touch, (self.ran,))


def changed_graph(edit: Callable[[dict[str, Any], str], None]) -> Callable[[str, bytes, Path], bytes]:
    def change(name: str, data: bytes, ran: Path) -> bytes:
        if not name.endswith("models/model.json"):
            return data
        content = json.loads(data)
        edit(content, f"__import__('pathlib').Path({str(ran)!r}).touch()")
        return json.dumps(content).encode()

    return change


def _size(content: dict[str, Any], code: str) -> None:
    content["graph_module"]["graph"]["tensor_values"]["ids"]["sizes"][0]["as_expr"]["expr_str"] = code


def _target(content: dict[str, Any], code: str) -> None:
    content["graph_module"]["graph"]["nodes"][0]["target"] = "torch.hub.load"


def _input_name(content: dict[str, Any], code: str) -> None:
    content["graph_module"]["graph"]["inputs"][-1]["as_tensor"]["name"] = f"mask={code}"


def _tree(content: dict[str, Any], code: str) -> None:
    signature = content["graph_module"]["module_call_graph"][0]["signature"]
    signature["in_spec"] = signature["in_spec"].replace('"context": "null"', '"context": "{\\"__enum__\\": true}"')


def _weights(name: str, data: bytes, ran: Path) -> bytes:
    if name.endswith("weights_config.json"):
        return data.replace(b'"use_pickle": false', b'"use_pickle": true')
    return pickle.dumps(Bomb(ran)) if "weights/weight_" in name else data


@pytest.mark.parametrize("edit", [_size, _target, _input_name, _tree])
def test_a_graph_with_code_in_it_is_refused(
    edit: Callable[[dict[str, Any], str], None], exported: Path, tmp_path: Path
) -> None:
    change = changed_graph(edit)
    hostile = rewritten(exported, tmp_path, lambda name, data: change(name, data, tmp_path / "ran"))
    with pytest.raises(UsageError) as raised:
        exported_program.define(hostile, InputShape())
    assert raised.value.slug == "unsafe-exported"
    assert not (tmp_path / "ran").exists()


def test_guards_are_left_out_and_not_executed(exported: Path, tmp_path: Path) -> None:
    def guard(content: dict[str, Any], code: str) -> None:
        content["guards_code"] = [code]

    change = changed_graph(guard)
    assert traced(rewritten(exported, tmp_path, lambda name, data: change(name, data, tmp_path / "ran")))[1] is None
    assert not (tmp_path / "ran").exists()


def test_pickled_weights_are_refused_and_a_pickled_example_is_left_out(exported: Path, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    with pytest.raises(UsageError, match="is a pickle"):
        exported_program.define(rewritten(exported, tmp_path, lambda n, d: _weights(n, d, ran)), InputShape())
    bomb = pickle.dumps(Bomb(ran))
    hostile = rewritten(exported, tmp_path, lambda n, d: bomb if "sample_inputs" in n else d)
    assert traced(hostile)[1] is None
    assert not ran.exists()


def test_compiled_code_in_the_archive_is_refused(exported: Path, tmp_path: Path) -> None:
    hostile = rewritten(exported, tmp_path, lambda name, data: data)
    with zipfile.ZipFile(hostile, "a") as archive:
        archive.writestr("tagger/data/aotinductor/model/evil.so", b"\x7fELF")
    with pytest.raises(UsageError, match="compiled code"):
        exported_program.define(hostile, InputShape())


@pytest.mark.parametrize("content", [b"", b"not a zip", b"PK\x05\x06" + b"\0" * 18])
def test_what_is_no_archive_says_so(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "x.pt2").write_bytes(content)
    with pytest.raises(UsageError) as raised:
        exported_program.define(tmp_path / "x.pt2", InputShape())
    assert raised.value.slug == "unreadable-exported"
