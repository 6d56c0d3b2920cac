"""Documented hardware behaviours and public issue reports, matched by op, arch, dtype and rule code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from audit.knowledge.tables import document, matches


@dataclass(frozen=True)
class Behaviour:
    """One entry. ``kind``: hardware, documentation or issue. Globs in ``ops``, ``archs``, ``dtypes`` and ``codes``; an
    empty tuple fits all. ``predicts`` is the status it foretells where the op always behaves so, else empty.
    ``in_predictions``: told beside predictions too; false for old releases, single packages and opt-in switches.

    ``phases`` and ``settings`` (of torch, or variables of the environment; the values with which it happens) are
    conditions too, where given. ``shape`` is what it does to the numbers: see ``audit.rules.recognised``. ``explains``:
    the settings ask for just these numbers, so that a finding with this shape is a note."""

    id: str
    kind: str
    title: str
    link: str
    remedy: str
    ops: tuple[str, ...]
    archs: tuple[str, ...]
    dtypes: tuple[str, ...]
    codes: tuple[str, ...]
    condition: str
    affected: str
    predicts: str
    in_predictions: bool
    phases: tuple[str, ...]
    settings: Mapping[str, tuple[bool | str, ...]]
    shape: str
    explains: bool

    def fits(self, ops: tuple[str, ...], arch: str, dtypes: tuple[str, ...]) -> bool:
        """``ops``: the op of the case and those that ran inside; ``dtypes``: of its tensors."""
        return (
            (not self.ops or any(matches(op, self.ops) for op in ops))
            and (not self.archs or matches(arch, self.archs))
            and (not self.dtypes or any(matches(dtype, self.dtypes) for dtype in dtypes))
        )


@cache
def load_behaviours() -> tuple[Behaviour, ...]:
    """Every entry, hardware behaviours before single reports."""
    return tuple(
        Behaviour(
            id=entry["id"],
            kind=entry["kind"],
            title=entry["title"],
            link=entry["link"],
            remedy=entry["remedy"],
            ops=tuple(entry["ops"]),
            archs=tuple(entry["archs"]),
            dtypes=tuple(entry["dtypes"]),
            codes=tuple(entry["codes"]),
            condition=entry["condition"],
            affected=entry["affected"],
            predicts=entry["predicts"],
            in_predictions=entry["in_predictions"],
            phases=tuple(entry.get("phases", ())),
            settings={name: tuple(values) for name, values in entry.get("settings", {}).items()},
            shape=entry.get("shape", ""),
            explains=entry.get("explains", False),
        )
        for entry in document("known_behaviours.json")["entries"]
    )
