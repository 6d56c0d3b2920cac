"""Pages that every site has, beside those that ``audit.dashboard.links`` knows, and the order in which the head names
them."""

from __future__ import annotations

from audit.dashboard.links import INDEX, LEFT_OUT, MATRIX

RUNS, MODELS, CHANGES, HISTORY = "runs.html", "models.html", "changes.html", "history.html"
UNTESTED, ABOUT = "untested.html", "about.html"

#: (address, what the head of each page calls it).
NAVIGATION = (
    (INDEX, "Overview"),
    (MATRIX, "Operators"),
    (MODELS, "Models"),
    (RUNS, "Runs"),
    (CHANGES, "Changes"),
    (HISTORY, "History"),
    (UNTESTED, "Never tested"),
    (ABOUT, "Method"),
)

__all__ = ["ABOUT", "CHANGES", "HISTORY", "INDEX", "LEFT_OUT", "MATRIX", "MODELS", "NAVIGATION", "RUNS", "UNTESTED"]
