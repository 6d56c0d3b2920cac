"""Data with sources: GPUs, kernel names, signals, arch lists, known issues."""
