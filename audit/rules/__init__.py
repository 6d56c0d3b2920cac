"""Measurements to findings: pure functions, no torch."""
