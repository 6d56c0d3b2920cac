"""The account of all that a program ran: each call is in one record that becomes a case, or named as not audited.

Shared by all recorded threads; ``lock`` guards every change.
"""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

from audit.schema import Case, NotAudited
from audit.tracer.composites import is_vendor_op
from audit.tracer.record import Record, cases_of, folded_into
from audit.tracer.results import form_of_result
from audit.tracer.unaudited import computes
from audit.tracer.values import Span

#: A call that reached the tracer below the composite that it belongs to (under vmap), or that the program made itself.
_ONE_DEVICE = "only this machine's device has this op, and another would run something else"
_ON_CPU = "ran on the CPU in the program"


class Ledger:
    """Counts calls; ``open`` until the recording ends."""

    def __init__(self) -> None:
        self.lock = threading.RLock()  # a finaliser that runs ops may come in between
        self.open = True
        self.n_recorded = 0
        self.records: dict[Any, Record] = {}
        self._not_audited: Counter[tuple[str, str]] = Counter()
        self._seen: Counter[tuple[str, str]] = Counter()

    def close(self) -> None:
        """Nothing is recorded from here on, on any thread."""
        self.open = False

    def reset(self) -> None:
        """Forgets the calls so far; what was seen beside them stays."""
        with self.lock:
            self.records.clear()
            self._not_audited.clear()
            self.n_recorded = 0

    def name_call(self, what: str, reason: str) -> None:
        """Counts a call that has no case."""
        with self.lock:
            self.n_recorded += 1
            self._not_audited[what, reason] += 1

    def name_thing(self, what: str, reason: str) -> None:
        """Counts something that is no recorded call: a compiled region entered, a process, a kernel launch."""
        with self.lock:
            self._seen[what, reason] += 1

    def audited(self) -> list[Record]:
        """What becomes cases: where a GPU took part, its calls; a program that used none is audited whole."""
        records = list(self.records.values())
        chosen = [record for record in records if record.on_accelerator] or records
        return [record for record in chosen if not _set_aside(record)]

    def not_audited(self, audited: list[Record]) -> tuple[NotAudited, ...]:
        """What is named, by what and reason; ``audited`` are the records that became cases."""
        calls, ids = Counter(self._not_audited), {id(record) for record in audited}
        for record in self.records.values():
            if id(record) not in ids:
                calls[record.op, _set_aside(record) or _ON_CPU] += record.n_calls
        whats = sorted({*calls, *self._seen})
        return tuple(
            NotAudited(*what, n_calls=calls[what], n_seen=self._seen[what], computes=computes(what[1]))
            for what in whats
        )

    def cases(self, audited: list[Record]) -> tuple[dict[str, Case], dict[str, Span]]:
        """Cases by key, and the kept values by their names in the value file."""
        cases: dict[str, Case] = {}
        spans: dict[str, Span] = {}
        for record in audited:
            for case, case_spans in cases_of(record):
                cases[case.key] = folded_into(cases.get(case.key), case)
                spans.update({f"{case.key}/{position}": span for position, span in case_spans.items()})
        return cases, spans


def _set_aside(record: Record) -> str:
    """Why calls that could be replayed are no cases, or an empty string."""
    return _ONE_DEVICE if is_vendor_op(record.op) else form_of_result(record.op, record.folded)
