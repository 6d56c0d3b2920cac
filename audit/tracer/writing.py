"""A recorder's trace to an ``.audit`` file, and the files of several ranks to one."""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from safetensors import safe_open

from audit.errors import UnfinishedError, UsageError
from audit.opset import extract_values, read_opset, write_opset
from audit.schema import Case, NotAudited, Source, Trace
from audit.tracer.recorder import Recorder
from audit.tracer.values import Span, ValueRecorder


def write_trace(recorder: Recorder, source: Source, environment: Mapping[str, str], path: Path) -> Trace:
    """Writes what ``recorder`` saw to ``path``; the returned trace is what a reader of the file gets."""
    trace, spans = recorder.build(source, environment)
    values = recorder.values
    with _scratch(path) as folder:
        file = Path(folder, "values.safetensors")
        written = values is not None and values.write(file, spans)
        write_opset(path, trace, file if written else None)
    if values is not None:
        values.close()
    return trace


def _scratch(path: Path) -> tempfile.TemporaryDirectory[str]:
    """A folder beside ``path``, where what is moved to it must have room."""
    try:
        return tempfile.TemporaryDirectory(prefix="rocm-audit-", dir=path.resolve().parent)
    except OSError as error:
        raise UnfinishedError(f"cannot write {path}: {error.strerror}", "unwritable-output") from error


def rank_path(path: Path) -> Path:
    """Where this process of a launcher (torchrun, accelerate) writes: ``m.rank3.audit``; without one, ``path``."""
    rank = os.environ.get("RANK")
    if rank is None or int(os.environ.get("WORLD_SIZE", "1")) < 2:
        return path
    return path.with_name(f"{path.stem}.rank{int(rank)}.audit")


def rank_files(path: Path) -> list[Path]:
    """The rank files that stand for ``path``, in order of rank."""
    return sorted(path.parent.glob(f"{path.stem}.rank*.audit"), key=_rank_of)


def _rank_of(path: Path) -> int:
    match = re.search(r"\.rank(\d+)\.audit$", path.name)
    return int(match.group(1)) if match else 0


def copy_or_merge(path: Path, target: Path) -> Trace:
    """Puts the opset ``path`` at ``target``; where only its rank files are there, their merge."""
    if not path.exists():
        return merge_ranks(rank_files(path), target)
    trace = read_opset(path)
    if path.resolve() != target.resolve():
        try:
            shutil.copyfile(path, target)
        except OSError as error:
            raise UnfinishedError(f"cannot write {target}: {error.strerror}", "unwritable-output") from error
    return trace


def merge_ranks(paths: Sequence[Path], target: Path) -> Trace:
    """One opset from one file a rank: counts add up, values come from the first rank that kept them.

    Raises UsageError when there is nothing to merge or a file is damaged.
    """
    if not paths:
        raise UsageError(f"no rank files like {target.stem}.rank0.audit to merge", "unreadable-opset")
    traces = [read_opset(path) for path in paths]
    cases: dict[str, Case] = {}
    not_audited: dict[tuple[str, str], int] = {}
    for trace in traces:
        for case in trace.cases:
            old = cases.get(case.key)
            cases[case.key] = case if old is None else dataclasses.replace(old, n_calls=old.n_calls + case.n_calls)
        for item in trace.not_audited:
            not_audited[item.what, item.reason] = not_audited.get((item.what, item.reason), 0) + item.n_calls
    errors = [f"rank {_rank_of(p)}: {t.source.error}" for p, t in zip(paths, traces, strict=True) if t.source.error]
    merged = Trace(
        source=dataclasses.replace(traces[0].source, error="; ".join(errors) or None),
        environment=traces[0].environment,
        cases=tuple(cases.values()),
        not_audited=tuple(NotAudited(what, reason, n) for (what, reason), n in sorted(not_audited.items())),
        n_recorded=sum(trace.n_recorded for trace in traces),
        notes=(f"merged from {len(paths)} ranks", *dict.fromkeys(note for trace in traces for note in trace.notes)),
    )
    with _scratch(target) as folder:
        file = Path(folder, "merged.safetensors")
        written = ValueRecorder().write(file, _spans_of_ranks(paths, Path(folder)))
        write_opset(target, merged, file if written else None)
    return merged


def _spans_of_ranks(paths: Sequence[Path], folder: Path) -> dict[str, Span]:
    spans: dict[str, Span] = {}
    for number, path in enumerate(paths):
        own = folder / str(number)
        own.mkdir()
        values = extract_values(path, own)
        if values is None:
            continue
        with safe_open(values, "pt") as file:
            owned: set[str] = {name.rsplit("/", 1)[0] for name in spans}
            for name in file.keys():  # noqa: SIM118 - not a dict
                if name.rsplit("/", 1)[0] not in owned:
                    tensor: torch.Tensor = file.get_tensor(name)
                    spans[name] = Span(tensor.dtype, tensor.numel() * tensor.element_size(), tensor)
    return spans
