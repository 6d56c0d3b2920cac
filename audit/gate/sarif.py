"""``gate.sarif``: SARIF 2.1.0, for code scanning. A rule for each kind of change, a result for each difference.

GitHub refuses a whole file for one result without a place, and for more than 25,000 of them.
Source: OASIS, Static Analysis Results Interchange Format (SARIF) Version 2.1.0, 27 March 2020; GitHub, SARIF support
for code scanning (rules with descriptions and help, ``primaryLocationLineHash``).
"""

from __future__ import annotations

import hashlib
import json
from typing import Any
from urllib.parse import quote

from audit.gate.comparison import Difference
from audit.gate.outcome import GateOutcome, Judged
from audit.gate.place import Anchor, Place, place_of
from audit.gate.policy import DEFAULT_LEVELS, Kind, Level
from audit.report import text

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
MAX_RESULTS = 25_000
_LEVELS: dict[Level, str] = {"fail": "error", "warn": "warning", "note": "note", "ignore": "none"}
_MEANINGS: dict[Kind, str] = {
    "regressed": "The status of the case is worse than in the baseline.",
    "gone": "The baseline has the case and the candidate has not.",
    "inconclusive": "The audit can no longer say.",
    "slower": "The case takes longer, by more than the spread of both runs and the ratio of the policy.",
    "less exact": "The error has grown.",
    "other finding": "The status is the same for another reason.",
    "other path": "Another op or another library did the work.",
    "flaky": "The difference lies within what one run shows of itself.",
    "new": "The baseline does not have the case.",
    "left out": "The candidate did not run the case.",
    "fixed": "The status is better than in the baseline.",
    "faster": "The case takes less time.",
}
_HELP = "The key in brackets names the case in both runs; a waiver in the policy accepts the change for a time."
_KINDS = tuple(DEFAULT_LEVELS)


def render(outcome: GateOutcome) -> str:
    """JSON text: the same outcome, the same bytes."""
    return json.dumps(log(outcome), indent=1, allow_nan=False) + "\n"


def log(outcome: GateOutcome) -> dict[str, Any]:
    """The ``sarifLog`` as plain JSON values."""
    driver: dict[str, Any] = {
        "name": "rocm-audit gate",
        "rules": [
            {
                "id": _rule(kind),
                "shortDescription": {"text": _MEANINGS[kind]},
                "fullDescription": {"text": _MEANINGS[kind]},
                "help": {"text": f"{_MEANINGS[kind]} {_HELP}"},
                "defaultConfiguration": {"level": _LEVELS[outcome.policy.level(kind)]},
            }
            for kind in _KINDS
        ],
    }
    if outcome.audit_version:
        driver["version"] = outcome.audit_version
    run = {
        "tool": {"driver": driver},
        "invocations": [_invocation(outcome)],
        "results": [_result(item, outcome.anchor) for item in outcome.judged[:MAX_RESULTS]],
        "properties": {"evidence": outcome.candidate.evidence, "conclusion": outcome.conclusion},
    }
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def _rule(kind: Kind) -> str:
    return f"gate/{kind.replace(' ', '-')}"


def _invocation(outcome: GateOutcome) -> dict[str, Any]:
    """Whether the gate could say, and what it says of no case."""
    told = [("error" if outcome.conclusion == "not finished" else "note", outcome.headline)]
    told += [("error", problem) for problem in outcome.problems]
    told += [("note", f"{one.group}: {one.name} {one.baseline} -> {one.candidate}") for one in outcome.environment]
    if outcome.trace is not None:
        told.append(("warning", outcome.trace.sentence))
    if (left := len(outcome.judged) - MAX_RESULTS) > 0:
        told.append(("warning", f"{text.plural(left, 'more difference')} in gate.json"))
    return {
        "executionSuccessful": outcome.conclusion != "not finished",
        "exitCode": outcome.exit_code,
        "toolExecutionNotifications": [
            {"level": level, "message": {"text": text.printable(message)}} for level, message in told
        ],
    }


def _result(item: Judged, anchor: Anchor) -> dict[str, Any]:
    difference, waiver = item.difference, item.waiver
    message = f"{text.short_op(difference.op)} {difference.message} [{difference.key}]"
    result: dict[str, Any] = {
        "ruleId": _rule(difference.kind),
        "ruleIndex": _KINDS.index(difference.kind),
        "level": _LEVELS[item.level],
        "message": {"text": text.printable(message)},
        "locations": [_location(place_of(difference) or anchor.place(difference.key))],
        "partialFingerprints": _fingerprints(difference),
        "properties": {"signature": difference.signature, "phase": difference.phase, "calls": difference.n_calls},
    }
    if waiver is not None:
        justification = f"{waiver.reason} ({waiver.owner}, until {waiver.expires}, {waiver.link})"
        result["suppressions"] = [{"kind": "external", "status": "accepted", "justification": justification}]
    return result


def _location(place: Place) -> dict[str, Any]:
    where = {"artifactLocation": {"uri": quote(place.file, errors="replace")}, "region": {"startLine": place.line}}
    return {"physicalLocation": where}


def _fingerprints(difference: Difference) -> dict[str, str]:
    """By case and change, so that differences on one line stay apart and one that moved stays the same alert."""
    identity = f"{difference.key}/{difference.kind}"
    digest = hashlib.sha256(identity.encode("utf-8", "replace")).hexdigest()[:16]
    return {"caseAndChange/v1": identity, "primaryLocationLineHash": f"{digest}:1"}
