"""The account of all that a program ran: each call is in one record that becomes a case, or named as not audited.

Shared by all recorded threads; ``lock`` guards every change.
"""

from __future__ import annotations

import dataclasses
import threading
from collections import Counter
from typing import Any

from audit.schema import Case, Copy, NotAudited
from audit.tracer.collectives import Message
from audit.tracer.composites import is_vendor_op
from audit.tracer.host_copies import host_copies
from audit.tracer.record import Record, cases_of, folded_into, record_key
from audit.tracer.results import form_of_result
from audit.tracer.unaudited import ON_HOST, computes
from audit.tracer.values import Span

#: A composite was missed, or the program calls the op of one device itself.
_ONE_DEVICE = "only this machine's device has this op, and another would run something else"
#: Composites under torch.func go on in parts before a tracer can take them whole.
_TRANSFORMED = "under torch.func: the parts that this machine's device chose, and another would choose others"


class Ledger:
    """Counts calls; ``open`` until the recording ends."""

    def __init__(self) -> None:
        self.lock = threading.RLock()  # a finaliser that runs ops may come in between
        self.open = True
        self.n_recorded = 0
        self.records: dict[Any, Record] = {}
        self._not_audited: Counter[tuple[str, str]] = Counter()
        self._seen: Counter[tuple[str, str]] = Counter()
        self._passed: dict[tuple[str, str], Message] = {}

    def close(self) -> None:
        """Nothing is recorded from here on, on any thread."""
        with self.lock:
            self.open = False

    def abandon(self) -> None:
        """The same in a forked child, where a thread that is gone may have left the lock locked."""
        self.open = False

    def reset(self) -> None:
        """Forgets the calls so far; what was seen beside them stays."""
        with self.lock:
            self.records.clear()
            self._not_audited.clear()
            self._passed.clear()
            self.n_recorded = 0

    def move_to_accelerator(self, record: Record) -> None:
        """One call of a record of the CPU turns out to be one of the accelerator."""
        on_cpu, on_gpu = (
            record_key(record.func, record.phase, place, record.folded, record.settings) for place in (False, True)
        )
        with self.lock:
            if not self.open or self.records.get(on_cpu) is not record:
                return  # forgotten since
            moved = self.records.get(on_gpu)
            if moved is None:
                moved = dataclasses.replace(
                    record,
                    on_accelerator=True,
                    n_calls=0,
                    n_recomputed=0,
                    modules=record.modules.copy(),
                    sources=record.sources.copy(),
                )
                self.records[on_gpu] = moved
            moved.n_calls += 1
            record.n_calls -= 1
            if not record.n_calls:
                del self.records[on_cpu]

    def name_call(self, what: str, reason: str, passed: Message | None = None) -> None:
        """Counts a call that has no case, and what it ``passed`` among the ranks."""
        with self.lock:
            if self.open:
                self.n_recorded += 1
                self._not_audited[what, reason] += 1
                if passed is not None:
                    before = self._passed.get((what, reason), Message(0, 0))
                    n_ranks = max(before.n_ranks, passed.n_ranks)
                    self._passed[what, reason] = Message(before.nbytes + passed.nbytes, n_ranks)

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
        uses_accelerator = any(record.on_accelerator for record in self.records.values())
        for record in self.records.values():
            if id(record) in ids:
                continue
            if uses_accelerator and not record.on_accelerator:
                calls[record.op, ON_HOST] += record.n_calls
            elif is_vendor_op(record.op):
                calls[record.op, _ONE_DEVICE] += record.n_missed
                calls[record.op, _TRANSFORMED] += record.n_calls - record.n_missed
            else:
                calls[record.op, form_of_result(record.op, record.folded)] += record.n_calls
        whats = sorted(what for what in {*calls, *self._seen} if calls[what] or self._seen[what])
        copies = host_copies(self.records.values())
        named = (_named(what, calls[what], self._seen[what], copies.get(what[0], ())) for what in whats)
        return tuple(_with_message(item, self._passed.get((item.what, item.reason))) for item in named)

    def cases(self, audited: list[Record]) -> tuple[dict[str, Case], dict[str, Span]]:
        """Cases by key, and the kept values by their names in the value file."""
        cases: dict[str, Case] = {}
        spans: dict[str, Span] = {}
        for record in audited:
            for case, case_spans in cases_of(record):
                cases[case.key] = folded_into(cases.get(case.key), case)
                spans.update({f"{case.key}/{position}": span for position, span in case_spans.items()})
        return cases, spans


def _set_aside(record: Record) -> bool:
    """Whether calls that have a signature are no cases all the same."""
    return is_vendor_op(record.op) or bool(form_of_result(record.op, record.folded))


def _named(what: tuple[str, str], n_calls: int, n_seen: int, copies: tuple[Copy, ...]) -> NotAudited:
    reason = what[1]
    missed = reason == _ONE_DEVICE
    return NotAudited(*what, n_calls, n_seen, computes=computes(reason), missed=missed, copies=copies)


def _with_message(item: NotAudited, message: Message | None) -> NotAudited:
    return item if message is None else dataclasses.replace(item, nbytes=message.nbytes, n_ranks=message.n_ranks)
