"""Words and numbers for people."""

from __future__ import annotations

import pytest

from audit.report import text


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("plain", "plain"),
        ("µ √ 模型", "µ √ 模型"),
        ("\x1b[31mred", "\\x1b[31mred"),
        ("evil\u202egnp.exe", "evil\\u202egnp.exe"),
        ("nul\0", "nul\\x00"),
        ("lone \ud800", "lone \\ud800"),
        ("bell\x07\r\n", "bell\\x07\\r\n"),
        ("c1 \x9b31m", "c1 \\x9b31m"),
        ("m\u200bm \ufeff\u00ad", "m\\u200bm \\ufeff\\xad"),
        ("tag \U000e0041", "tag \\U000e0041"),
    ],
)
def test_control_and_bidirectional_characters_are_shown_not_obeyed(raw: str, shown: str) -> None:
    assert text.printable(raw) == shown


def test_a_line_in_ascii_keeps_what_has_a_form_there() -> None:
    assert text.ascii_line("15.5 µs, 3×, √2", 40) == "15.5 us, 3x, \\u221a2"


def test_a_line_is_one_line_of_the_length_asked() -> None:
    assert text.one_line("a\n b\t c") == "a b c"
    assert text.one_line("x" * 300, 10) == "x" * 9 + "…"


def test_a_long_log_keeps_head_and_tail() -> None:
    shown = text.clipped("HEAD" + "." * 5000 + "TAIL", 300)
    assert shown.startswith("HEAD")
    assert shown.endswith("TAIL")
    assert "4,708 characters left out" in shown
    assert text.clipped("short\n", 300) == "short"


@pytest.mark.parametrize(
    ("us", "shown"),
    [
        (None, "–"),
        (0, "0"),
        (0.5, "0.50 µs"),
        (12.34, "12.3 µs"),
        (1500, "1.50 ms"),
        (250000, "250 ms"),
        (4.5e6, "4.50 s"),
    ],
)
def test_a_time_has_three_digits_and_a_unit(us: float | None, shown: str) -> None:
    assert text.time_text(us) == shown


@pytest.mark.parametrize(
    ("part", "total", "shown"),
    [
        (0, 7, "0 %"),
        (7, 7, "100 %"),
        (1, 3, "33.3 %"),
        (1, 10**6, "<0.1 %"),
        (10**6 - 1, 10**6, ">99.9 %"),
        (0, 0, "–"),
    ],
)
def test_a_share_is_rounded_to_nothing_or_all_only_where_it_is_that(part: float, total: float, shown: str) -> None:
    assert text.share_text(part, total) == shown


def test_ops_are_called_by_their_short_name_where_it_is_unique() -> None:
    assert text.short_op("aten::addmm.default") == "addmm"
    assert text.short_op("aten::add.Tensor") == "add.Tensor"
    assert text.short_op("mylib::conv.default") == "mylib::conv"


def test_counts_sizes_and_errors_read_well() -> None:
    assert (text.plural(1, "case"), text.plural(1200, "case")) == ("1 case", "1,200 cases")
    assert (text.bytes_text(512), text.bytes_text(3 << 19)) == ("512 B", "1.5 MiB")
    assert (text.error_text(0.0), text.error_text(1.25e-5), text.error_text(float("inf"))) == ("0", "1.25e-05", "inf")


def test_a_sentence_begins_with_a_capital_and_an_op_keeps_its_name() -> None:
    assert text.capital("the step was played") == "The step was played"
    assert text.capital("aten::mm.default failed") == "aten::mm.default failed"
    assert text.capital("") == ""
