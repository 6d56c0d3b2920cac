"""What a private trace keeps of each field, and how its names come back."""

from __future__ import annotations

import dataclasses
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from audit.errors import UsageError
from audit.opset import read_opset, write_opset
from audit.opset.merging import merge_opsets
from audit.privacy.name_map import NameMap, map_path, read_map, with_names, write_map
from audit.privacy.own_words import masked
from audit.privacy.private_trace import private_environment, private_trace
from audit.pseudonyms import Pseudonyms
from audit.run_records import Run
from audit.schema import Case, DeviceInfo, DeviceTimes, Named, NotAudited, Source, TensorSpec, Timing, Trace, Values
from tests.opset.test_merging import EXP, SIN, TRACE
from tests.test_store import HEADER

#: What becomes of every field of what is in a file. A new field must be decided upon here, and then in the code.
DECIDED = {
    Trace: "source environment cases not_audited n_recorded notes elsewhere",
    DeviceTimes: "device evidence environment times ceilings",
    Source: "kind name mode n_steps error private",
    Case: "key op args kwargs phase grads settings n_calls modules sources values n_recomputed",
    NotAudited: "what reason n_calls n_seen computes missed kernels copies nbytes n_ranks",
    TensorSpec: "sizes strides dtype offset extent storage layout requires_grad host conj neg",
    Named: "kind name",
    Values: "stored n_sampled minimum maximum mean std n_nan n_posinf n_neginf zero_fraction subnormal_fraction "
    "n_structured n_distinct max_multiplicity order pattern",
}


@pytest.mark.parametrize("cls", list(DECIDED))
def test_every_field_of_a_file_was_decided_upon(cls: type) -> None:
    assert [field.name for field in dataclasses.fields(cls)] == DECIDED[cls].split()


def private(trace: Trace) -> tuple[Trace, NameMap]:
    found, name_map = private_trace(trace)
    assert name_map is not None
    return found, name_map


def test_names_become_pseudonyms_the_same_for_the_same() -> None:
    cases = (replace(EXP, modules=("a.b", "c"), sources=("x.py:1",)), replace(SIN, modules=("c",), sources=("x.py:1",)))
    trace, name_map = private(replace(TRACE, cases=cases))
    assert [(case.modules, case.sources) for case in trace.cases] == [
        (("module-1", "module-2"), ("line-1",)),
        (("module-2",), ("line-1",)),
    ]
    assert name_map.names["module-2"] == "c"
    assert trace.source == Source("script", "program-1", n_steps=2, private=(name_map.id,))


def test_an_id_tells_nothing_of_the_names_and_a_private_trace_stays_as_it_is() -> None:
    once, again = private(TRACE), private(TRACE)
    assert once[1].names == again[1].names
    assert once[1].id != again[1].id, "drawn, for a digest of names could be guessed"
    assert private_trace(once[0]) == (once[0], None)


@pytest.mark.parametrize(
    ("what", "shown"),
    [
        ("aten::sin.default", "aten::sin.default"),
        ("c10d::allreduce_", "c10d::allreduce_"),
        ("acme::fuse.default", "op-1"),
        ("torch.compile", "torch.compile"),
        ("kernel _acme_fused_kernel", "kernel word-1"),
    ],
)
def test_ops_of_pytorch_are_named_and_others_are_not(what: str, shown: str) -> None:
    reason = "collective: needs the other ranks"
    trace, name_map = private(replace(TRACE, not_audited=(NotAudited(what, reason, 2, 3),)))
    assert trace.not_audited == (NotAudited(shown, reason, 2, 3),)
    reason = "argument of type AcmeThing"
    [item] = private(replace(TRACE, not_audited=(NotAudited(what, reason, 2, 3),)))[0].not_audited
    assert re.fullmatch(r"argument of type word-\d", item.reason)
    assert shown == what or "acme" in json.dumps(dict(name_map.names))


