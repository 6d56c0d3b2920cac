"""What stands on the terminal of an ``.audit`` file: a table by op, single cases in full, two files side by side."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from audit.codec import tensors_of
from audit.opset.difference import Difference
from audit.opset.file import Opset
from audit.report import text
from audit.report.opset_rows import op_rows, value_bytes_by_key
from audit.report.terminal import plain_console, printed
from audit.rules.not_audited import shown_reason
from audit.schema import Arg, Case, Named, NotAudited, Trace, Values

#: Cases of a difference, modules and lines of a case that are listed; the rest is counted.
MAX_LISTED = 20


def render_opset(opset: Opset, name: str, width: int, colour: bool) -> str:
    """Source, ops, what is not audited, notes and environment."""
    trace = opset.trace
    console = plain_console(width, colour)
    console.print(Text(_title(opset, name), style="bold"))
    table = _table(("op", "<"), ("cases", ">"), ("calls", ">"), ("phases", "<"), ("dtypes", "<"), ("values", ">"))
    for row in op_rows(opset):
        table.add_row(
            text.one_line(text.short_op(row.op)),
            text.count_text(row.n_cases),
            text.count_text(row.n_calls),
            ", ".join(f"{phase} {text.count_text(n)}" for phase, n in row.phases.items()),
            text.one_line(", ".join(row.dtypes)),
            text.bytes_text(row.value_bytes) if row.value_bytes else "–",
        )
    console.print(table)
    _print_not_audited(console, trace.not_audited)
    for note in trace.notes:
        console.print(Text(f"note: {text.one_line(note, 400)}"))
    console.print(_pairs(trace.environment.items()))
    return printed(console)


def _title(opset: Opset, name: str) -> str:
    trace = opset.trace
    source = text.one_line(f"{trace.source.name} ({trace.source.kind})")
    error = f"; ended early: {text.one_line(trace.source.error)}" if trace.source.error else ""
    values = text.bytes_text(opset.values_bytes) if opset.values_bytes else "no values"
    return (
        f"{text.one_line(name)}: {source}, {text.plural(len(trace.cases), 'case')} of "
        f"{text.plural(_n_audited(trace), 'call')}, {text.count_text(trace.n_recorded)} recorded, {values}{error}"
    )


def _n_audited(trace: Trace) -> int:
    return sum(case.n_calls for case in trace.cases)


def _print_not_audited(console: Console, items: Sequence[NotAudited]) -> None:
    if not items:
        return
    console.print(Text(f"not audited: {text.plural(sum(item.n_calls for item in items), 'call')}", style="bold"))
    table = _table(("what", "<"), ("calls", ">"), ("seen", ">"), ("reason", "<"))
    for item in items:
        counts = (text.count_text(n) if n else "–" for n in (item.n_calls, item.n_seen))
        table.add_row(text.one_line(item.what), *counts, text.one_line(shown_reason(item), 400))
    console.print(table)


# --- single cases --------------------------------------------------------------------------------------------------


def render_cases(opset: Opset, cases: Iterable[Case], width: int, colour: bool) -> str:
    """Every argument, statistic, module and line of the cases."""
    stored = value_bytes_by_key(opset)
    console = plain_console(width, colour)
    for case in cases:
        console.print(Text(f"{case.key}  {text.one_line(case.op)}", style="bold"))
        size = f", {text.bytes_text(stored[case.key])} of values" if case.key in stored else ""
        again = f", {text.count_text(case.n_recomputed)} of them recomputed" if case.n_recomputed else ""
        console.print(Text(f"{case.phase}, {text.plural(case.n_calls, 'call')}{again}{size}"))
        console.print(_arguments(case))
        for title, places in (("module", case.modules), ("line", case.sources)):
            for place in places[:MAX_LISTED]:
                console.print(Text(f"{title}: {text.one_line(place)}"))
            if len(places) > MAX_LISTED:
                console.print(Text(f"and {text.plural(len(places) - MAX_LISTED, f'more {title}')}"))
        console.print()
    return printed(console)


def _arguments(case: Case) -> Table:
    """A row for each tensor with its layout and values, and one for each other argument."""
    table = _table(("argument", "<"), ("what", "<"), ("sizes", "<"), ("strides", "<"), ("memory", "<"), ("values", "<"))
    position = 0
    for name, arg in _named_arguments(case):
        specs = tensors_of((arg,), ())
        if not specs:
            table.add_row(text.one_line(name), text.one_line(_scalar(arg)), "", "", "", "")
        for spec in specs:
            flags = [flag for flag in ("requires_grad", "host", "conj", "neg") if getattr(spec, flag)]
            table.add_row(
                text.one_line(name),
                " ".join([spec.dtype, *flags]),
                str(list(spec.sizes)),
                str(list(spec.strides)),
                f"storage {spec.storage}, {spec.offset} + {spec.extent - spec.offset}",
                _values(case.values.get(position)),
            )
            position += 1
    return table


def _named_arguments(case: Case) -> Iterator[tuple[str, Arg]]:
    yield from ((str(index), arg) for index, arg in enumerate(case.args))
    yield from case.kwargs
    yield from ((f"gradient {index}", grad) for index, grad in enumerate(case.grads or ()))


def _scalar(arg: Arg) -> str:
    if isinstance(arg, Named):
        return f"{arg.kind} {arg.name}"
    return repr(list(arg)) if isinstance(arg, tuple) else repr(arg)


def _values(values: Values | None) -> str:
    if values is None:
        return "not looked at"
    parts = ["stored"] if values.stored else []
    if values.minimum is not None and values.maximum is not None:
        parts.append(f"{_number(values.minimum)} to {_number(values.maximum)}")
    if values.mean is not None and values.std is not None:
        parts.append(f"mean {_number(values.mean)}, std {_number(values.std)}")
    if values.n_distinct is not None:
        parts.append(f"{text.count_text(values.n_distinct)} distinct")
    parts += [word for word in (values.order, values.pattern) if word]
    special = {"NaN": values.n_nan, "+Inf": values.n_posinf, "-Inf": values.n_neginf}
    parts += [f"{text.count_text(n)} {name}" for name, n in special.items() if n]
    return ", ".join(parts) or "empty"


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) or (abs(value) < 1e15 and value.is_integer()) else f"{value:.4g}"


# --- two files -----------------------------------------------------------------------------------------------------


def render_difference(found: Difference, names: tuple[str, str], width: int, colour: bool, every: bool) -> str:
    """By op, then the cases (``every`` one, or the first), what is not audited, and the surroundings."""
    a, b = (text.one_line(name, 60) for name in names)
    console = plain_console(width, colour)
    console.print(Text(_verdict(found, a, b), style="bold"))
    if found.ops:
        table = _table(("op", "<"), *((title, ">") for title in ("only in a", "only in b", "other counts", "equal")))
        for op in found.ops:
            counts = (op.n_only_a, op.n_only_b, op.n_other_counts, op.n_equal)
            table.add_row(text.one_line(text.short_op(op.op)), *(text.count_text(n) if n else "–" for n in counts))
        console.print(table)
        _print_cases(console, found, every)
    if found.not_audited:
        table = _table(("not audited", "<"), ("in a", ">"), ("in b", ">"), ("reason", "<"))
        for what, reason, n_a, n_b in found.not_audited:
            table.add_row(text.one_line(what), text.count_text(n_a), text.count_text(n_b), text.one_line(reason))
        console.print(table)
    if found.environment:
        table = _table(("surroundings", "<"), ("a", "<"), ("b", "<"))
        for name, pair in found.environment.items():
            table.add_row(text.one_line(name), *(text.one_line(value, 80) or "–" for value in pair))
        console.print(table)
    return printed(console)


def _verdict(found: Difference, a: str, b: str) -> str:
    if found.is_equal:
        return f"a = {a} and b = {b} recorded the same {text.plural(found.n_equal, 'case')} as often"
    return (
        f"a = {a} and b = {b} differ in {text.plural(len(found.cases), 'case')}, "
        f"and have {text.count_text(found.n_equal)} in common"
    )


def _print_cases(console: Console, found: Difference, every: bool) -> None:
    table = _table(("key", "<"), ("calls in a", ">"), ("in b", ">"), ("phase", "<"), ("arguments", "<"))
    shown = found.cases if every else found.cases[:MAX_LISTED]
    for case in shown:
        counts = (text.count_text(n) if n else "–" for n in (case.n_calls_a, case.n_calls_b))
        table.add_row(case.key, *counts, case.phase, text.one_line(case.signature, 200 if every else 100))
    console.print(table)
    if len(shown) < len(found.cases):
        console.print(Text(f"and {text.plural(len(found.cases) - len(shown), 'more case')}: --all lists them"))


# --- tables --------------------------------------------------------------------------------------------------------


def _table(*columns: tuple[str, str]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", show_edge=False)
    for title, side in columns:
        table.add_column(title, justify="right" if side == ">" else "left", overflow="fold")
    return table


def _pairs(items: Iterable[tuple[str, str]]) -> Table:
    table = _table(("surroundings", "<"), ("", "<"))
    for name, value in items:
        table.add_row(text.one_line(name), text.one_line(value, 200))
    return table
