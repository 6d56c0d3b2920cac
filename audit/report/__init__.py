"""Judged runs to pages and files."""
