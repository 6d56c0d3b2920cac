"""Conjugate bits inside a dispatch mode, where ATen does not look at them."""

from __future__ import annotations

from contextlib import AbstractContextManager

import torch

#: Ops that ATen composes of others with conjugated views between them.
COMPOSED = ("aten::linalg_pinv",)


def resolving_conjugates() -> AbstractContextManager[None]:
    """Inside ``__torch_dispatch__`` ATen resolves no conjugate bit, and loses those that a composed kernel sets: the
    pseudo-inverse of a complex matrix is wrong under any mode, even one that does nothing (torch 2.13)."""
    excluded = torch._C._dispatch_tls_local_exclude_set()
    for key in (torch._C.DispatchKey.Conjugate, torch._C.DispatchKey.Negative):
        excluded = excluded.remove(key)
    included = torch._C._dispatch_tls_local_include_set()
    guard: AbstractContextManager[None] = torch._C._ForceDispatchKeyGuard(included, excluded)
    return guard
