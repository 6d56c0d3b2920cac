"""Operator-input logs: every aten call of one training step, a line each, as PyTorch's benchmarks record them.

::

    Operator: aten.addmm.default
    cnt: 48, ((T([4096], f16), T([1024, 4096], f16), T([4096, 4096], f16, stride=(1, 4096))), {})

Source: ``benchmarks/dynamo/microbenchmarks/operator_inp_logs`` of PyTorch, 2022; tritonbench ``data/input_configs``.
"""

from __future__ import annotations

import gzip
import io
import re
import zlib
from collections.abc import Iterator
from pathlib import Path

from audit.errors import UsageError
from audit.importers.account import Account
from audit.importers.operator_calls import GrammarError, parse_line
from audit.schema import Phase, Source, Trace

KIND = "operator log, values synthesised"
#: Decompressed. All 139 published logs together have 2.5 MB; what is parsed takes some fifty times as much memory.
MAX_BYTES = 1 << 24
_OPERATOR = re.compile(r"Operator:\s*(?P<space>\w+)(?:\.|::)(?P<op>\w+)(?:\.(?P<overload>\w+))?", re.ASCII)
#: The number of calls of a line that is otherwise not understood.
_COUNT = re.compile(r"cnt:\s*(\d{1,15})\b", re.ASCII)
#: Ops that autograd alone calls; of all others a log does not say in which phase they ran.
_BACKWARD = re.compile(r"_backward(_data|_input|_weight)?(\.|$)")


def read_recording(path: Path) -> Trace:
    """The log's calls as cases. Raises UsageError for a file that is none.

    A line that is not in the grammar, or whose call can be no case, is named with its reason.
    """
    account = Account(str(path))
    op, n_lines = "", 0
    for number, line in enumerate(_lines_of(path), 1):
        text = line.strip()
        if not text:
            continue
        if text.startswith("Operator:"):
            op = _qualified(text)
            if not op:
                account.name_call(f"line {number}", f"names no operator: {text[:80]!r}")
            continue
        n_lines += 1
        _enter(account, number, text, op)
    note = f"{n_lines} lines of calls; a log tells forward from backward by the names of ops alone"
    return account.trace(Source(KIND, path.name), {}, (note,))


def _enter(account: Account, number: int, text: str, op: str) -> None:
    """One line of calls into the account."""
    try:
        call = parse_line(text)
    except GrammarError as error:
        count = _COUNT.match(text)
        n_calls = max(int(count[1]), 1) if count is not None else 1
        account.name_call(f"line {number}", f"not in the grammar of operator logs: {error}", n_calls)
        return
    if op:
        account.call(op, call.args, call.kwargs, call.n_calls, _phase_of(op))
    else:
        account.name_call(f"line {number}", "stands under no line that names its operator", call.n_calls)


def _qualified(text: str) -> str:
    """``Operator: aten.addmm.default`` to ``aten::addmm.default``, or an empty string."""
    match = _OPERATOR.fullmatch(text)
    return f"{match['space']}::{match['op']}.{match['overload'] or 'default'}" if match else ""


def _phase_of(op: str) -> Phase:
    return "backward" if _BACKWARD.search(op) else "forward"


# --- the file ----------------------------------------------------------------------------------------------------


def _lines_of(path: Path) -> Iterator[str]:
    """The lines of a log, which may be gzip. Raises UsageError."""
    try:
        with path.open("rb") as raw:
            is_gzip = raw.read(2) == b"\x1f\x8b"
            raw.seek(0)
            content = (gzip.GzipFile(fileobj=raw) if is_gzip else raw).read(MAX_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise UsageError(f"cannot read {path}: {error}", "unreadable-recording") from error
    if len(content) > MAX_BYTES:
        raise UsageError(
            f"{path} has more than {MAX_BYTES >> 20} MiB; split it into one log a program", "too-large-recording"
        )
    yield from io.StringIO(content.decode("utf-8", "replace"))
