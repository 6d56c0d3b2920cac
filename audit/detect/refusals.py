"""Why scaled_dot_product_attention took its math path: what each fused kernel has against the call."""

from __future__ import annotations

import os
import re
import stat
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from audit.detect.detector import Evidence, OpCall
from audit.device import fused_attention
from audit.device.protocol import Device

ATTENTION = "aten::scaled_dot_product_attention.default"
_MATH = "aten::_scaled_dot_product_attention_math."
#: torch's own questions, each with the kernel that it is about. An older torch lacks some.
_QUESTIONS = (
    ("flash attention", "can_use_flash_attention"),
    ("memory-efficient attention", "can_use_efficient_attention"),
    ("cuDNN attention", "can_use_cudnn_attention"),
)
#: Of what one question writes to fd 2, so much is read.
_MAX_BYTES = 1 << 16
#: Where in the C++ sources the warning was raised, as torch adds it to the text.
_PLACE = re.compile(r"\s*\((?:Triggered internally|function)\b.*", re.DOTALL)


class RefusalDetector:
    """Asks torch, of an attention, before the op runs, and keeps the answers where the path turns out to be math.

    ``can_use_*`` with ``debug`` warns about what a kernel does not take. A build for the CPU gives no reason.
    """

    def __init__(self) -> None:
        self._refusals: tuple[str, ...] = ()

    def begin(self, device: Device) -> None:
        self._refusals = ()

    def watch(self, call: OpCall) -> None:
        if call.op == ATTENTION:
            self._refusals = tuple(dict.fromkeys(refusals(call.arguments)))

    def end(self, device: Device, evidence: Evidence) -> None:
        if self._refusals and any(op.startswith(_MATH) for op in evidence.path.chosen_ops):
            evidence.refusals = self._refusals


def refusals(arguments: Mapping[str, Any]) -> Iterator[str]:
    """A sentence for each fused kernel that refuses the call: ``flash attention: it takes no mask``."""
    query, key, value = (arguments[name] for name in ("query", "key", "value"))
    mask, is_causal = arguments.get("attn_mask"), bool(arguments.get("is_causal", False))
    enable_gqa = bool(arguments.get("enable_gqa", False))
    if query.device.type == "sim":
        yield from fused_attention.refusals(query, key, value, mask, is_causal, enable_gqa)
        return
    backends = torch.backends.cuda
    if query.device.type != "cuda" or not hasattr(backends, "SDPAParams"):
        return
    dropout = float(arguments.get("dropout_p") or 0.0)
    params = backends.SDPAParams(query, key, value, mask, dropout, is_causal, enable_gqa)
    for kernel, question in _QUESTIONS:
        ask = getattr(backends, question, None)
        if ask is None:
            continue
        taken, said = _heard(lambda ask=ask: ask(params, debug=True))  # type: ignore[misc]
        reasons = dict.fromkeys(filter(None, (_PLACE.sub("", text).strip() for text in said)))
        if not taken and reasons:
            yield f"{kernel}: {' '.join(reasons)}"


def _heard(ask: Callable[[], bool]) -> tuple[bool, list[str]]:
    """The answer and the warnings on the way to it.

    Where a C++ function is bound without torch's handler its warnings go to fd 2, a file in a worker: there they are
    read, and taken out again, since they are the audit's own doing.
    """
    begin = _stderr_size()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        taken = ask()
    said = [str(warning.message) for warning in caught]
    if begin is not None and (end := _stderr_size() or 0) > begin:
        written = os.pread(2, min(end - begin, _MAX_BYTES), begin).decode(errors="replace")
        said += [line.partition("Warning: ")[2] for line in written.splitlines()]
        os.ftruncate(2, begin)
    return taken, said


def _stderr_size() -> int | None:
    """Bytes of the file behind fd 2; None where that is a terminal or a pipe."""
    facts = os.fstat(2)
    return facts.st_size if stat.S_ISREG(facts.st_mode) else None
