"""Several opsets to one: the ranks of a launcher, or several programs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from audit.errors import UsageError
from audit.opset.file import Opset, check_values, open_opset, write_opset
from audit.opset.tensors import blocks_of_tensor, write_tensors
from audit.pseudonyms import tagged
from audit.schema import Case, Copy, NotAudited, Source, Trace

#: At most this many distinct modules and source lines are kept per case, as the tracer keeps them.
MAX_PLACES = 64


def merge_opsets(paths: Sequence[Path], labels: Sequence[str], target: Path, what: str) -> Trace:
    """Writes one opset for all of ``paths`` to ``target``. ``labels`` name them in notes, ``what`` says what they are.

    Counts add up; the values of a case come from the first file that has some. Raises UsageError when there is nothing
    to merge or a file is damaged, UnfinishedError when ``target`` cannot be written.
    """
    if not paths:
        raise UsageError(f"no {what} to merge into {target}", "unreadable-opset")
    opsets = [open_opset(path) for path in paths]
    for opset in opsets:
        check_values(opset)
    owners = _owners(opsets)
    traces = [opset.trace for opset in opsets]
    if any(trace.source.private for trace in traces):
        labels = [f"{what} {number}" for number in range(1, len(paths) + 1)]  # file names are the program's too
        if len({trace.source.private for trace in traces}) > 1:
            traces = [tagged(trace) for trace in traces]  # each has a module-1 of its own
    trace = merged_trace(traces, labels, owners, what)
    places = {
        name: (opset.path, tensor)
        for number, opset in enumerate(opsets)
        for name, tensor in opset.tensors.items()
        if owners[name.rpartition("/")[0]] == number
    }
    places = dict(sorted(places.items()))
    with ExitStack() as stack:
        files = {path: stack.enter_context(path.open("rb")) for path in paths}
        tensors = {name: (tensor.dtype, tensor.n_elements) for name, (_, tensor) in places.items()}
        blocks = (block for path, tensor in places.values() for block in blocks_of_tensor(files[path], tensor))
        write_opset(target, trace, (lambda file: write_tensors(file, tensors, blocks)) if tensors else None)
    return trace


def merged_trace(traces: Sequence[Trace], labels: Sequence[str], owners: Mapping[str, int], what: str) -> Trace:
    """One trace for all. ``owners`` says by key whose statistics of values stand in it."""
    cases: dict[str, Case] = {}
    not_audited: dict[tuple[str, str], NotAudited] = {}
    for number, trace in enumerate(traces):
        for case in trace.cases:
            cases[case.key] = _folded(cases.get(case.key), case, owners.get(case.key) == number)
        for item in trace.not_audited:
            named = (item.what, item.reason)
            not_audited[named] = _added(not_audited[named], item) if named in not_audited else item
    return Trace(
        source=_source(traces, labels),
        environment=traces[0].environment,
        cases=tuple(cases.values()),
        not_audited=tuple(item for _, item in sorted(not_audited.items())),
        n_recorded=sum(trace.n_recorded for trace in traces),
        notes=(
            f"merged from {len(traces)} {what}",
            *_environment_notes(traces, labels),
            *dict.fromkeys(note for trace in traces for note in trace.notes),
        ),
        elsewhere=next((trace.elsewhere for trace in traces if trace.elsewhere is not None), None),
    )


def _added(old: NotAudited, new: NotAudited) -> NotAudited:
    return dataclasses.replace(
        old,
        n_calls=old.n_calls + new.n_calls,
        n_seen=old.n_seen + new.n_seen,
        nbytes=old.nbytes + new.nbytes,
        n_ranks=max(old.n_ranks, new.n_ranks),
        copies=_copies_together(old.copies + new.copies),
    )


def _copies_together(copies: tuple[Copy, ...]) -> tuple[Copy, ...]:
    found: dict[str, Copy] = {}
    for copy in copies:
        seen = found.get(copy.direction, Copy(copy.direction, 0, 0))
        found[copy.direction] = Copy(copy.direction, seen.nbytes + copy.nbytes, seen.count + copy.count)
    return tuple(found.values())


def _folded(old: Case | None, new: Case, owns_values: bool) -> Case:
    if old is None:
        return new
    return dataclasses.replace(
        old,
        n_calls=old.n_calls + new.n_calls,
        n_recomputed=old.n_recomputed + new.n_recomputed,
        modules=_union(old.modules, new.modules),
        sources=_union(old.sources, new.sources),
        values=new.values if owns_values else old.values,
    )


def _union(old: tuple[str, ...], new: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(old + new))[:MAX_PLACES]


def _source(traces: Sequence[Trace], labels: Sequence[str]) -> Source:
    errors = [
        f"{label}: {trace.source.error}" for label, trace in zip(labels, traces, strict=True) if trace.source.error
    ]
    error = "; ".join(errors) or None
    private = tuple(dict.fromkeys(name_map for trace in traces for name_map in trace.source.private))
    names = list(dict.fromkeys((trace.source.kind, trace.source.name) for trace in traces))
    if len(names) == 1:
        return dataclasses.replace(traces[0].source, error=error, private=private)
    return Source("merge", ", ".join(name for _, name in names), error=error, private=private)


def _environment_notes(traces: Sequence[Trace], labels: Sequence[str]) -> Iterator[str]:
    """Where the programs ran in different surroundings; the first's stand in the file."""
    names = dict.fromkeys(name for trace in traces for name in trace.environment)
    for name in names:
        said: dict[str, list[str]] = {}
        for label, trace in zip(labels, traces, strict=True):
            said.setdefault(trace.environment.get(name, "not set"), []).append(label)
        if len(said) > 1:
            yield f"{name} differs: " + ", ".join(f"{value} ({', '.join(who)})" for value, who in said.items())


# --- values ------------------------------------------------------------------------------------------------------


def _owners(opsets: Sequence[Opset]) -> dict[str, int]:
    """Whose values a case keeps: the first with stored ones, else the first that looked at any."""
    stored: dict[str, int] = {}
    seen: dict[str, int] = {}
    for number, opset in enumerate(opsets):
        for name in opset.tensors:
            stored.setdefault(name.rpartition("/")[0], number)
        for case in opset.trace.cases:
            if case.values:
                seen.setdefault(case.key, number)
    return {**seen, **stored}
