"""Does the gate work here: faults planted in a replay must fail it, the same replay without faults must pass."""

from __future__ import annotations

import datetime
import sys
from dataclasses import dataclass, replace

from audit.errors import UnfinishedError
from audit.gate.outcome import GateOutcome, gate
from audit.gate.policy import Policy
from audit.gate.side import Side, side_of
from audit.replay.engine import ReplaySettings
from audit.rules.judge import judge
from audit.selftest import FAULT_FILE, planted_cases, replayed_run
from audit.terminal import print_result

#: Ops whose faults do not end a process, and one that is healthy; with the change that the gate has to tell.
EXPECTED: dict[str, str] = {
    "aten::mul.Tensor": "",
    "aten::mm.default": "regressed",
    "aten::addmm.default": "regressed",
    "aten::cumsum.default": "regressed",
}


@dataclass(frozen=True)
class Proof:
    """One thing that the gate has to do, and whether it did."""

    what: str
    holds: bool
    seen: str


def prove() -> tuple[Proof, ...]:
    """Replays the planted cases twice on the simulated device, healthy and with faults, and gates the two."""
    return proofs(_side("sim"), _side(f"sim:{FAULT_FILE}"))


def proofs(healthy: Side, faulty: Side) -> tuple[Proof, ...]:
    """What the gate says of a healthy and a faulty replay of the same cases."""
    policy, today = Policy(), datetime.date.min
    same = gate(healthy, healthy, policy, today)
    failing = gate(healthy, faulty, policy, today)
    found = {(item.difference.op, item.difference.kind) for item in failing.judged if item.level == "fail"}
    expected = {(op, kind) for op, kind in EXPECTED.items() if kind}
    empty = gate(healthy, replace(faulty, cases=()), policy, today)
    fewer = gate(healthy, replace(healthy, cases=healthy.cases[1:]), policy, today)
    return (
        _proof("a run beside itself passes", same, 0),
        Proof(
            "planted faults fail, each in its case and no other",
            failing.exit_code == 1 and found == expected,
            failing.headline,
        ),
        _proof("a case that is gone fails", fewer, 1),
        _proof("an empty candidate cannot be judged", empty, 3),
    )


def _proof(what: str, outcome: GateOutcome, exit_code: int) -> Proof:
    return Proof(what, outcome.exit_code == exit_code, outcome.headline)


def _side(device: str) -> Side:
    cases = tuple(case for case in planted_cases() if case.op in EXPECTED)
    return side_of(judge(replayed_run(ReplaySettings(device=device, timing_budget_s=0.01), cases)))


def print_self_test(as_json: bool, quiet: bool) -> int:
    """Prints what was proved. Raises UnfinishedError where something was not."""
    if not quiet:
        print("replaying planted faults on the simulated device", file=sys.stderr)
    found = prove()
    if as_json:
        works = all(proof.holds for proof in found)
        print_result({"format_version": 1, "works": works, "proofs": [vars(proof) for proof in found]})
    else:
        for proof in found:
            print(f"{'ok    ' if proof.holds else 'FAILED'} {proof.what}: {proof.seen}")
    if not all(proof.holds for proof in found):
        raise UnfinishedError("the gate does not do here what it has to; trust no result of it", "gate-self-test")
    return 0
