"""Slugs and the data for scripts: a stranger's text decides neither a path nor what a page executes."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from audit.dashboard.links import op_slug, slug
from audit.dashboard.script_data import script, script_json

HOSTILE = ("../../etc/passwd", "CON", "nul\0byte", "<script>alert(1)</script>", "\u202egnp.exe", "a" * 5000, "", " ")


def test_a_slug_is_readable_and_has_a_digest_of_the_whole_name() -> None:
    assert re.fullmatch(r"addmm-default-[0-9a-f]{8}", op_slug("aten::addmm.default"))
    assert op_slug("aten::add.Tensor") != op_slug("aten::add_.Tensor")
    assert op_slug("aten::add.Tensor") != op_slug("custom::add.Tensor")
    assert slug("model", "a", "bc") != slug("model", "ab", "c")


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_makes_a_plain_slug(name: str) -> None:
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*-[0-9a-f]{8}", slug(name))
    assert len(slug(name)) <= 57


@given(st.text())
def test_any_name_makes_a_plain_slug(name: str) -> None:
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*-[0-9a-f]{8}", slug(name))


@given(
    st.recursive(
        st.text() | st.integers() | st.none(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
    )
)
def test_data_for_scripts_is_the_same_when_read_and_cannot_end_the_script(content: object) -> None:
    text = script_json(content)
    assert json.loads(text) == content
    assert not set(text) & set("<>&\u2028\u2029\n")


def test_a_script_file_puts_its_content_under_its_name() -> None:
    expected = '(window.rocmAudit=window.rocmAudit||{})["ops-1"]={"a":"\\u003c/script\\u003e"};\n'
    assert script("ops-1", {"a": "</script>"}) == expected


def test_what_json_does_not_know_is_refused() -> None:
    with pytest.raises(ValueError):
        script("x", float("nan"))
