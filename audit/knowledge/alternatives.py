"""What to try in place of a case that failed, diverged, fell back or was slow."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import cast

from audit.kernel_settings import setting
from audit.knowledge.tables import globs, matches, rows
from audit.run_records import Change, Layout


@dataclass(frozen=True)
class AlternativeKind:
    """One kind of alternative, in words that follow "with", and the cases that it may help.

    Those are told by globs on the op, the codes of its findings, the backend and the dtypes (no glob: any); it is no
    alternative to a case in which one of ``unless_chosen`` ran anyway.
    ``settings`` come on top of the case's own; ``change`` has the rest.
    """

    name: str
    what: str
    ops: tuple[str, ...]
    unless_ops: tuple[str, ...]
    unless_chosen: tuple[str, ...]
    codes: tuple[str, ...]
    backends: tuple[str, ...]
    dtypes: tuple[str, ...]
    settings: tuple[tuple[str, bool | str], ...]
    change: Change
    source: str

    def fits(
        self, op: str, chosen: tuple[str, ...], codes: tuple[str, ...], backend: str, dtypes: tuple[str, ...]
    ) -> bool:
        """Whether it may help a case with these findings, in which the ops ``chosen`` ran."""
        return (
            matches(op, self.ops)
            and not matches(op, self.unless_ops)
            and not any(matches(ran, self.unless_chosen) for ran in chosen)
            and matches(backend, self.backends)
            and any(matches(code, self.codes) for code in codes)
            and (not self.dtypes or any(matches(dtype, self.dtypes) for dtype in dtypes))
        )


@cache
def load_alternatives() -> tuple[AlternativeKind, ...]:
    """In the order of the table, in which they are tried. Raises ValueError where a row names an unknown setting."""
    return tuple(
        AlternativeKind(
            row["name"],
            row["what"],
            globs(row["ops"]),
            globs(row["unless_ops"]),
            globs(row["unless_chosen"]),
            globs(row["codes"]),
            globs(row["backends"]),
            globs(row["dtypes"]),
            tuple(_setting(part) for part in row["settings"].split(";") if part),
            Change(layout=cast(Layout, row["layout"]) or None, dtype="float32" if row["dtype"] == "float32" else None),
            row["source"],
        )
        for row in rows("alternatives.csv")
    )


def _setting(text: str) -> tuple[str, bool | str]:
    """``torch.backends.cudnn.enabled=False`` -> ``("torch.backends.cudnn.enabled", False)``."""
    name, _, value = text.partition("=")
    known = setting(name)
    if known is None or (isinstance(known.default, bool) and value not in ("True", "False")):
        raise ValueError(f"alternatives.csv: {text!r} is no setting of audit.kernel_settings")
    return name, value == "True" if isinstance(known.default, bool) else value
