"""What statuses and evidence levels are called and mean in every report: one wording for page, terminal and files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from audit.run_records import RunHeader
from audit.schema import IMPORTED, Evidence, Status


@dataclass(frozen=True)
class StatusText:
    """``label`` for people, ``meaning`` in half a sentence, ``mark``: one character that tells it without colour."""

    label: str
    meaning: str
    mark: str


STATUS_TEXTS: Mapping[Status, StatusText] = {
    "unsupported": StatusText("unsupported", "a valid call that the device raised on, crashed on or hung on", "✗"),
    "divergent": StatusText("divergent", "an output differs by more than dtype and algorithm explain", "≠"),
    "falling_back": StatusText("falling back", "right, but not on the path one expects", "↩"),
    "slow": StatusText("slow", "right, but far from what this device can do", "~"),
    "supported": StatusText("supported", "ran, right, on the expected path, not slow", "✓"),
    "inconclusive": StatusText("inconclusive", "the audit cannot say; about the audit, not the device", "?"),
}

#: The order in which people want to read: what is broken first, what we could not tell before what is fine.
READING_ORDER: tuple[Status, ...] = ("unsupported", "divergent", "falling_back", "slow", "inconclusive", "supported")


#: Of a run in which nothing ran: that nothing is known against a case is no support.
_PREDICTED = StatusText(
    "nothing known against", "nothing that is known of this GPU speaks against it; it did not run", "✓"
)


def status_words(status: Status, evidence: Evidence) -> StatusText:
    """What a status is called and means in a run with this evidence."""
    return _PREDICTED if evidence == "predicted" and status == "supported" else STATUS_TEXTS[status]


@dataclass(frozen=True)
class EvidenceText:
    """The banner that stands on every page and file of a run with this evidence level."""

    title: str
    explanation: str
    is_amd: bool


def evidence_text(header: RunHeader) -> EvidenceText:
    """The banner for a run; only ``measured`` may state what works on AMD."""
    device = header.device
    where = f"{device.name} ({device.arch})" if device.arch and device.arch != device.name else device.name
    return evidence_words(header.evidence, header.source.kind == IMPORTED, where, device.arch)


def evidence_words(evidence: Evidence, is_imported: bool, where: str, arch: str) -> EvidenceText:
    """The banner of this level; ``where`` is the device for people, ``arch`` what a prediction was made for."""
    if is_imported:
        return _imported_text(evidence == "measured", where)
    if evidence == "measured":
        return EvidenceText("Measured on AMD", f"Every case was replayed on {where} through HIP.", True)
    if evidence == "stand-in":
        return EvidenceText(
            "Stand-in · not measured on AMD",
            f"Replayed on {where} through CUDA, in place of an AMD GPU. It shows how program and audit behave; "
            "it does not say what works under ROCm.",
            False,
        )
    if evidence == "simulated":
        return EvidenceText(
            "Simulated · not measured on AMD",
            "No GPU ran. A simulated device took its place: statuses show what the audit would catch, "
            "and times are those of a CPU.",
            False,
        )
    return EvidenceText(
        "Predicted · not measured on AMD",
        f"No device ran. Each case was matched with the knowledge base for {arch or 'the chosen GPU'}.",
        False,
    )


def _imported_text(is_amd: bool, where: str) -> EvidenceText:
    title = "Imported · measured on AMD by another tool" if is_amd else "Imported stand-in · not measured on AMD"
    return EvidenceText(
        title,
        f"A profiler recorded kernels and times on {where}. Nothing was replayed and no numbers were compared: it "
        "shows time, path and library, not whether an op is right.",
        is_amd,
    )