def test_a_case_that_cannot_be_replayed_without_its_names_is_counted_as_not_audited() -> None:
    custom = Case("fuse-0", "acme::fuse.default", EXP.args, n_calls=4)
    text = Case("assert-0", "aten::_assert_async.msg", (*EXP.args, "acme says no"), n_calls=5)
    public = Case("div-0", "aten::div.Tensor_mode", EXP.args, (("rounding_mode", "floor"),), n_calls=6)
    trace, _ = private(replace(TRACE, cases=(custom, text, public), not_audited=(), n_recorded=15))
    assert [case.key for case in trace.cases] == ["div-0"]
    assert {item.what: item.n_calls for item in trace.not_audited} == {"op-1": 4, "aten::_assert_async.msg": 5}
    assert "acme" not in json.dumps(dataclasses.asdict(trace))


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        ("RuntimeError: acme at x.py:3", "RuntimeError (error-1)"),
        ("AcmeError: no", "an exception (error-1)"),
        ("the program exited with 'acme'", "an exception (error-1)"),
    ],
)
def test_an_exception_is_named_where_python_names_it(error: str, shown: str) -> None:
    trace, name_map = private(replace(TRACE, source=replace(TRACE.source, error=error)))
    assert trace.source.error == shown
    assert name_map.names["error-1"] == error


def test_our_own_sentences_stay_and_words_of_others_go() -> None:
    names = Pseudonyms()
    assert masked("argument of type SecretThing", names) == "argument of type word-1"
    assert masked("not strided tensor (sparse_coo) in größe_x\u202e\0 73912847", names).startswith(
        "not strided tensor ("
    )
    assert set(names.names().values()) >= {"SecretThing", "größe_x", "73912847"}


def test_surroundings_are_versions_hardware_and_known_settings() -> None:
    assert private_environment(
        {
            "python": "3.11.7",
            "os": "Linux-6.1.0-acme-prod-x86_64-with-glibc2.36",
            "torch": "2.13.0+rocm7.1.acme",
            "hip": "7.1.25424-acme",
            "arch_list": "gfx90a gfx942",
            "gpus": "gfx942 acme",
            "gpu 0": "AMD Instinct MI300X (gfx942:sramecc+:xnack-), 304 units, 191.7 GiB",
            "gpu 1": "Acme Prototype (gfx942), 304 units",
            "HSA_OVERRIDE_GFX_VERSION": "9.4.2",
            "MIOPEN_USER_DB_PATH": "~/acme",
            "TORCH_BLAS_PREFER_HIPBLASLT": "1",
            "HIP_ACME": "1",
            "acme": "1.0",
        }
    ) == {
        "python": "3.11.7",
        "os": "Linux-6.1",
        "torch": "2.13.0+rocm7.1",
        "hip": "7.1.25424",
        "arch_list": "gfx90a gfx942",
        "gpu 0": "AMD Instinct MI300X (gfx942:sramecc+:xnack-), 304 units, 191.7 GiB",
        "gpu 1": "(gfx942), 304 units",
        "HSA_OVERRIDE_GFX_VERSION": "9.4.2",
        "MIOPEN_USER_DB_PATH": "(set)",
        "TORCH_BLAS_PREFER_HIPBLASLT": "1",
    }


# --- names restored --------------------------------------------------------------------------------------------------


def run_of(trace: Trace) -> Run:
    header = replace(HEADER, source=trace.source, not_audited=trace.not_audited, notes=trace.notes)
    return Run(header, trace.cases, {})


def test_a_run_of_a_private_trace_gets_its_names_back() -> None:
    whole = replace(
        TRACE,
        source=replace(TRACE.source, error="AcmeError: module-1 is line-1"),
        not_audited=(NotAudited("acme::f", "argument of type Acme", 2),),
    )
    trace, name_map = private(whole)
    run = with_names(run_of(trace), [name_map])
    assert [(case.modules, case.sources) for case in run.cases] == [
        (case.modules, case.sources) for case in whole.cases
    ]
    assert run.header.not_audited == whole.not_audited
    assert run.header.source.name == "x.py"
    assert run.header.source.error == "an exception (AcmeError: module-1 is line-1)"


