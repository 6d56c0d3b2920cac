"""How a page says what its numbers rest on: the banner above it, a word and a texture beside each number."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from audit.dashboard.rows import Stack
from audit.report.legend import evidence_words
from audit.report.text import one_line
from audit.schema import Evidence

#: From what may say most about AMD to what may say least.
EVIDENCE_ORDER: tuple[Evidence, ...] = ("measured", "stand-in", "simulated", "predicted")

EVIDENCE_MEANINGS = (
    (
        "measured",
        "An AMD GPU ran each case through HIP, and every output was compared. Only this says what works on AMD.",
    ),
    (
        "measured, imported",
        "Another tool recorded kernels and times on an AMD GPU. It shows time, path and library. No number was "
        "compared: nothing is called right or wrong.",
    ),
    (
        "stand-in",
        "An NVIDIA GPU ran each case through CUDA, in place of an AMD GPU. It does not say what works on AMD.",
    ),
    ("stand-in, imported", "Another tool recorded kernels and times on an NVIDIA GPU. No number was compared."),
    (
        "simulated",
        "No GPU ran: a simulated device took its place, healthy or with planted faults. It shows what the audit would "
        "catch. Times are those of a CPU.",
    ),
    ("predicted", "No device ran. Each case was matched with what is known of the arch."),
)


_NAMES = {
    ("measured", False): "measured on AMD",
    ("measured", True): "recorded on AMD by another tool",
    ("stand-in", False): "measured on an NVIDIA stand-in",
    ("stand-in", True): "recorded on NVIDIA by another tool",
}


@dataclass(frozen=True)
class Banner:
    """``kind`` is a class of the style sheet: ``measured`` is calm, all others are warnings."""

    title: str
    explanation: str
    kind: str


def texture(evidence: str, is_imported: bool) -> str:
    """The class that tells a level without colour: solid, outlined, hatched, dotted; a bar for what is imported."""
    return f"e-{evidence}" + (" e-imported" if is_imported else "")


def banner_of(stacks: Iterable[Stack], what: str = "this page") -> Banner:
    """The banner of a page that shows these stacks; ``what`` is said of it."""
    seen = sorted({(EVIDENCE_ORDER.index(stack.evidence), stack.is_imported): stack for stack in stacks}.items())
    levels = [stack for _, stack in seen]
    if not levels:
        return Banner("Nothing measured", "No run is shown here.", "none")
    if len(levels) == 1:
        return _of_one(levels[0])
    names = [_NAMES.get((stack.evidence, stack.is_imported), stack.evidence_text) for stack in levels]
    told = f"{what[:1].upper()}{what[1:]} shows results that were {', '.join(names[:-1])} and {names[-1]}"
    if any(stack.evidence == "measured" and not stack.is_imported for stack in levels):
        return Banner(
            "Partly measured on AMD", f"{told}. Each is marked; only measured ones say what works on AMD.", "mixed"
        )
    return Banner("Not audited on AMD", f"{told}. Each is marked; none says what works on AMD.", "unmeasured")


def _of_one(stack: Stack) -> Banner:
    where = one_line(stack.gpu, 80) + (f" ({stack.arch})" if stack.arch and stack.arch not in stack.gpu else "")
    words = evidence_words(stack.evidence, stack.is_imported, where, stack.arch)
    kind = "imported" if stack.is_imported else stack.evidence
    return Banner(words.title, words.explanation, kind)
