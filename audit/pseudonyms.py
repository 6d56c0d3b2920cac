"""Names that stand for a program's own: ``module-17``, ``line-4``. The same name always has the same one.

They are found again by their form, so that a map can restore them wherever they went: in a run, a report, a merge.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from typing import Literal, TypeAlias

from audit.run_records import Run
from audit.schema import Case, NotAudited, Source, Trace

Kind: TypeAlias = Literal["module", "line", "op", "program", "error", "word"]

#: ``module-17``, or ``module-17@1f2e3d4c`` in a merge of several private traces.
_FORM = re.compile(r"\b(?:module|line|op|program|error|word)-[1-9][0-9]{0,8}\b(?:@([0-9a-f]{8})\b)?")


class Pseudonyms:
    """Gives them out, in the order in which it is asked."""

    def __init__(self) -> None:
        self._given: dict[tuple[Kind, str], str] = {}
        self._counts: dict[Kind, int] = {}

    def of(self, kind: Kind, name: str) -> str:
        given = self._given.get((kind, name))
        if given is None:
            self._counts[kind] = self._counts.get(kind, 0) + 1
            given = self._given[kind, name] = f"{kind}-{self._counts[kind]}"
        return given

    def names(self) -> dict[str, str]:
        """What each of them stands for."""
        return {given: name for (_, name), given in self._given.items()}


def restored(text: str, names_by_id: Mapping[str, Mapping[str, str]], own: str | None) -> str:
    """``text`` with the names of every map that is there; ``own`` is the id of pseudonyms that carry none."""

    def name(match: re.Match[str]) -> str:
        names = names_by_id.get(match[1] or own or "", {})
        return names.get(match[0].partition("@")[0], match[0])

    return _FORM.sub(name, text)


def tagged(trace: Trace) -> Trace:
    """A private trace whose pseudonyms carry the id of their map, so that they can stand beside another's."""
    if len(trace.source.private) != 1:
        return trace
    [own] = trace.source.private
    return trace_with_texts(
        trace, lambda text: _FORM.sub(lambda match: match[0] if match[1] else f"{match[0]}@{own}", text)
    )


def trace_with_texts(trace: Trace, change: Callable[[str], str]) -> Trace:
    """The trace with every text that can hold a program's name changed."""
    return dataclasses.replace(
        trace,
        source=_source(trace.source, change),
        cases=tuple(_case(case, change) for case in trace.cases),
        not_audited=_not_audited(trace.not_audited, change),
        notes=tuple(change(note) for note in trace.notes),
    )


def run_with_texts(run: Run, change: Callable[[str], str]) -> Run:
    """The same of a run; what was measured names nothing of the program."""
    header = dataclasses.replace(
        run.header,
        source=_source(run.header.source, change),
        not_audited=_not_audited(run.header.not_audited, change),
        notes=tuple(change(note) for note in run.header.notes),
    )
    return dataclasses.replace(run, header=header, cases=tuple(_case(case, change) for case in run.cases))


def _case(case: Case, change: Callable[[str], str]) -> Case:
    return dataclasses.replace(
        case,
        modules=tuple(change(place) for place in case.modules),
        sources=tuple(change(place) for place in case.sources),
    )


def _source(source: Source, change: Callable[[str], str]) -> Source:
    error = None if source.error is None else change(source.error)
    return dataclasses.replace(source, name=change(source.name), error=error)


def _not_audited(items: tuple[NotAudited, ...], change: Callable[[str], str]) -> tuple[NotAudited, ...]:
    return tuple(dataclasses.replace(item, what=change(item.what), reason=change(item.reason)) for item in items)
