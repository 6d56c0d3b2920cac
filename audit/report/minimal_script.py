"""A case as a few lines of torch, to read and to paste into an issue. ``audit.report.repro`` has the whole proof.

Inputs have the recorded sizes, strides and sharing, and values made from recorded statistics with a fixed seed.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterator

from audit.codec import contiguous_strides, reach, tensors_of
from audit.kernel_settings import setting
from audit.report import text
from audit.report.literals import argument_text, literal
from audit.schema import Case, TensorSpec, Values

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
#: These look at memory beside the operands or at their copies, which no few lines do.
_NO_FEW_LINES = ("NUM209", "NUM210")
#: Ops with outputs that are free in signs, phases or order: right libraries differ in them.
_FREE = re.compile(r"linalg_(svd|eigh|eig|eigvals|qr|lu|lu_factor_ex)\b")
#: More operands than that (optimizers over lists of parameters) are no few lines.
MAX_OPERANDS = 12
_BESIDE = "for actual, expected in zip([x.cpu() for x in run(DEVICE)], run('cpu')):"
_MOMENTS = "{0}.double().mean().item(), {0}.double().std().item()"
#: What the last lines look at, by the rule code, else by its letters.
_LOOK = {
    "NUM": (_BESIDE, "    print('largest difference', (actual.double() - expected.double()).abs().max().item())"),
    "NUM202": (_BESIDE, "    print('NaN on one side only', (actual.isnan() != expected.isnan()).sum().item())"),
    "NUM203": (_BESIDE, "    print('Inf on one side only', (actual.isinf() != expected.isinf()).sum().item())"),
    "NUM204": (_BESIDE, "    print('elements that differ', (actual != expected).sum().item())"),
    "NUM205": (
        _BESIDE,
        "    print(actual.dtype, tuple(actual.shape), 'on the CPU', expected.dtype, tuple(expected.shape))",
    ),
    "NUM206": (_BESIDE, "    print(actual.stride(), 'on the CPU', expected.stride())"),
    "NUM208": (
        "for first, second in zip(run(DEVICE), run(DEVICE)):",
        "    print('elements that differ between two runs', (first != second).sum().item())",
    ),
    "NUM214": (
        _BESIDE,
        f"    print('mean, deviation', {_MOMENTS.format('actual')})",
        f"    print('on the CPU', {_MOMENTS.format('expected')})",
    ),
    "FBK": (
        "run(DEVICE)  # once to warm up",
        "with torch.profiler.profile() as profile:",
        "    run(DEVICE)",
        "print(profile.key_averages().table(max_name_column_width=100))",
    ),
    "SPD": (
        "import time",
        "t = operands(DEVICE)",
        "for _ in range(10):",
        "    torch.cuda.synchronize()",
        "    start = time.perf_counter()",
        "    call(t, DEVICE)",
        "    torch.cuda.synchronize()",
        "    print((time.perf_counter() - start) * 1e6, 'microseconds')",
    ),
}
_RUN = ("run('cpu')  # accepts the call", "run(DEVICE)", "torch.cuda.synchronize()")


def minimal_script(case: Case, code: str, told: str) -> str:
    """The lines for a finding with this rule ``code``; ``told`` is a comment at their head. Empty where a case needs
    more than that: many operands, dtypes that share a storage, conjugate or negative views, factors."""
    specs = tensors_of(case.args, case.kwargs, case.grads)
    is_free = code.startswith("NUM") and _FREE.search(case.op)
    if len(specs) > MAX_OPERANDS or not _is_plain(specs) or code in _NO_FEW_LINES or is_free:
        return ""
    return "\n".join(
        [
            *(f"# {line}" for line in _comment_lines(told)),
            "import torch",
            "",
            *_settings(case),
            'DEVICE = "cuda"  # torch calls an AMD GPU so, too',
            "",
            "",
            *_run(case, specs),
            "",
            "",
            *_LOOK.get(code, _LOOK.get(code[:3], _RUN)),
            "",
        ]
    )


def _comment_lines(told: str) -> list[str]:
    return [text.ascii_line(line, 110) for line in told.splitlines()]


def _is_plain(specs: list[TensorSpec]) -> bool:
    dtypes: dict[int, set[str]] = {}
    for spec in specs:
        dtypes.setdefault(spec.storage, set()).add(spec.dtype)
    views = any(spec.conj or spec.neg for spec in specs)
    named = all(_IDENTIFIER.fullmatch(spec.dtype) for spec in specs)
    return named and not views and all(len(found) == 1 for found in dtypes.values())


def _settings(case: Case) -> list[str]:
    known = [
        found.statement(value)
        for name, value in case.settings
        if (found := setting(name)) is not None and type(value) is type(found.default)
    ]
    return [*known, ""] if known else []


def _run(case: Case, specs: list[TensorSpec]) -> Iterator[str]:
    yield "def operands(device):"
    yield "    torch.manual_seed(0)"
    names: list[str] = [""] * len(specs)
    for place in dict.fromkeys((spec.storage, spec.host) for spec in specs):
        sharing = [(position, spec) for position, spec in enumerate(specs) if (spec.storage, spec.host) == place]
        yield from _memory(case, sharing)
        for position, _ in sharing:
            names[position] = f"t{position}"
    n_grads = sum(grad is not None for grad in case.grads or ())
    leaves = range(len(specs) - n_grads) if case.grads is not None else range(0)
    for position in leaves:
        if specs[position].requires_grad:
            names[position] += ".requires_grad_()"
    yield f"    return [{', '.join(names)}]"
    yield ""
    yield ""
    yield "def call(t, device):"
    yield f"    result = {_call(case)}"
    yield "    outputs = [x for x in (result if isinstance(result, (tuple, list)) else [result]) if torch.is_tensor(x)]"
    if case.grads is not None:
        yield from _backward(case, specs)
    yield "    return [x.detach() for x in outputs]"
    yield ""
    yield ""
    yield "def run(device):"
    yield "    return call(operands(device), device)"


def _memory(case: Case, sharing: list[tuple[int, TensorSpec]]) -> Iterator[str]:
    """Operands on the device: alone and row-major as they are, else as views of the elements under them."""
    position, first = sharing[0]
    values = case.values.get(position, Values())
    move = "" if first.host else ".to(device)"
    if len(sharing) == 1 and first.strides == contiguous_strides(first.sizes) and not first.offset:
        yield f"    t{position} = {_elements(first.dtype, literal(first.sizes), values)}{move}"
        return
    n = max(spec.offset + reach(spec.sizes, spec.strides) for _, spec in sharing)
    yield f"    memory = {_elements(first.dtype, f'({n},)', values)}{move}"
    for number, spec in sharing:
        offset = f", {spec.offset}" if spec.offset else ""
        yield f"    t{number} = memory.as_strided({literal(spec.sizes)}, {literal(spec.strides)}{offset})"


def _elements(dtype: str, sizes: str, values: Values) -> str:
    """An expression for elements on the CPU, like those recorded as far as a few words can say."""
    cast = f".to(torch.{dtype})"
    if dtype == "bool":
        return f"(torch.rand({sizes}) < {literal(values.mean if values.mean is not None else 0.5)})"
    if not dtype.startswith(("float", "bfloat", "complex")):
        low, high = values.minimum, values.maximum
        if not isinstance(low, int) or not isinstance(high, int) or not -(2**62) < low <= high < 2**62:
            return f"torch.zeros({sizes}, dtype=torch.{dtype})"
        return f"torch.randint({low}, {high + 1}, {sizes}){cast}"
    if dtype.startswith("complex"):
        return f"torch.randn({sizes}, dtype=torch.complex64){cast}"
    made = f"torch.randn({sizes})"
    if values.std is not None and values.mean is not None:
        made = _scaled(made, values.std, values.mean)
    elif values.minimum is not None and values.maximum is not None:  # all that a recorded operand's statistics have
        width = values.maximum - values.minimum
        one = f"torch.full({sizes}, {_short(float(values.minimum))})"
        made = _scaled(f"torch.rand({sizes})", width, values.minimum) if width else one
    return made if dtype == "float32" else f"{made}{cast}"


def _scaled(made: str, width: float, low: float) -> str:
    shifted = f" {'-' if low < 0 else '+'} {_short(abs(low))}" if low else ""
    return f"({made} * {_short(width)}{shifted})"


def _short(value: float) -> str:
    return literal(float(f"{value:.4g}"))


def _call(case: Case) -> str:
    counter = iter(range(10**9))
    args = [argument_text(arg, counter, "t[{}]") for arg in case.args]
    kwargs = [(name, argument_text(arg, counter, "t[{}]")) for name, arg in case.kwargs]
    plain = [f"{name}={value}" for name, value in kwargs if _is_name(name)]
    other = ", ".join(f"{literal(name)}: {value}" for name, value in kwargs if not _is_name(name))
    return f"{_op(case.op)}({', '.join([*args, *plain, *([f'**{{{other}}}'] if other else [])])})"


def _is_name(word: str) -> bool:
    return bool(_IDENTIFIER.fullmatch(word)) and not keyword.iskeyword(word)


def _op(op: str) -> str:
    namespace, _, rest = op.partition("::")
    name, _, overload = rest.partition(".")
    parts = [namespace, name, overload or "default"]
    if all(_is_name(part) for part in parts):
        return f"torch.ops.{'.'.join(parts)}"
    made = "torch.ops"
    for part in parts:
        made = f"getattr({made}, {literal(part)})"
    return made


def _backward(case: Case, specs: list[TensorSpec]) -> Iterator[str]:
    grads = case.grads or ()
    n_inputs = len(specs) - sum(grad is not None for grad in grads)
    numbers = iter(range(n_inputs, len(specs)))
    pairs = [(index, next(numbers)) for index, grad in enumerate(grads) if grad is not None]
    leaves = [f"t[{position}]" for position in range(n_inputs) if specs[position].requires_grad]
    if pairs and leaves:
        outs = ", ".join(f"outputs[{index}]" for index, _ in pairs)
        given = ", ".join(f"t[{position}]" for _, position in pairs)
        yield f"    grads = torch.autograd.grad([{outs}], [{', '.join(leaves)}], [{given}], allow_unused=True)"
        yield "    outputs += [grad for grad in grads if grad is not None]"
