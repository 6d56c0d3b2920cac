"""Several opsets become one: calls add up, nothing is lost, values come from the file that has them."""

from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path

import pytest

from audit.errors import UsageError
from audit.opset import extract_values, read_opset, write_opset
from audit.opset.merging import merge_opsets
from audit.opset.ranks import copy_or_merge, rank_files
from audit.opset.tensors import write_tensors
from audit.report.stored import StoredSpan, StoredValues
from audit.schema import Case, Copy, NotAudited, Source, TensorSpec, Trace, Values
from tests.opset.conftest import parts_of

SPEC = TensorSpec((2,), (1,), "float32", extent=2)
EXP = Case("exp-0", "aten::exp.default", (SPEC,), n_calls=3, modules=("a",), sources=("x.py:1",))
SIN = Case("sin-0", "aten::sin.default", (SPEC,), n_calls=1)
TRACE = Trace(
    Source("script", "x.py", n_steps=2), {"torch": "2.13.0", "os": "Linux"}, (EXP, SIN), (NotAudited("y", "z", 2),), 6
)


def write(path: Path, trace: Trace, **values: tuple[float, float]) -> Path:
    """An opset with values of two float32 for the cases named."""
    stored = {key.replace("_", "-"): struct.pack("<2f", *numbers) for key, numbers in values.items()}
    cases = tuple(
        replace(case, values={0: Values(stored=case.key in stored, n_sampled=1)}) if case.key in stored else case
        for case in trace.cases
    )
    tensors = {f"{key}/0": ("F32", 2) for key in stored}
    write_opset(
        path,
        replace(trace, cases=cases),
        (lambda file: write_tensors(file, tensors, stored.values())) if stored else None,
    )
    read_opset(path)
    return path


def span(path: Path, key: str, folder: Path) -> StoredSpan | None:
    values = extract_values(path, folder)
    assert values is not None
    with StoredValues(values) as stored:
        return stored.span(key, 0, 100)


def test_counts_add_up_and_places_are_joined(tmp_path: Path) -> None:
    other = replace(TRACE, cases=(replace(EXP, n_calls=4, modules=("b",), sources=("x.py:1", "y.py:2")),), n_recorded=6)
    paths = [write(tmp_path / "a", TRACE), write(tmp_path / "b", other)]
    merged = merge_opsets(paths, ["a", "b"], tmp_path / "c", "files")
    assert merged == read_opset(tmp_path / "c")
    assert [(case.key, case.n_calls, case.modules, case.sources) for case in merged.cases] == [
        ("exp-0", 7, ("a", "b"), ("x.py:1", "y.py:2")),
        ("sin-0", 1, (), ()),
    ]
    assert merged.not_audited == (NotAudited("y", "z", 4),)
    assert merged.n_recorded == 12 == sum(c.n_calls for c in merged.cases) + sum(n.n_calls for n in merged.not_audited)
    assert merged.source == Source("script", "x.py", n_steps=2)
    assert merged.notes == ("merged from 2 files",)


def test_values_come_from_the_first_file_that_has_them(tmp_path: Path) -> None:
    paths = [
        write(tmp_path / "a", TRACE, sin_0=(1.0, 2.0)),
        write(tmp_path / "b", TRACE, exp_0=(3.0, 4.0), sin_0=(5.0, 6.0)),
    ]
    merged = merge_opsets(paths, ["a", "b"], tmp_path / "c", "files")
    assert all(case.values[0].stored for case in merged.cases)
    assert span(tmp_path / "c", "sin-0", tmp_path) == StoredSpan("float32", struct.pack("<2f", 1.0, 2.0))
    assert span(tmp_path / "c", "exp-0", tmp_path) == StoredSpan("float32", struct.pack("<2f", 3.0, 4.0))


def test_programs_that_differ_are_named_with_what_differs_in_their_surroundings(tmp_path: Path) -> None:
    other = replace(
        TRACE, source=Source("script", "y.py", error="it fell"), environment={"torch": "2.12.0", "os": "Linux"}
    )
    merged = merge_opsets(
        [write(tmp_path / "a", TRACE), write(tmp_path / "b", other)], ["A", "B"], tmp_path / "c", "files"
    )
    assert merged.source == Source("merge", "x.py, y.py", error="B: it fell")
    assert merged.environment == TRACE.environment
    assert merged.notes == ("merged from 2 files", "torch differs: 2.13.0 (A), 2.12.0 (B)")


def test_a_real_trace_merged_with_itself_has_its_values_and_twice_its_calls(traced: Path, tmp_path: Path) -> None:
    merged = merge_opsets([traced, traced], ["1", "2"], tmp_path / "c", "files")
    assert parts_of(tmp_path / "c")[1] == parts_of(traced)[1]
    assert {case.key: case.n_calls for case in merged.cases} == {
        case.key: 2 * case.n_calls for case in read_opset(traced).cases
    }


def test_ranks_are_merged_in_their_order_and_may_stand_where_one_of_them_stood(tmp_path: Path) -> None:
    for rank in (10, 2, 0):
        write(tmp_path / f"m[1].rank{rank}.audit", replace(TRACE, source=replace(TRACE.source, error=f"e{rank}")))
    assert [path.name for path in rank_files(tmp_path / "m[1].audit")] == [f"m[1].rank{n}.audit" for n in (0, 2, 10)]
    merged = copy_or_merge(tmp_path / "m[1].audit", tmp_path / "m[1].rank0.audit")
    assert merged.source.error == "rank 0: e0; rank 2: e2; rank 10: e10"
    assert read_opset(tmp_path / "m[1].rank0.audit").cases[0].n_calls == 9


def test_values_damaged_on_their_way_are_not_merged(tmp_path: Path) -> None:
    path = write(tmp_path / "a", TRACE, sin_0=(1.0, 2.0))
    path.write_bytes(path.read_bytes().replace(struct.pack("<2f", 1.0, 2.0), struct.pack("<2f", 1.0, 3.0)))
    with pytest.raises(UsageError, match=r"values.safetensors is damaged.* \[not-an-opset\]$"):
        merge_opsets([path, path], ["a", "b"], tmp_path / "c", "files")
    assert not (tmp_path / "c").exists()


def test_nothing_to_merge_is_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no rank files like m.rank0.audit to merge \[unreadable-opset\]$"):
        copy_or_merge(tmp_path / "m.audit", tmp_path / "c")


def test_what_was_seen_beside_the_calls_and_recomputed_adds_up_too(tmp_path: Path) -> None:
    seen = replace(
        TRACE,
        cases=(replace(EXP, n_recomputed=1), SIN),
        not_audited=(
            NotAudited("worker", "a process", 0, n_seen=2, copies=(Copy("DtoH", 64),)),
            NotAudited("enter", "note", 2, computes=False),
        ),
    )
    merged = merge_opsets([write(tmp_path / f"{n}.audit", seen) for n in "ab"], ["a", "b"], tmp_path / "m.audit", "x")
    assert merged.not_audited == (
        NotAudited("enter", "note", 4, computes=False),
        NotAudited("worker", "a process", 0, n_seen=4, copies=(Copy("DtoH", 128, 2),)),
    )
    assert {case.op: case.n_recomputed for case in merged.cases} == {EXP.op: 2, SIN.op: 0}
