"""``summary.json`` is a contract: its fields by name, and numbers that any JSON reader takes."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

from audit.report.summary import render, summary
from audit.schema import STATUSES
from audit.verdicts import Finding, Judgement, Known, Verdict


def test_the_summary_has_the_fields_of_format_1(make_judgement: Callable[..., Judgement]) -> None:
    content = json.loads(render(make_judgement(60)))
    assert content["format_version"] == 1
    assert content["evidence"] == "simulated"
    assert content["source"] == {"kind": "script", "name": "examples/llama_train.py"}
    assert content["device"] == {"backend": "sim", "name": "simulated device", "arch": "sim"}
    assert content["environment"]["torch"] == "2.13.0"
    assert set(content["coverage"]) == {"cases", "ops", "calls", "device_time"}
    for coverage in content["coverage"].values():
        assert list(coverage["by_status"]) == list(STATUSES)
    assert content["coverage"]["cases"]["total"] == 60
    assert len(content["verdicts"]) == 60
    fields = {
        "key", "op", "status", "calls", "phase", "modules", "signature", "findings", "device_us", "reference_us",
        "library", "total_us", "floor_us", "bound", "flops", "op_class",
    }  # fmt: skip
    assert all(set(verdict) == fields for verdict in content["verdicts"])


def test_a_verdict_and_its_finding_are_written_whole(make_judgement: Callable[..., Judgement]) -> None:
    known = Known("a hardware behaviour", "https://example.org/1", "upgrade")
    finding = Finding(
        "NUM201", "divergent", "off", {"ratio": float("inf"), "n": 3, "name": "output", "none": None}, known
    )
    verdict = Verdict(
        "mm-0", "aten::mm.default", "divergent", 4, "backward", ("net.fc",), ("a.py:1",), "f32[2]", (finding,),
        12.5, None, "rocBLAS",
    )  # fmt: skip
    [written] = summary(replace(make_judgement(0), verdicts=(verdict,)))["verdicts"]
    assert written == {
        "key": "mm-0",
        "op": "aten::mm.default",
        "status": "divergent",
        "calls": 4,
        "phase": "backward",
        "modules": ["net.fc"],
        "signature": "f32[2]",
        "findings": [
            {
                "code": "NUM201",
                "status": "divergent",
                "message": "off",
                "data": {"ratio": "inf", "n": 3, "name": "output", "none": None},
                "known": {"title": "a hardware behaviour", "link": "https://example.org/1", "remedy": "upgrade"},
            }
        ],
        "device_us": 12.5,
        "reference_us": None,
        "library": "rocBLAS",
        "total_us": None,
        "floor_us": None,
        "bound": None,
        "flops": None,
        "op_class": None,
    }


def test_a_finding_that_is_not_known_has_no_such_field(make_judgement: Callable[..., Judgement]) -> None:
    verdict = Verdict("k", "o", "slow", 1, "forward", (), (), "", (Finding("SPD401", "slow", "m"),))
    [written] = summary(replace(make_judgement(0), verdicts=(verdict,)))["verdicts"]
    assert set(written["findings"][0]) == {"code", "status", "message", "data"}


def test_the_same_judgement_gives_the_same_bytes(make_judgement: Callable[..., Judgement]) -> None:
    assert render(make_judgement(30)) == render(make_judgement(30))


def test_hostile_names_survive_the_round_trip(hostile_judgement: Judgement) -> None:
    content = json.loads(render(hostile_judgement))
    assert [v["key"] for v in content["verdicts"]] == [v.key for v in hostile_judgement.verdicts]
