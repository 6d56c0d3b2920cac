"""``gate.xml`` for CI servers: a suite per op, a test per case; a failure fails, a waived one is skipped."""

from __future__ import annotations

import io

from junitparser import Error, Failure, JUnitXml, Skipped, TestCase, TestSuite

from audit.gate.comparison import THE_RUN
from audit.gate.outcome import GateOutcome, Judged
from audit.gate.side import CaseState
from audit.report.junit import xml_text


def render(outcome: GateOutcome) -> str:
    """The document as text; times in seconds, as JUnit has them."""
    document = JUnitXml("rocm-audit gate")
    document.add_testsuite(_gate_suite(outcome))
    told: dict[str, list[Judged]] = {}
    for item in outcome.judged:
        told.setdefault(item.difference.key, []).append(item)
    known = {case.key: case for case in (*outcome.baseline.cases, *outcome.candidate.cases)}
    by_op: dict[str, list[CaseState]] = {}
    for case in known.values():
        by_op.setdefault(case.op, []).append(case)
    for op in sorted(by_op):
        suite = TestSuite(xml_text(op))
        suite.add_testcases([_test(case, told.get(case.key, [])) for case in sorted(by_op[op], key=lambda c: c.key)])
        document.add_testsuite(suite)
    sink = io.BytesIO()
    document.write(sink)
    return sink.getvalue().decode("utf-8")


def _gate_suite(outcome: GateOutcome) -> TestSuite:
    """Whether there was a whole candidate, and the waivers; what differs around the runs as properties."""
    suite = TestSuite("gate")
    suite.add_property("evidence", outcome.candidate.evidence)
    for one in outcome.environment:
        suite.add_property(xml_text(f"{one.group}: {one.name}"), xml_text(f"{one.baseline} -> {one.candidate}"))
    whole = TestCase("the candidate is a whole run", "gate")
    if outcome.conclusion == "not finished":
        whole.result = [Error(xml_text(outcome.headline), "not finished")]
    waivers = TestCase("every waiver is valid and needed", "gate")
    waivers.result = [Failure(xml_text(problem), "waiver") for problem in outcome.problems]
    of_run = TestCase("nothing is wrong with the run that was not", "gate")
    of_run.result = [
        Failure(xml_text(item.difference.message), item.difference.kind)
        for item in outcome.judged
        if item.difference.op == THE_RUN and item.level == "fail"
    ]
    suite.add_testcases([whole, of_run, waivers])
    return suite


def _test(case: CaseState, told: list[Judged]) -> TestCase:
    test = TestCase(
        xml_text(f"{case.signature} ({case.phase}) [{case.key}]"), xml_text(case.op), (case.device_us or 0.0) / 1e6
    )
    lines = xml_text("\n".join(f"{item.difference.kind}: {item.difference.message}" for item in told))
    failing = [item for item in told if item.level == "fail"]
    waived = [item for item in told if item.waiver is not None]
    if failing:
        result = Failure(xml_text(failing[0].difference.message), failing[0].difference.kind)
        result.text = lines
        test.result = [result]
    elif waived:
        test.result = [Skipped(xml_text(_waived_text(waived[0])), "waived")]
    elif told:
        test.system_out = lines
    return test


def _waived_text(item: Judged) -> str:
    assert item.waiver is not None
    waiver = item.waiver
    return f"{item.difference.message}; waived until {waiver.expires} by {waiver.owner}: {waiver.reason} {waiver.link}"
