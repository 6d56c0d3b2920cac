"""Where in an output elements sit, in words: ``rows 4080 to 4095 (the last 16 of 4096)``."""

from __future__ import annotations

from collections.abc import Sequence

from audit.comparison import Comparison
from audit.places import IndexSet, Places
from audit.rules.dimensions import Dimension, dimensions, n_groups
from audit.schema import Case

#: Sides of the tiles that GPU kernels compute an output in.
TILES = (16, 32, 64, 128, 256)
#: From this share of the elements at the combinations of the indices on, these say where all of them are.
WHOLE_FRACTION = 0.995


def describe(places: Places, case: Case | None = None, output: str = "", n_compared: int | None = None) -> str:
    """``rows 32 to 47 and columns 64 to 79 (one tile of 16 x 16)``; ``all over``.

    ``n_compared``: only so many elements were looked at.
    """
    if not all(along.runs for along in places.along):
        return f"{places.n} of them"
    names = dimensions(case, output, len(places.along))
    phrases = [
        _phrase(along, name, n_groups(case, name))
        for along, name in zip(places.along, names, strict=True)
        if along.n < along.size
    ]
    words = " and ".join(phrases) if phrases else ""
    if tile := _tile(places):
        words += f" (one tile of {tile})"
    if (memory := _in_memory(places)) and (not words or _n_told(places) < WHOLE_FRACTION * places.n_box):
        words = ", ".join(filter(None, (words, memory)))
    elif half := _half(places):
        words = ", ".join(filter(None, (words, half)))
    elif not words:
        words = _all_over(places)
    elif _n_told(places) < WHOLE_FRACTION * places.n_box:
        words += f", {_percent(_n_told(places), places.n_box)} of the elements there"
    if places.n_astray > 0:
        words += f", but for {places.n_astray} or more"
    return words + (" (of the parts that were compared)" if n_compared is not None else "")


def described(places: Places | None, case: Case, comparison: Comparison) -> str:
    """``: rows 0 to 3 (the first 4 of 64)``, to follow a count; empty where nobody looked."""
    words = "" if places is None else describe(places, case, comparison.name, comparison.n_compared)
    return f": {words}" if words else ""


def places_data(places: Places | None, case: Case, comparison: Comparison) -> dict[str, str]:
    """The same for a finding's data, and whether the elements lie in one run of memory."""
    if places is None:
        return {}
    words = describe(places, case, comparison.name, comparison.n_compared)
    return {"places": words, "one_run_of_memory": "yes" if places.fills_steps and places.step <= 1 else "no"}


def _n_told(places: Places) -> int:
    return places.n - places.n_astray


def _all_over(places: Places) -> str:
    return "all of them" if places.n >= places.n_seen else f"all over it ({_percent(places.n, places.n_seen)})"


def _percent(part: int, whole: int) -> str:
    """``12 %``, never a rounded 0 or 100."""
    percent = 100 * min(part, whole) / max(whole, 1)
    if percent > 99:
        return "over 99 %"
    return f"{percent:.2g} %" if percent >= 1 else "under 1 %"


def _phrase(along: IndexSet, name: Dimension, groups: int) -> str:
    first = along.runs[0].first
    if along.n == 1:
        return f"{name.one} {first}"
    if along.n_runs == 1:
        return _range(along, name, groups)
    if along.step and along.n_runs > 2:
        return _regular(along, name)
    if along.n_runs <= len(along.runs):
        told = [str(run.first) if run.first == run.last else f"{run.first} to {run.last}" for run in along.runs]
        return f"{name.many} {', '.join(told[:-1])} and {told[-1]}"
    return f"{along.n} of {along.size} {name.many}, from {first} to {along.last}"


def _range(along: IndexSet, name: Dimension, groups: int) -> str:
    first, last = along.runs[0].first, along.runs[0].last
    group = along.size // max(groups, 1)
    if groups > 1 and group > 0 and along.n == group and first % group == 0:
        remark = f"group {first // group} of {groups}"
    elif last == along.size - 1:
        remark = f"the last {along.n} of {along.size}"
    elif first == 0:
        remark = f"the first {along.n} of {along.size}"
    else:
        remark = f"of {along.size}"
    return f"{name.many} {first} to {last} ({remark})"


def _regular(along: IndexSet, name: Dimension) -> str:
    """``every 64th column from 3``; ``32 of every 128 columns from 64``."""
    first, reaches_end = along.runs[0].first, along.last + along.step >= along.size
    to = "" if reaches_end else f" to {along.last}"
    if along.width == 1:
        return f"every {_ordinal(along.step)} {name.one} from {first}{to}"
    return f"{along.width} of every {along.step} {name.many} from {first}{to}"


def _ordinal(n: int) -> str:
    words = {2: "second", 3: "third", 4: "fourth"}
    if n in words:
        return words[n]
    ending = "th" if 10 <= n % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(n % 10, "th")
    return f"{n}{ending}"


def _tile(places: Places) -> str:
    """``16 x 64``: the last two dimensions' ranges lie in one block of these sides and take up most of it."""
    sides = [_side(along) for along in places.along[-2:]]
    if len(sides) < 2 or not all(sides) or any(along.n == along.size for along in places.along[-2:]):
        return ""
    return f"{sides[0]} x {sides[1]}"


def _side(along: IndexSet) -> int:
    """Of the smallest aligned block that holds the range, 0 where it fills less than half of it."""
    if along.n_runs != 1:
        return 0
    first, last = along.runs[0].first, along.runs[0].last
    side = next((side for side in TILES if first // side == last // side), 0)
    return side if 2 * along.n > side else 0


def _in_memory(places: Places) -> str:
    """``every 77th element of memory from 5``, where elements follow each other so and nothing simpler says it."""
    if not places.fills_steps or places.n < 3:
        return ""
    if places.step > 1:
        return f"every {_ordinal(places.step)} element of memory from {places.first_offset}"
    if _n_told(places) >= WHOLE_FRACTION * places.n_box:
        return ""
    return f"elements {places.first_offset} to {places.last_offset} of memory"


def _half(places: Places) -> str:
    """``above the diagonal``, where the ranges of rows and columns reach over it and the elements do not."""
    if (
        places.diagonal is None
        or len(places.along) < 2
        or places.n < 3
        or _n_told(places) >= WHOLE_FRACTION * places.n_box
    ):
        return ""
    rows, columns = places.along[-2:]
    low, high = places.diagonal.first, places.diagonal.last
    lowest, highest = columns.runs[0].first - rows.last, columns.last - rows.runs[0].first
    if low == high == 0:
        return "on the diagonal"
    if low >= 0 and lowest < 0:
        return "above the diagonal" if low else "on and above the diagonal"
    if high <= 0 and highest > 0:
        return "below the diagonal" if high else "on and below the diagonal"
    return ""


def histogram(counts: Sequence[int]) -> str:
    """``0 ULP: 3,180; 1: 12; 256 to 511: 4``; empty ranges are left out."""
    told = [f"{_distance(k)}{' ULP' if not place else ''}: {n:,}" for place, (k, n) in enumerate(_present(counts))]
    return "; ".join(told)


def _present(counts: Sequence[int]) -> list[tuple[int, int]]:
    return [(k, n) for k, n in enumerate(counts) if n]


def _distance(bucket: int) -> str:
    if bucket < 2:
        return str(bucket)
    low, high = 1 << (bucket - 1), (1 << bucket) - 1
    return f"{low} to {high}" if bucket <= 20 else f"2^{bucket - 1} to 2^{bucket}"
