"""Opsets: sets of cases in one ``.audit`` file that travels between machines and torch versions. Nothing in it can
execute, and nothing here needs torch.
"""

from audit.opset.file import extract_values, read_opset, write_opset

__all__ = ["extract_values", "read_opset", "write_opset"]
