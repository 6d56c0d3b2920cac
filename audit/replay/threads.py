"""How many CPU threads a case is worth."""

from __future__ import annotations

import torch

#: Cases with less to read run on one thread: waking others takes longer, and they spin beside the other process.
PARALLEL_BYTES = 1 << 20


def set_threads_for(n_bytes: int, n_threads: int) -> None:
    """Sets torch's CPU threads for a case with operands of ``n_bytes``: one, or ``n_threads`` where it is large."""
    torch.set_num_threads(1 if n_bytes < PARALLEL_BYTES else n_threads)
