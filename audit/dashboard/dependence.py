"""What an answer of the catalog depends on, as a digest: pages are made anew where it changes."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from sqlite3 import Connection
from typing import Any

from audit.dashboard.contents import About, Contents


def digest_of(contents: Contents, base: Connection, about: About, slug: str) -> str:
    """Over the rows that the answers are made of; of runs, over the digests of their files."""
    total = hashlib.sha256(contents.site().audit_version.encode())
    for row in _rows(contents, base, about, slug):
        total.update(repr(row).encode())
    return total.hexdigest()


def _rows(contents: Contents, base: Connection, about: About, slug: str) -> Iterator[Any]:
    if about == "op":
        yield from contents.signatures(slug)
        yield from contents.findings(slug)
        yield from contents.transitions(op=slug)
        stacks = {cell.stack_slug for cell in contents.matrix(slug)}
        yield from (stack for stack in contents.stacks() if stack.slug in stacks)
        yield from (op for op in contents.ops() if op.slug == slug)
    elif about == "run":
        yield contents.run(slug)
    elif about == "model":
        yield from contents.runs(model=slug)
        yield from _files(base, "model.slug", slug)
    elif about == "gpu":
        yield from contents.runs(gpu=slug)
        yield from _files(base, "stack.gpu_slug", slug)
        yield from (one for one in contents.untested() if one.gpu.slug == slug)
    else:
        yield from contents.runs()
        yield from (contents.site(), contents.gpus(), contents.left_out())
        yield from base.execute("SELECT sha256 FROM run ORDER BY sha256")


def _files(base: Connection, column: str, slug: str) -> Iterator[Any]:
    return base.execute(
        "SELECT run.sha256 FROM run JOIN model ON model.id = run.model JOIN stack ON stack.id = run.stack "
        f"WHERE {column} = ? ORDER BY run.sha256",
        (slug,),
    )
