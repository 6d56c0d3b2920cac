"""Policies and waivers: what they let pass, and what is wrong with them in one sentence."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pytest

from audit.errors import UsageError
from audit.gate.policy import Policy, read_policy

WRITTEN = """
slower-ratio = 1.5
error-floor = 8

[levels]
other-path = "fail"
flaky = "ignore"

[[waivers]]
op = "mm"
change = "regressed"
reason = "hipBLASLt picks another kernel; fixed in the next release"
link = "https://github.com/pytorch/pytorch/issues/1"
owner = "Ada"
expires = 2026-12-31
"""


def read(tmp_path: Path, text: str) -> Policy:
    path = tmp_path / "policy.toml"
    path.write_text(text)
    return read_policy(path)


def test_a_policy_is_read_with_its_levels_and_waivers(tmp_path: Path) -> None:
    policy = read(tmp_path, WRITTEN)
    assert (policy.slower_ratio, policy.error_ratio, policy.error_floor) == (1.5, 2.0, 8.0)
    assert (policy.level("other path"), policy.level("flaky"), policy.level("gone")) == ("fail", "ignore", "fail")
    [waiver] = policy.waivers
    assert (waiver.name, waiver.owner, waiver.expires) == ("mm, regressed", "Ada", datetime.date(2026, 12, 31))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("slower-ration = 2", "unknown key 'slower-ration'; did you mean 'slower-ratio'"),
        ("slower-ratio = 0.5", "expected a number from 1 on"),
        ("slower-ratio = nan", "expected a number from 1 on"),
        ("slower-ratio = ", "is no TOML"),
        ('[levels]\nslow = "fail"', "did you mean 'slower'"),
        ('[levels]\ngone = "fails"', "expected one of fail, warn, note, ignore"),
        ("waivers = 3", "waivers are tables"),
        (WRITTEN.replace('owner = "Ada"', ""), "waiver 1 lacks its owner"),
        (WRITTEN.replace("expires = 2026-12-31", 'expires = "soon"'), "expires is a date"),
        (WRITTEN.replace('op = "mm"', ""), "waives everything"),
        (WRITTEN.replace("https://", "see "), "expected a link"),
        (WRITTEN.replace('"regressed"', '"worse"'), "change is 'worse'"),
    ],
)
def test_a_bad_policy_is_one_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(UsageError, match=r"\[bad-configuration\]$") as caught:
        read(tmp_path, text)
    assert sentence in str(caught.value)


def test_a_waiver_accepts_until_its_last_day(build: Any) -> None:
    sides = build.side(), build.side(build.case(status="slow"))
    assert build.gate(*sides).exit_code == 1
    waived = build.gate(*sides, Policy(waivers=(build.waiver(),)))
    assert (waived.exit_code, waived.judged[0].level, waived.judged[0].waiver) == (0, "note", build.waiver())
    assert "1 waived" in waived.headline


def test_an_expired_waiver_fails_and_waives_nothing(build: Any) -> None:
    expired = Policy(waivers=(build.waiver(expires=datetime.date(2026, 11, 29)),))
    outcome = build.gate(build.side(), build.side(build.case(status="slow")), expired)
    assert (outcome.exit_code, outcome.judged[0].level) == (1, "fail")
    assert outcome.problems == ("the waiver of mm expired on 2026-11-29; ask Ada, see https://example.org/1",)
    assert build.gate(build.side(), build.side(), expired).exit_code == 1


def test_a_waiver_that_nothing_needs_fails(build: Any) -> None:
    for waiver in (build.waiver(), build.waiver(op="conv*"), build.waiver(change="gone")):
        outcome = build.gate(build.side(), build.side(build.case()), Policy(waivers=(waiver,)))
        assert outcome.exit_code == 1
        assert outcome.problems == (f"the waiver of {waiver.name} is not needed any more; remove it (Ada)",)


def test_a_waiver_is_held_to_its_case_op_and_change(build: Any) -> None:
    waiver = build.waiver(case="mm-4d73", change="less-exact")
    assert waiver.covers("mm-4d73aa", "aten::mm.default", "less exact")
    assert not waiver.covers("mm-5d73aa", "aten::mm.default", "less exact")
    assert not waiver.covers("mm-4d73aa", "aten::bmm.default", "less exact")
    assert not waiver.covers("mm-4d73aa", "aten::mm.default", "slower")