def test_ranks_of_other_modules_keep_apart_and_each_map_restores_its_own(tmp_path: Path) -> None:
    traces = [replace(TRACE, cases=(replace(EXP, modules=(name,)),)) for name in ("encoder", "decoder")]
    made = [private(trace) for trace in traces]
    paths = [tmp_path / "a.audit", tmp_path / "b.audit"]
    for path, (trace, _) in zip(paths, made, strict=True):
        write_opset(path, trace, None)
    merged = merge_opsets(paths, ["a.audit", "b.audit"], tmp_path / "c.audit", "files")
    maps = [name_map for _, name_map in made]
    assert merged.source.private == (maps[0].id, maps[1].id)
    assert merged.cases[0].modules == (f"module-1@{maps[0].id}", f"module-1@{maps[1].id}")
    assert "audit" not in " ".join(merged.notes), "the names of the files are not in it"
    assert with_names(run_of(merged), maps).cases[0].modules == ("encoder", "decoder")
    assert with_names(run_of(merged), maps[1:]).cases[0].modules == (f"module-1@{maps[0].id}", "decoder")
    assert read_opset(tmp_path / "c.audit") == merged


def test_two_equal_private_ranks_need_no_marks(tmp_path: Path) -> None:
    trace, name_map = private(TRACE)
    write_opset(tmp_path / "a", trace, None)
    merged = merge_opsets([tmp_path / "a"] * 2, ["rank 0", "rank 1"], tmp_path / "c", "ranks")
    assert merged.source.private == (name_map.id,)
    assert merged.cases[0].modules == ("module-1",)


def test_a_map_of_another_trace_is_refused() -> None:
    trace, name_map = private(TRACE)
    with pytest.raises(UsageError, match=rf"it is of the private traces {name_map.id} \[other-names\]$"):
        with_names(run_of(trace), [NameMap("00000000", {})])
    with pytest.raises(UsageError, match=r"it has its names \[other-names\]$"):
        with_names(run_of(TRACE), [name_map])


def test_a_map_is_read_as_it_was_written_by_its_owner_alone(tmp_path: Path) -> None:
    name_map = NameMap("0123abcd", {"module-1": "größe\ud800"})
    write_map(tmp_path / "m.json", name_map)
    assert read_map(tmp_path / "m.json") == NameMap("0123abcd", {"module-1": "größe\ufffd"})
    assert (tmp_path / "m.json").stat().st_mode & 0o777 == 0o600
    assert map_path(Path("x/m.rank0.audit")) == Path("x/m.rank0.private-map.json")
    assert map_path(Path("reports/model.v2")) == Path("reports/model.v2.private-map.json")


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"id":3,"names":{}}', '{"id":"a","names":[]}', "[" * 9999])
def test_what_is_no_map_is_one_sentence(tmp_path: Path, content: str) -> None:
    (tmp_path / "m.json").write_text(content)
    for path in (tmp_path / "m.json", tmp_path / "nowhere"):
        with pytest.raises(UsageError, match=r"\[not-a-name-map\]$"):
            read_map(path)


def test_times_of_another_device_keep_the_hardware_and_its_numbers_alone() -> None:
    device = DeviceInfo("cuda", "NVIDIA H100 Alices", "sm_90", {"multi_processor_count": "132", "host": "alice-7"})
    times = DeviceTimes(device, "stand-in", {"torch": "2.11.0+cu130", "user": "alice"}, {EXP.key: Timing(5.0, 0.1, 9)})
    kept = private(replace(TRACE, elsewhere=times))[0].elsewhere
    assert kept is not None
    assert (kept.device.name, kept.device.arch) == ("NVIDIA H100", "sm_90")
    assert kept.device.properties == {"multi_processor_count": "132"}
    assert kept.environment == {"torch": "2.11.0+cu130"}
    assert kept.times == times.times
