"""Text for people: numbers with units, and program text made harmless for terminals, pages and XML."""

from __future__ import annotations

import unicodedata

#: Control, surrogate, private and unassigned characters, ends of lines, and format characters: those have no width, so
#: that two names look like one, or reorder what a reader sees (CVE-2021-42574).
_HIDDEN = frozenset(("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"))
_ASCII = str.maketrans({"µ": "u", "×": "x", "÷": "/", "−": "-", "…": "...", "·": "-"})


def printable(text: str) -> str:
    """``text`` with control, bidirectional and surrogate characters as ``\\u202e``; newlines and tabs stay."""
    if text.isprintable() and text.isascii():
        return text
    return "".join(_shown(c) for c in text)


def _shown(c: str) -> str:
    if c in "\n\t":
        return c
    if unicodedata.category(c) in _HIDDEN:
        return c.encode("unicode_escape", "surrogatepass").decode("ascii")
    return c


def one_line(text: str, limit: int = 200) -> str:
    """``printable`` text on one line of at most ``limit`` characters, cut in the middle of nothing but its end."""
    line = " ".join(printable(text).split())
    return line if len(line) <= limit else line[: limit - 1].rstrip() + "…"


def ascii_line(text: str, limit: int) -> str:
    """``one_line`` in ASCII, for comments of scripts: ``15.5 us``; what has no such form is escaped."""
    line = one_line(text, limit).translate(_ASCII)
    return line.encode("ascii", "backslashreplace").decode("ascii")


def clipped(text: str, limit: int) -> str:
    """``printable`` text of about ``limit`` characters: head and tail, for the end of a log often holds the error."""
    shown = printable(text).strip("\n")
    if len(shown) <= limit:
        return shown
    head, tail = shown[: limit * 2 // 3], shown[-(limit // 3) :]
    if "\n" in head and "\n" in tail:  # whole lines, where there are lines
        head, tail = head.rpartition("\n")[0], tail.partition("\n")[2]
    return f"{head}\n… {len(shown) - len(head) - len(tail):,} characters left out, all in run.jsonl …\n{tail}"


def capital(sentence: str) -> str:
    """``sentence`` as it begins after a full stop; the name of an op stays as it is."""
    return sentence if "::" in sentence.partition(" ")[0] else sentence[:1].upper() + sentence[1:]


def short_op(op: str) -> str:
    """``aten::addmm.default`` as people say it: ``addmm``; other namespaces and overloads stay."""
    name = op.removeprefix("aten::")
    return name.removesuffix(".default") or op


def count_text(value: float) -> str:
    """``12,345``; fractions keep one digit."""
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.1f}"


def amount_text(unit: str, amount: float) -> str:
    """``12`` or ``3.4 ms``: device time in its own unit, everything else counted."""
    return time_text(amount) if unit == "device_time" else count_text(amount)


def plural(count: float, singular: str, several: str | None = None) -> str:
    """``1 case``, ``2 cases``."""
    return f"{count_text(count)} {singular if count == 1 else several or singular + 's'}"


def time_text(us: float | None) -> str:
    """Microseconds in the unit that keeps three digits: ``0.85 µs``, ``12.3 ms``, ``4.56 s``."""
    if us is None:
        return "–"
    if us == 0:
        return "0"
    for factor, unit in ((1e6, "s"), (1e3, "ms")):
        if us >= factor:
            return f"{_three_digits(us / factor)} {unit}"
    return f"{_three_digits(us)} µs"


def times_text(ratio: float) -> str:
    """``1.03×``, ``27.9×``: three digits, so that nearly the same is not told as the same."""
    return f"{_three_digits(ratio)}×"


def rate_text(value: float, unit: str) -> str:
    """``4,021 GB/s``, ``66.2 TFLOPS``."""
    return f"{_three_digits(value)} {unit}"


def _three_digits(value: float) -> str:
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def flops_text(flops: float) -> str:
    """``14.2 TFLOP``, ``30.8 GFLOP``."""
    for factor, unit in ((1e15, "PFLOP"), (1e12, "TFLOP"), (1e9, "GFLOP")):
        if flops >= factor:
            return f"{_three_digits(flops / factor)} {unit}"
    return f"{_three_digits(flops / 1e6)} MFLOP"


def share_text(part: float, total: float) -> str:
    """A percentage that never rounds a part to nothing or to everything: ``<0.1 %``, ``>99.9 %``."""
    if total <= 0:
        return "–"
    percent = 100 * part / total
    if 0 < percent < 0.1:
        return "<0.1 %"
    if 99.9 < percent < 100:
        return ">99.9 %"
    return f"{percent:.0f} %" if percent in (0, 100) else f"{percent:.1f} %"


def error_text(value: float) -> str:
    """An error magnitude: ``0``, ``1.25e-05``, ``inf``."""
    return "0" if value == 0 else f"{value:.3g}"


def bytes_text(n_bytes: float) -> str:
    """``512 B``, ``1.5 MiB``."""
    for factor, unit in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if n_bytes >= factor:
            return f"{n_bytes / factor:.1f} {unit}"
    return f"{n_bytes:.0f} B"
