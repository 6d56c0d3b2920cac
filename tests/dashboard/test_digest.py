"""Runs to digests: the stack's names, what a case keeps, and what becomes of a stranger's texts."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from audit.dashboard.digest import Digest, digest, gpu_name, runtime_of, stack_of
from audit.report.summary import summary
from audit.rules.judge import judge
from audit.run_records import RunHeader
from audit.schema import EVIDENCE_BY_BACKEND, Backend, DeviceInfo, Source
from audit.store import read_run
from tests.dashboard.made_runs import healthy_keys, write_run


def header(
    backend: Backend = "hip", name: str = "AMD Instinct MI300X", kind: str = "script", **named: str
) -> RunHeader:
    device = DeviceInfo(backend, name, "gfx942")
    return RunHeader(EVIDENCE_BY_BACKEND[backend], Source(kind, "m.py"), device, named, {}, "", "0.1.0", 0, 0)


def digested(folder: Path) -> Digest:
    return digest(judge(read_run(folder)))


@pytest.mark.parametrize(
    ("environment", "runtime"),
    [
        ({"torch": "2.13.0+rocm7.2", "hip": "7.2.26015", "rocm": "7.2.1"}, "ROCm 7.2.1"),
        ({"torch": "2.13.0+rocm7.2", "hip": "7.2.26015", "rocm": "6.4.1"}, "ROCm 7.2"),  # the wheel brings its own
        ({"torch": "2.13.0+rocm7.2", "rocm": "7.20.0"}, "ROCm 7.2"),
        ({"torch": "2.9.1+git1234", "hip": "7.1.25424"}, "ROCm 7.1"),
        ({"hip": "6.4.43483"}, "ROCm 6.4"),
        ({"rocm": "7.0.2"}, "ROCm 7.0.2"),
        ({"torch": "2.13.0"}, ""),
    ],
)
def test_the_rocm_of_a_run_is_the_one_that_torch_was_built_for(environment: Mapping[str, str], runtime: str) -> None:
    assert runtime_of(header(**environment)) == runtime


def test_other_devices_have_cuda_or_no_runtime() -> None:
    assert runtime_of(header("cuda", cuda="12.8")) == "CUDA 12.8"
    assert runtime_of(header("cuda")) == ""
    assert runtime_of(header("sim", cuda="12.8", rocm="7.2")) == ""


def test_a_stack_has_one_address_whatever_else_differs() -> None:
    one = stack_of(header(torch="2.13.0+rocm7.2", amdgpu="6.14", MIOPEN_DEBUG_CONV_FFT="0"))
    other = stack_of(header(torch="2.13.0+rocm7.2", amdgpu="6.16"))
    assert one == other
    assert one.slug.startswith("measured-amd-instinct-mi300x-rocm-7-2-2-13-0-roc-")
    assert stack_of(header(torch="2.12.0+rocm7.2")).slug != one.slug
    assert stack_of(header(torch="2.12.0+rocm7.2")).gpu_slug == one.gpu_slug
    assert stack_of(header(kind="imported", torch="2.13.0+rocm7.2")).gpu_slug != one.gpu_slug


def test_a_device_without_a_name_has_one_for_people() -> None:
    assert gpu_name(DeviceInfo("hip", "", "gfx942")) == "unnamed hip device"


def test_a_case_keeps_the_output_that_is_worst_against_its_allowance(tmp_path: Path) -> None:
    key = healthy_keys(1)[0]
    [case] = digested(write_run(tmp_path, keys=[key], wrong=[key], timed=[key])).cases
    assert (case.status, case.worst_ratio, case.allowance, case.dtype) == ("divergent", 400.0, 8.0, "float32")
    assert case.finding is not None
    assert (case.finding.code, case.codes[0]) == ("NUM201", "NUM201")
    assert case.device_us == 63.655


def test_the_packed_summary_is_the_runs_summary(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path))
    packed = digest(judge(run)).summary
    assert json.loads(gzip.decompress(packed)) == json.loads(json.dumps(summary(judge(run))))
    assert digest(judge(run)).summary == packed


def test_a_strangers_texts_are_made_printable_and_cut(tmp_path: Path) -> None:
    hostile = "\u202e<script>\0\n" + "x" * 5000
    folder = write_run(
        tmp_path, source=hostile, created=hostile, environment={hostile: hostile, "torch": hostile},
        device={"backend": "hip", "name": hostile, "arch": hostile, "properties": {}},
        header={"audit_version": hostile, "not_audited": [{"what": hostile, "reason": hostile}]},
    )  # fmt: skip
    found = digested(folder)
    run = found.run
    texts = [
        run.source, run.created, run.audit_version, run.headline, found.stack.gpu, found.stack.arch, found.stack.torch,
        *(text for pair in run.environment for text in pair), run.not_audited[0].what, run.not_audited[0].reason,
    ]  # fmt: skip
    assert all(text.isprintable() and "\u202e" not in text and len(text) <= 1200 for text in texts)
    assert run.source.startswith("\\u202e<script>\\x00 xxx")
