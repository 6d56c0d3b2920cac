"""What differs around two runs, and whom to ask: named before any case, for one of it may explain all."""

from __future__ import annotations

import re
from dataclasses import dataclass

from audit.errors import UsageError
from audit.gate.side import Side
from audit.report.text import one_line

_GROUPS: tuple[tuple[str, str], ...] = (
    (r"torch|triton|pytorch-triton-rocm|arch_list", "torch"),
    (r"hip|rocm", "ROCm"),
    (r"cuda", "CUDA"),
    (r"amdgpu", "driver"),
    (r"gpus|gpu \d+|device", "GPU"),
    (r"[A-Z][A-Z0-9_]*|setting .*|rocm-audit", "settings"),
)
#: In the order of telling; what fits no pattern is of the machine.
GROUPS = (*(group for _, group in _GROUPS), "machine")
#: Settings of the audit that are of no weight for what a case does.
WITHOUT_WEIGHT = frozenset(("values", "alternatives_limit_s"))


@dataclass(frozen=True)
class EnvironmentDifference:
    """One thing that differs; ``group`` tells whom to ask: torch, ROCm, CUDA, driver, GPU, settings, machine."""

    group: str
    name: str
    baseline: str
    candidate: str


@dataclass(frozen=True)
class TraceDifference:
    """How the cases differ: keys that only one side has, and those that both call another number of times.

    ``ops`` are those with most such cases, at most ten. ``versions`` of torch on both sides.
    """

    n_only_baseline: int
    n_only_candidate: int
    n_other_counts: int
    ops: tuple[str, ...]
    versions: tuple[str, str]

    @property
    def sentence(self) -> str:
        """What differs, and what to do."""
        parts = [
            f"{n} {what}"
            for n, what in (
                (self.n_only_baseline, "only in the baseline"),
                (self.n_only_candidate, "only in the candidate"),
                (self.n_other_counts, "called another number of times"),
            )
            if n
        ]
        old, new = self.versions
        why = (
            f"torch {old} and torch {new} may decompose the same program into other ops; "
            if old != new
            else "the program or its inputs are not the same; "
        )
        return (
            f"the two runs are not of the same trace: of the cases, {', '.join(parts)} ({', '.join(self.ops)}); {why}"
            "replay one .audit file on both sides"
        )


def check_comparable(baseline: Side, candidate: Side, other_evidence: bool, other_gpu: bool) -> None:
    """Raises UsageError where the two are of other evidence or another GPU, unless that is allowed."""
    if baseline.evidence != candidate.evidence and not other_evidence:
        raise UsageError(
            f"the baseline is {baseline.evidence} and the candidate {candidate.evidence}: a difference would be one of "
            "devices, not of versions; --allow-other-evidence compares them all the same",
            "other-evidence",
        )
    old, new = (_gpu(side) for side in (baseline, candidate))
    if old != new and not other_gpu:
        old, new = one_line(old), one_line(new)
        raise UsageError(
            f"the baseline ran on {old} and the candidate on {new}; compare runs of one kind of GPU, or give "
            "--allow-other-gpu",
            "other-gpu",
        )


def _gpu(side: Side) -> str:
    return f"{side.device.name} ({side.device.backend} {side.device.arch})"


def environment_differences(baseline: Side, candidate: Side) -> tuple[EnvironmentDifference, ...]:
    """By group, then by name; an empty text is a thing that only the other side has."""
    old, new = (_surroundings(side) for side in (baseline, candidate))
    found = [
        EnvironmentDifference(group_of(name), name, old.get(name, ""), new.get(name, ""))
        for name in {**old, **new}
        if old.get(name, "") != new.get(name, "")
    ]
    return tuple(sorted(found, key=lambda one: (GROUPS.index(one.group), one.name)))


def _surroundings(side: Side) -> dict[str, str]:
    settings = {f"setting {name}": value for name, value in side.settings.items() if name not in WITHOUT_WEIGHT}
    return {**side.environment, **settings, "device": _gpu(side), "rocm-audit": side.audit_version}


def group_of(name: str) -> str:
    """Whom to ask about a thing around a run, by its name."""
    return next((group for pattern, group in _GROUPS if re.fullmatch(pattern, name)), "machine")


def trace_difference(baseline: Side, candidate: Side) -> TraceDifference | None:
    """None where both have the same cases as often."""
    old, new = ({case.key: case for case in side.cases} for side in (baseline, candidate))
    other_counts = [key for key in old.keys() & new.keys() if old[key].n_calls != new[key].n_calls]
    differing = [*(old.keys() ^ new.keys()), *other_counts]
    if not differing:
        return None
    by_op: dict[str, int] = {}
    for key in differing:
        op = (old.get(key) or new[key]).op
        by_op[op] = by_op.get(op, 0) + 1
    return TraceDifference(
        n_only_baseline=len(old.keys() - new.keys()),
        n_only_candidate=len(new.keys() - old.keys()),
        n_other_counts=len(other_counts),
        ops=tuple(sorted(by_op, key=lambda op: (-by_op[op], op))[:10]),
        versions=(baseline.environment.get("torch", "unknown"), candidate.environment.get("torch", "unknown")),
    )
