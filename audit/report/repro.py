"""Scripts that need only torch and exit 1 where a finding recurs: what one attaches to a bug report."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

from audit.codec import tensors_of
from audit.kernel_settings import setting
from audit.report import text
from audit.report.legend import evidence_text
from audit.report.literals import argument_text, literal
from audit.report.registry import write_text
from audit.report.rows import CaseRow, case_rows
from audit.report.stored import StoredSpan, StoredValues
from audit.run_records import RunHeader
from audit.schema import Case, TensorSpec, Values
from audit.verdicts import Finding, Judgement, Verdict

#: Values are embedded up to so much base64 text per script, integers first; what is left out is synthesised.
EMBED_BYTES = 256 * 1024
#: Spans above this are not even compressed to see whether they fit.
_MAX_SPAN_BYTES = 16 << 20
_TEMPLATES = Path(__file__).with_name("templates") / "repro"
#: Blocks of the script by the first letters of the rule codes that need them.
_BLOCKS: Mapping[str, str] = {"NUM": "numbers.py.txt", "FBK": "path.py.txt", "SPD": "speed.py.txt"}
#: What is compared of factors that are free in signs or order, as far as a script makes it (``audit.replay.factors``).
_PRODUCTS = frozenset(("U S Vh", "Uh U", "Vh V", "V L Vh", "Q R", "Qh Q", "Rh R", "R below its diagonal", "P L U"))
_IMPORTS = (
    "argparse",
    "base64",
    "json",
    "os",
    "subprocess",
    "sys",
    "tempfile",
    "time",
    "traceback",
    "warnings",
    "zlib",
)


def write_repros(judgement: Judgement, folder: Path, values: Path | None) -> list[Path]:
    """Writes one script per finding into ``folder``. Without ``values``, scripts that are there are kept.

    The script of a case that has no finding any more (resumed, judged by another threshold) is removed.

    Raises UsageError where ``values`` is no value file, UnfinishedError where the folder cannot be written.
    """
    everything = case_rows(judgement)
    rows = [row for row in everything if row.has_repro]
    written = []
    if folder.is_dir():
        for row in everything:
            if not row.has_repro:
                (folder / f"{row.anchor}.py").unlink(missing_ok=True)
    with ExitStack() as stack:
        stored = stack.enter_context(StoredValues(values)) if values is not None and rows else None
        for row in rows:
            path = folder / f"{row.anchor}.py"
            if stored is None and path.exists():
                continue
            written.append(write_text(path, _script_for(row, judgement.run.header, stored)))
    return written


def _script_for(row: CaseRow, header: RunHeader, stored: StoredValues | None) -> str:
    case = row.case
    assert case is not None, "has_repro promises a case"
    spans: dict[int, StoredSpan] = {}
    for position in case.values if stored is not None else ():
        span = stored.span(case.key, position, _MAX_SPAN_BYTES) if stored is not None else None
        if span is not None:
            spans[position] = span
    return repro_script(case, row.verdict, header, spans)


def repro_script(
    case: Case, verdict: Verdict, header: RunHeader, values: Mapping[int, StoredSpan] | None = None
) -> str:
    """The script for one case. ``values`` are stored spans by operand position.

    Every text from the program stands in it as a Python literal or in a comment of printable characters, so that no
    name can become code.
    """
    specs = tensors_of(case.args, case.kwargs, case.grads)
    embedded = dict(_embedded(specs, values or {}))
    findings = [finding for finding in verdict.findings if finding.status not in ("supported", "inconclusive")]
    blocks = dict.fromkeys(_BLOCKS[f.code[:3]] for f in findings if f.code[:3] in _BLOCKS)
    if any(finding.code.startswith("NUM") and finding.data.get("output") in _PRODUCTS for finding in findings):
        blocks["factors.py.txt"] = None
    parts = [
        "\n".join(_comment(case, verdict, findings, header, len(specs), embedded)),
        "\n".join(f"import {name}" for name in _IMPORTS) + "\n\nimport torch",
        *_settings(case),
        "\n".join(_constants(case, findings)),
        "\n".join(_operands(case, specs, embedded)),
        "\n".join(_arguments(case)),
        *((_TEMPLATES / name).read_text(encoding="utf-8").strip() for name in ("base.py.txt", *blocks)),
        'if __name__ == "__main__":\n    sys.exit(main())',
    ]
    return "\n\n\n".join(parts) + "\n"


def _embedded(specs: list[TensorSpec], values: Mapping[int, StoredSpan]) -> Iterator[tuple[int, str]]:
    """(position, base64 of zlib) within the budget: integers and masks first, for they steer the op; then the small."""
    left = EMBED_BYTES
    fitting = [p for p in values if p < len(specs) and values[p].dtype == specs[p].dtype]
    for position in sorted(fitting, key=lambda p: (_is_float(values[p].dtype), len(values[p].data), p)):
        packed = base64.b64encode(zlib.compress(values[position].data, 9)).decode("ascii")
        if len(packed) <= left:
            left -= len(packed)
            yield position, packed


def _is_float(dtype: str) -> bool:
    return dtype.startswith(("float", "bfloat", "complex"))


# --- the parts of a script -----------------------------------------------------------------------------------------


def _comment(
    case: Case,
    verdict: Verdict,
    findings: list[Finding],
    header: RunHeader,
    n_operands: int,
    embedded: Mapping[int, str],
) -> Iterator[str]:
    evidence = evidence_text(header)
    yield "#!/usr/bin/env python3"
    yield _line(f"{case.op}: {verdict.status.replace('_', ' ')}")
    yield "#"
    for finding in findings:
        yield _line(f"{finding.code}  {finding.message}")
    for told in (finding for finding in verdict.findings if finding.code == "FBK320"):
        yield _line(f"{told.code}  {told.message}")
        if told.data.get("remedy"):
            yield _line(f"{'Cure' if told.data.get('effect') == 'cures' else 'Faster'}: {told.data['remedy']}")
    yield "#"
    yield _line(
        f"Found by rocm-audit {header.audit_version} on {header.device.name} ({header.device.arch}), {header.created},"
    )
    yield _line(f"torch {header.environment.get('torch', 'unknown')}. Evidence: {evidence.title.replace(' ·', ',')}.")
    if not evidence.is_amd:
        yield _line(
            "So the finding was not seen on an AMD GPU. This script asks one: torch calls it cuda there as well."
        )
    yield "# Needs only torch. Exit code: 1 the finding recurs, 0 it does not, 2 this machine cannot tell."
    made = [str(p) for p in range(n_operands) if p not in embedded]
    others = "; the others hold recorded values" if embedded else ""
    if made:
        yield _line(f"Operands {', '.join(made)} are synthesised from recorded statistics (seeded){others}.", 400)


def _line(content: str, limit: int = 300) -> str:
    """One comment line, ASCII only."""
    return f"# {text.ascii_line(content, limit)}"


def _settings(case: Case) -> Iterator[str]:
    """What the program had set; a setting that this version does not know stays out, for it could be any code."""
    known = [
        (found, value)
        for name, value in case.settings
        if (found := setting(name)) is not None and type(value) is type(found.default)
    ]
    if known:
        yield "\n".join(found.statement(value) for found, value in known)


def _constants(case: Case, findings: list[Finding]) -> Iterator[str]:
    yield f"OP = {literal(case.op)}"
    yield f"PHASE = {literal(case.phase)}"
    yield "FINDINGS = ["
    for finding in findings:
        yield f"    ({literal(finding.code)}, {literal(dict(finding.data))}),"
    yield "]"
    if any(finding.code.startswith("FBK") for finding in findings):
        yield f"EVIDENCE = {literal({f.code: _texts(f) for f in findings})}  # what tells the path, by code"


def _texts(finding: Finding) -> list[str]:
    """What a path finding rests on, as a profile or a log shows it: an op without overload, a kernel, a message."""
    named = [finding.data.get("chosen_op"), finding.data.get("kernel")]
    texts = [name.rsplit(".", 1)[0] if name.startswith("aten::") else name for name in named if isinstance(name, str)]
    if finding.message.startswith("said: "):
        texts.append(finding.message.removeprefix("said: ").partition(" (")[0][:60].rstrip("… "))
    return texts


def _operands(case: Case, specs: list[TensorSpec], embedded: Mapping[int, str]) -> Iterator[str]:
    n_grads = sum(grad is not None for grad in case.grads or ())
    yield "# In elements; extent is the length of the storage. Operands with the same storage number share memory."
    yield "OPERANDS = ["
    for position, spec in enumerate(specs):
        is_gradient = position >= len(specs) - n_grads
        fields = {
            "sizes": spec.sizes, "strides": spec.strides, "dtype": spec.dtype, "offset": spec.offset,
            "extent": spec.extent, "storage": spec.storage, "host": spec.host, "conj": spec.conj, "neg": spec.neg,
            "requires_grad": spec.requires_grad and not is_gradient,
            "stats": _statistics(case.values.get(position, Values())),
        }  # fmt: skip
        yield f"    {literal(fields)},"
    yield "]"
    if case.grads is None:
        yield "GRADS = None  # no backward"
    else:
        numbers = iter(range(len(specs) - n_grads, len(specs)))
        positions = [None if grad is None else next(numbers) for grad in case.grads]
        yield f"GRADS = {literal(positions)}  # for each output, the operand that is its gradient"
    yield "STORED = {  # position: base64 of zlib of the elements from first to last"
    for position, packed in sorted(embedded.items()):
        yield f"    {position}: ("
        yield from (f'        "{packed[start : start + 100]}"' for start in range(0, max(len(packed), 1), 100))
        yield "    ),"
    yield "}"


def _statistics(values: Values) -> dict[str, object]:
    moments = {name: getattr(values, name) for name in ("minimum", "maximum", "mean", "std")}
    counts = ("n_nan", "n_posinf", "n_neginf", "zero_fraction", "subnormal_fraction")
    return {name: value for name, value in moments.items() if value is not None} | {
        name: value for name in counts if (value := getattr(values, name))
    }


def _arguments(case: Case) -> Iterator[str]:
    counter = iter(range(10**9))
    args = [argument_text(arg, counter, "t[{}]", "dtype({})") for arg in case.args]
    kwargs = [f"{literal(name)}: {argument_text(arg, counter, 't[{}]', 'dtype({})')}" for name, arg in case.kwargs]
    yield "def arguments(t, device, dtype):"
    yield '    """The arguments as the program gave them; t are the operands."""'
    yield f"    return [{', '.join(args)}], {{{', '.join(kwargs)}}}"
