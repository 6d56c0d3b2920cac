"""A text made safe for a cell of a spreadsheet."""

from __future__ import annotations

#: A cell that begins so is run as a formula by spreadsheets (OWASP, "CSV Injection").
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")


def safe_cell(value: str | float | None) -> str | float | None:
    """Text that no spreadsheet runs and every file takes; numbers as they are."""
    if isinstance(value, str):
        clean = value.replace("\0", "\\x00").encode("utf-8", "backslashreplace").decode("utf-8")
        return "'" + clean if clean.startswith(_FORMULA_STARTS) else clean
    return value
