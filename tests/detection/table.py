"""``python -m tests.detection.table``: audits every fault on the simulated device and writes docs/detection.md."""

from __future__ import annotations

import datetime
import json
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

import torch

from tests.detection.audited import Found, audited
from tests.detection.registry import INVENTED, REPORTED, UNSEEN

CHECKOUT = Path(__file__).resolve().parents[2]
DOCUMENT = CHECKOUT / "docs" / "detection.md"

HEAD = """# What the audit detects

Public reports of PyTorch operators that went wrong on AMD GPUs, each re-created as a fault of the simulated device
([tests/detection](../tests/detection)): the reported mechanism, which fires from the arguments alone, under a program
of a few lines that `rocm-audit trace` records and `rocm-audit run --device sim:faults.py` replays. Its *twin* is the
same program just outside the condition and must stay supported, as must reports that were false alarms. No rule
knows a report. Not measured on AMD: this page is of the *simulated* device.

`python -m tests.detection.table` wrote it: {made}.

{counts}

## Reports

Letters after a number tell further faults of one report, or of a sibling that it names. *Scaled*: a limit that is
smaller here than in the report, since memory or time force it.

| report | condition | expected | the audit says | by | twin |
|---|---|---|---|---|---|
"""

INVENTED_HEAD = """
## Faults that nobody reported

Of the same kinds, to build for the kind and not for the row.

| fault | condition | expected | the audit says | by | twin |
|---|---|---|---|---|---|
"""

UNSEEN_HEAD = """
## What single ops do not show

| report | condition | why |
|---|---|---|
"""

MISSED_HEAD = """
## What escapes

"""


def row(found: Found) -> str:
    """One line of a table."""
    fault, said = found.fault, found.program
    condition = fault.condition + (f" (scaled: {fault.scaled})" if fault.scaled else "")
    verdict = said.status if found.right else f"**{said.status}**"
    twin = f"{found.twin.status}: {fault.twin_condition}"
    return f"| {fault.name} | {condition} | {fault.expected} | {verdict} | {', '.join(codes(said.codes))} | {twin} |"


def codes(found: Iterable[str]) -> list[str]:
    """Each once, in order of appearance."""
    return list(dict.fromkeys(found))


def page(reported: Sequence[Found], invented: Sequence[Found], made: str) -> str:
    """The document. What escapes is listed with the reason that its fault gives."""
    right = [sum(found.right for found in part) for part in (reported, invented)]
    reports = {report_of(found.fault.name) for found in reported} | {report.name for report in UNSEEN}
    counts = (
        f"Of {len(reports)} reports {len(UNSEEN)} [do not show in single ops](#what-single-ops-do-not-show); "
        f"of the {len(reported)} faults of the others {right[0]} are judged as they should be, of the {len(invented)} "
        f"that nobody reported {right[1]}."
    )
    text = HEAD.format(made=made, counts=counts) + "".join(f"{row(found)}\n" for found in reported)
    text += UNSEEN_HEAD + "".join(f"| {report.name} | {report.condition} | {report.why} |\n" for report in UNSEEN)
    if invented:
        text += INVENTED_HEAD + "".join(f"{row(found)}\n" for found in invented)
    missed = [found for found in (*reported, *invented) if not found.right]
    if missed:
        text += MISSED_HEAD + "".join(
            f"- {found.fault.name}: {found.fault.missed or 'not known'}.\n" for found in missed
        )
    return text


def report_of(name: str) -> str:
    """``A26`` for ``A26b``."""
    return name[:3]


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "reported").mkdir()
        (Path(folder) / "invented").mkdir()
        reported = audited(REPORTED, Path(folder) / "reported")
        invented = audited(INVENTED, Path(folder) / "invented")
    made = f"{datetime.date.today()}, torch {torch.__version__.split('+')[0]}"
    DOCUMENT.write_text(page(reported, invented, made))
    for found in (*reported, *invented):
        if not found.right:
            said = {"program": found.program.messages, "twin": found.twin.messages}
            print(found.fault.name, found.program.status, found.twin.status, json.dumps(said), file=sys.stderr)


if __name__ == "__main__":
    main()
