"""Runs to a static site: ``rocm-audit dashboard RUNS... -o SITE``. Needs no torch, no server, no network.

gather (paths to run files) -> digest (a judged run) -> catalog (SQLite) -> rows -> pages, badges, downloads -> site.
"""
