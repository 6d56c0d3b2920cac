"""rocm-audit: which aten ops of a model work on a HIP device, how well, and on which path.

``with audit.trace("m.audit"): ...`` records the ops that the block executes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__version__ = "0.1.0"
__all__ = ["__version__", "trace"]

if TYPE_CHECKING:
    from audit.tracer.context import trace


def __getattr__(name: str) -> object:
    # `rocm-audit --help` and `rocm-audit report` import this package and must not load torch, so the one
    # public name that needs torch is resolved on first use (PEP 562).
    if name == "trace":
        from audit.tracer.context import trace

        return trace
    raise AttributeError(f"module 'audit' has no attribute {name!r}")
