"""Waivers: differences that somebody has accepted for a time, by name and with a reason.

A waiver that has expired, or that nothing needs any more, fails the gate, so that the list stays short and true.
"""

from __future__ import annotations

import datetime
import fnmatch
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from audit.config import check_keys
from audit.errors import UsageError

_TEXTS = ("reason", "link", "owner")
_KEYS = (*_TEXTS, "expires", "case", "op", "change")


@dataclass(frozen=True)
class Waiver:
    """Accepts a difference of the cases whose key begins with ``case``, or whose op matches the glob ``op``.

    ``change`` holds it to one kind (``slower``); empty means any. The day ``expires`` is its last.
    """

    reason: str
    link: str
    owner: str
    expires: datetime.date
    case: str = ""
    op: str = ""
    change: str = ""

    @property
    def name(self) -> str:
        """``mm-4d73, slower``: what it is about."""
        return ", ".join(word for word in (self.case, self.op, self.change) if word)

    def covers(self, key: str, op: str, change: str) -> bool:
        short = op.removeprefix("aten::").removesuffix(".default")
        is_op = not self.op or fnmatch.fnmatchcase(op, self.op) or fnmatch.fnmatchcase(short, self.op)
        return key.startswith(self.case) and is_op and self.change in ("", change.replace(" ", "-"))

    def is_expired(self, today: datetime.date) -> bool:
        return today > self.expires


def read_waivers(tables: Any, where: str, changes: Sequence[str]) -> tuple[Waiver, ...]:
    """The ``[[waivers]]`` of a policy; ``changes`` are the kinds that it may name. Raises UsageError."""
    if not isinstance(tables, list):
        raise UsageError(f"{where}: waivers are tables, each under a line `[[waivers]]`", "bad-configuration")
    return tuple(_read(table, f"{where}: waiver {number}", changes) for number, table in enumerate(tables, 1))


def _read(table: Any, where: str, changes: Sequence[str]) -> Waiver:
    if not isinstance(table, Mapping):
        raise UsageError(f"{where} is no table", "bad-configuration")
    check_keys(table, _KEYS, where)
    texts = {name: table.get(name, "") for name in (*_TEXTS, "case", "op", "change")}
    for name, value in texts.items():
        if not isinstance(value, str) or (name in _TEXTS and not value.strip()):
            raise UsageError(f"{where} lacks its {name}, a text; every waiver has one", "bad-configuration")
    if not re.match(r"https?://\S+$", texts["link"]):
        raise UsageError(f"{where}: expected a link to the issue, got {texts['link'][:80]!r}", "bad-configuration")
    expires = table.get("expires")
    if not isinstance(expires, datetime.date) or isinstance(expires, datetime.datetime):
        raise UsageError(f"{where}: expires is a date without quotes, such as 2027-01-31", "bad-configuration")
    if not texts["case"] and not texts["op"]:
        raise UsageError(f"{where} waives everything; name a case (the start of its key) or an op", "bad-configuration")
    if texts["change"] and texts["change"] not in changes:
        raise UsageError(
            f"{where}: change is {texts['change'][:40]!r}; expected one of {', '.join(changes)}", "bad-configuration"
        )
    return Waiver(expires=expires, **texts)
