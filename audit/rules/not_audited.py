"""What no case stands for, in a few words: a verdict on the rest must not be read as one on all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from audit.rules.wording import plural, size
from audit.schema import NotAudited
from audit.verdicts import Finding

#: So many kinds are named in a sentence; the report lists all.
MAX_NAMED = 4


def not_audited_sentence(items: Iterable[NotAudited]) -> str:
    """``Not audited: flash_attn (imported); 12 calls of 3 ops (collective).``, or nothing; annotations are left out.

    First what may hide any amount of work (compiled regions, launches, packages, processes), then calls by their count.
    """
    computing = [item for item in items if item.computes]
    named = [*_things(item for item in computing if item.n_seen), *_calls(item for item in computing if item.n_calls)]
    if not named:
        return ""
    shown = [text for text, _ in named[:MAX_NAMED]]
    if rest := named[MAX_NAMED:]:
        calls = sum(n for _, n in rest)
        shown.append(f"{len(rest)} more" + (f" ({plural(calls, 'call')})" if calls else ""))
    return f"Not audited: {'; '.join(shown)}."


def shown_reason(item: NotAudited) -> str:
    """Why there is no case, and of a collective how much it passed: ``...; 1.2 GiB in all, among 8 ranks``."""
    if not item.nbytes:
        return item.reason
    among = f", among {plural(item.n_ranks, 'rank')}" if item.n_ranks else ""
    return f"{item.reason}; {size(item.nbytes)} in all{among}"


def missed_composites(name: str, items: Iterable[NotAudited]) -> Iterator[Finding]:
    """INC912: an op of one device stands in the trace of program ``name`` where a portable call should."""
    if ops := sorted({item.what for item in items if item.missed}):
        yield Finding(
            "INC912",
            "inconclusive",
            f"{name} was traced into ops that only this machine's device has ({', '.join(ops)}); another device runs "
            "something else there, which is not audited. Call the portable op instead",
            {"n_ops": len(ops)},
        )


def _things(items: Iterable[NotAudited]) -> list[tuple[str, int]]:
    """What is no recorded call, each with its count."""
    return [
        (f"{item.what} ({_head(item.reason)}{f', {item.n_seen} times' if item.n_seen > 1 else ''})", 0)
        for item in sorted(items, key=lambda item: -item.n_seen)
    ]


def _calls(items: Iterable[NotAudited]) -> list[tuple[str, int]]:
    """Recorded calls, by their reason."""
    groups: dict[str, list[NotAudited]] = {}
    for item in items:
        groups.setdefault(_head(item.reason), []).append(item)
    counted = [(sum(item.n_calls for item in group), reason, group) for reason, group in groups.items()]
    return [
        (f"{plural(n, 'call')} of {group[0].what if len(group) == 1 else plural(len(group), 'op')} ({why})", n)
        for n, reason, group in sorted(counted, key=lambda entry: (-entry[0], entry[1]))
        for why in [f"{reason}{_passed(group)}"]
    ]


def _passed(group: Iterable[NotAudited]) -> str:
    nbytes = sum(item.nbytes for item in group)
    return f", {size(nbytes)}" if nbytes else ""


def _head(reason: str) -> str:
    """The reason without its explanation: ``collective`` of ``collective: needs the other ranks``."""
    return reason.partition(":")[0]
