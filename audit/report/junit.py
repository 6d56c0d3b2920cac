"""``junit.xml`` for CI servers: a suite per op, a test per case.

``unsupported`` and ``divergent`` fail; ``inconclusive`` is an error, for it is about the audit; ``slow`` and
``falling_back`` pass with their finding as output, since whether they break a build is for ``--fail-on`` to say.
"""

from __future__ import annotations

import io

from junitparser import Error, Failure, JUnitXml, TestCase, TestSuite

from audit.report import text
from audit.report.legend import evidence_text
from audit.report.rows import CaseRow, OpRow, case_rows, op_rows
from audit.run_records import RunHeader
from audit.verdicts import Judgement

_FAILING = ("unsupported", "divergent")


def render(judgement: Judgement) -> str:
    """The document as text; times in seconds, as JUnit has them."""
    header = judgement.run.header
    document = JUnitXml(f"rocm-audit: {xml_text(header.source.name)}")
    for op in op_rows(case_rows(judgement)):
        document.add_testsuite(_suite(op, header))
    sink = io.BytesIO()
    document.write(sink)
    return sink.getvalue().decode("utf-8")


def xml_text(value: str) -> str:
    """``value`` without the characters that XML 1.0 cannot hold."""
    return text.printable(value).replace("\ufffe", "\\ufffe").replace("\uffff", "\\uffff")


def _suite(op: OpRow, header: RunHeader) -> TestSuite:
    suite = TestSuite(xml_text(op.op))
    suite.add_property("evidence", header.evidence)
    suite.add_property("evidence_text", evidence_text(header).title)
    suite.add_property("device", xml_text(f"{header.device.name} {header.device.arch}"))
    suite.add_testcases([_test(row) for row in op.cases])
    return suite


def _test(row: CaseRow) -> TestCase:
    verdict = row.verdict
    name = f"{verdict.signature} ({verdict.phase}) [{verdict.key}]"
    test = TestCase(xml_text(name), xml_text(verdict.op), (verdict.device_us or 0.0) / 1e6)
    summary = xml_text("\n".join(f"{f.code} {f.status}: {f.message}" for f in row.findings) or verdict.status)
    if verdict.status in _FAILING:
        test.result = [_result(Failure, summary, verdict.status)]
    elif verdict.status == "inconclusive":
        test.result = [_result(Error, summary, verdict.status)]
    elif row.findings:
        test.system_out = summary
    return test


def _result(kind: type[Failure] | type[Error], summary: str, status: str) -> Failure | Error:
    result = kind(summary.split("\n")[0], status)
    result.text = summary
    return result
