"""The account of a recording of calls: each call is counted in one case, or named with the reason why it is in none."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping
from functools import lru_cache

from audit.codec import DecodeError, case_key, tensors_of
from audit.errors import UsageError
from audit.importers.renamed import Renaming, renaming_of
from audit.replay.overload import resolve
from audit.schema import Arg, Case, NotAudited, Phase, Source, Trace
from audit.tracer.composites import is_vendor_op
from audit.tracer.host_arguments import with_host_arguments
from audit.tracer.results import form_of_result
from audit.tracer.unaudited import computes, reason_for_name
from audit.validity import check_case

#: Distinct cases and named calls of one recording. The largest known has about 2,000; each takes some kilobytes.
MAX_ENTRIES = 1 << 16
SYNTHESISED = "the recording holds no values: those of all arguments are synthesised, by what each op needs of them"
_UNKNOWN = "no aten operator that the torch here knows and a replay may run"
ONE_DEVICE = "only one vendor's device has this op, and another would run something else"


@dataclasses.dataclass(frozen=True)
class _Standing:
    """What the installed torch makes of an op's name: what to call, or why it is no case."""

    op: str
    renaming: Renaming | None = None
    reason: str = ""


class Account:
    """Cases by key and named calls. ``name`` is the recording's, for messages."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._cases: dict[str, Case] = {}
        self._named: Counter[tuple[str, str]] = Counter()
        self._n_recorded = 0
        self._renamed: Counter[tuple[str, str, str]] = Counter()

    def call(
        self,
        op: str,
        args: tuple[Arg, ...],
        kwargs: tuple[tuple[str, Arg], ...],
        n_calls: int = 1,
        phase: Phase = "forward",
    ) -> None:
        """Counts ``n_calls`` equal calls of a qualified overload, as a case where it can be one. Raises UsageError."""
        standing = _standing(op)
        if standing.renaming is not None:
            args = standing.renaming.arguments(args)
        reason = standing.reason or _reason(standing.op, args, kwargs)
        if reason:
            self.name_call(standing.op, reason, n_calls)
            return
        args = with_host_arguments(standing.op, args)
        key = case_key(standing.op, args, kwargs, phase, None)
        case = Case(key, standing.op, args, kwargs, phase, n_calls=n_calls)
        try:
            check_case(case)
        except DecodeError as error:
            problem = str(error).removesuffix(f" [{error.slug}]").replace(f"case {key}", "the call")
            self.name_call(standing.op, f"no call that torch could have made: {problem}", n_calls)
            return
        if standing.renaming is not None:
            self._renamed[op, standing.op, standing.renaming.source] += n_calls
        old = self._cases.get(key)
        self._cases[key] = case if old is None else dataclasses.replace(old, n_calls=old.n_calls + n_calls)
        self._counted(n_calls)

    def name_call(self, what: str, reason: str, n_calls: int = 1) -> None:
        """Counts calls that are no case. Raises UsageError."""
        self._named[what, reason] += n_calls
        self._counted(n_calls)

    def _counted(self, n_calls: int) -> None:
        self._n_recorded += n_calls
        if len(self._cases) + len(self._named) > MAX_ENTRIES or self._n_recorded >= 1 << 63:
            raise UsageError(
                f"{self._name} has more than {MAX_ENTRIES} distinct calls, or more calls than 64 bits count; split it",
                "too-large-recording",
            )

    def trace(self, source: Source, environment: Mapping[str, str], notes: tuple[str, ...] = ()) -> Trace:
        """What was counted. Raises UsageError where nothing was."""
        if not self._n_recorded:
            raise UsageError(f"{self._name} holds no call of an op", "unreadable-recording")
        renamed = tuple(
            f"{old} is {new} in this torch ({n_calls} calls; {source_of_change})"
            for (old, new, source_of_change), n_calls in sorted(self._renamed.items())
        )
        return Trace(
            source=source,
            environment=environment,
            cases=tuple(self._cases.values()),
            not_audited=tuple(
                NotAudited(what, reason, n_calls, computes=computes(reason))
                for (what, reason), n_calls in sorted(self._named.items())
            ),
            n_recorded=self._n_recorded,
            notes=(SYNTHESISED, *notes, *renamed),
        )


@lru_cache(maxsize=4096)
def _standing(op: str) -> _Standing:
    renaming = None if _is_known(op) else renaming_of(op)
    name = op if renaming is None else renaming.op
    if reason := reason_for_name(name):
        return _Standing(op, reason=reason)
    if is_vendor_op(name):
        return _Standing(name, reason=ONE_DEVICE)
    return _Standing(name, renaming) if _is_known(name) else _Standing(op, reason=_UNKNOWN)


def _is_known(op: str) -> bool:
    try:
        resolve(op)
    except AttributeError:
        return False
    return True


def _reason(op: str, args: tuple[Arg, ...], kwargs: tuple[tuple[str, Arg], ...]) -> str:
    """Why a call with these arguments is no case, or an empty string."""
    layouts = sorted({spec.layout for spec in tensors_of(args, kwargs)} - {"strided"})
    if layouts:
        return f"not strided tensor ({', '.join(layouts)})"
    return form_of_result(op, (args, kwargs))
