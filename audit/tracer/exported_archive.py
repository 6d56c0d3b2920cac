"""A ``.pt2`` file of ``torch.export``, checked before torch reads it, and copied without what could run code.

``torch.export.load`` is not for files of strangers: it unpickles (weights of subclasses, constants, example inputs), it
evaluates the text of symbolic sizes (``sympy.sympify``), it executes guards and the names that it finds (fx generates
Python from them), it imports what a tree spec names, and the graph may call any function under ``torch`` by name (read
in torch 2.13). So only what is known to be data is let through; the rest is refused, by name.
"""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from audit import strict_json
from audit.errors import UsageError

#: What a member may be called below the archive's own folder.
_MEMBER = re.compile(
    r"archive_format|archive_version|byteorder|version|\.data/(version|serialization_id|\w+)|\.format_version"
    r"|models/model\.json|data/sample_inputs/model\.pt"
    r"|data/(weights|constants)/(\w+|model_\w+_config\.json)"
)
_GRAPH = "models/model.json"
_SAMPLE = "data/sample_inputs/model.pt"
#: Names of values, parameters and arguments: fx writes them into the Python that it generates.
_NAME = re.compile(r"[A-Za-z_0-9][\w.]*|")
_FLOAT = re.compile(r"-?Infinity|NaN")
#: What the text of a symbolic size is made of.
_EXPRESSION = re.compile(r"(?:[A-Za-z_]\w*|'[A-Za-z_]\w*'|\d+(?:\.\d+)?|[-+*/(),=<>~&|% ])*")
_FUNCTIONS = frozenset(
    "Symbol positive nonnegative integer True False true false BooleanTrue BooleanFalse Integer Rational Float Add Mul "
    "Pow Max Min Mod PythonMod FloorDiv CleanDiv CeilDiv ModularIndexing Eq Ne Lt Le Gt Ge Equality Unequality "
    "GreaterThan LessThan StrictGreaterThan StrictLessThan And Or Not Where Identity ToFloat TruncToInt IntTrueDiv "
    "FloatTrueDiv FloatPow PowByNatural RShift LShift CeilToInt FloorToInt RoundToInt oo int_oo".split()
)
_SYMBOL = re.compile(r"(s|u|zs|zu|zf|zuf|f)\d+")
_OPERATORS = frozenset(
    "getitem add sub mul truediv floordiv mod pow neg pos abs eq ne lt le gt ge and_ or_ xor not_ lshift rshift".split()
)
_NAMESPACES = ("aten", "prims", "quantized_decomposed", "torchvision")
_HIGHER_ORDER = frozenset("cond while_loop scan map_impl wrap_with_set_grad_enabled wrap_with_autocast".split())
#: Keys whose text is only ever text.
_TEXT = frozenset(("as_string", "as_strings", "torch_version", "min_val", "max_val"))
_OBJECTS = ("as_custom_obj", "as_operator", "custom_obj")


def sanitised_copy(path: Path, target: Path, device: str) -> bool:
    """Writes what is safe of the archive at ``path`` to ``target``, all of it on ``device``.

    Returns whether example inputs are in it. Raises UsageError, which says what is refused.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            members = _members(path, archive)
            with zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as copy:
                return _copy(path, archive, members, copy, device)
    except (zipfile.BadZipFile, OSError, ValueError, KeyError) as error:
        raise UsageError(
            f"{path} is no archive of torch.export.save that this version reads: {error}", "unreadable-exported"
        ) from error


def _members(path: Path, archive: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    """The members by their names below the folder that torch puts around them."""
    members: dict[str, zipfile.ZipInfo] = {}
    for info in archive.infolist():
        name = info.filename.partition("/")[2]
        if name.startswith("data/aotinductor"):
            raise _refused(path, f"{name} is compiled code, which loading would run")
        if _MEMBER.fullmatch(name) is None:
            if name.startswith("extra/"):
                continue  # the user's own files: nothing reads them
            raise _refused(path, f"it has a member {name[:80]!r}, which no exported program needs")
        if name in members:
            raise _refused(path, f"it has two members {name!r}")
        if info.compress_type != zipfile.ZIP_STORED:
            raise _refused(path, f"{name} is compressed, as torch.export.save never writes it")
        members[name] = info
    if _GRAPH not in members:
        raise UsageError(f"{path} has no {_GRAPH}: it was not written by torch.export.save", "unreadable-exported")
    return members


def _copy(
    path: Path, archive: zipfile.ZipFile, members: Mapping[str, zipfile.ZipInfo], copy: zipfile.ZipFile, device: str
) -> bool:
    sampled = False
    folder = members[_GRAPH].filename.removesuffix(_GRAPH)
    for name, info in members.items():
        data = archive.read(info)
        if name.endswith(".json"):
            content = strict_json.loads(data)
            _check_values(path, content)
            if name == _GRAPH:
                content = {**content, "guards_code": []}  # Python text that torch would execute
                _check_graph(path, content)
            data = strict_json.dumps(_moved(content, device)).encode()
        elif name == _SAMPLE:
            sampled = _is_plain(data)
            data = data if sampled else b""
        copy.writestr(info.filename, data)
    if _SAMPLE not in members:
        copy.writestr(folder + _SAMPLE, b"")  # torch wants the member, and takes an empty one for none
    return sampled


def _refused(path: Path, why: str) -> UsageError:
    return UsageError(
        f"{path} is refused: {why}; run the program that exported it instead, which is code you know", "unsafe-exported"
    )


def _is_plain(data: bytes) -> bool:
    """Whether a pickle holds tensors and containers alone."""
    try:
        torch.load(io.BytesIO(data), weights_only=True)
    except Exception:  # noqa: BLE001 - an unpickler in the hands of a stranger raises anything
        return False
    return True


def _check_values(path: Path, content: Any) -> None:
    """Refuses objects that are kept as pickles."""
    for key, value in _entries(content):
        if key in _OBJECTS and value:
            raise _refused(path, f"it holds an object ({key}) and not only tensors")
        if key == "use_pickle" and value is not False:
            raise _refused(path, "a weight or constant in it is a pickle (a tensor subclass or an object)")


def _check_graph(path: Path, content: Any) -> None:
    for key, value in _entries(content):
        if not isinstance(value, str) or key in _TEXT:
            continue
        if key == "target":
            _check_target(path, value)
        elif key == "expr_str":
            _check_expression(path, value)
        elif key in ("in_spec", "out_spec"):
            if "__enum__" in value:
                raise _refused(path, "its tree of arguments names a module to import")
        elif key in ("as_float", "as_floats") and _FLOAT.fullmatch(value):
            continue
        elif _NAME.fullmatch(value) is None:
            raise _refused(path, f"{key} is {value[:80]!r}, which is no name")


def _check_target(path: Path, target: str) -> None:
    """What a node of the graph calls: an op, or arithmetic on sizes."""
    parts = target.split(".")
    if parts[0] in ("_operator", "operator") and len(parts) == 2 and parts[1] in _OPERATORS:
        return
    if parts[0] == "math" and len(parts) == 2 and parts[1].isalnum():
        return
    if parts[0] == "torch" and len(parts) == 2 and re.fullmatch(r"_?sym_\w+", parts[1]):
        return
    if parts[:2] == ["torch", "ops"] and len(parts) == 4 and parts[2] == "higher_order" and parts[3] in _HIGHER_ORDER:
        return
    if parts[:2] == ["torch", "ops"] and len(parts) == 5 and parts[2] in _NAMESPACES and parts[3] != "from_file":
        packet = getattr(getattr(torch.ops, parts[2]), parts[3], None)
        if isinstance(getattr(packet, parts[4], None), torch._ops.OpOverload):
            return
        raise UsageError(f"{path}: torch {torch.__version__} has no op {target}", "unreadable-exported")
    raise _refused(path, f"its graph calls {target[:80]!r}, which is no aten op and no arithmetic on sizes")


def _check_expression(path: Path, text: str) -> None:
    names = re.findall(r"[A-Za-z_]\w*", text)
    if (
        len(text) > 2000
        or _EXPRESSION.fullmatch(text) is None
        or not all(name in _FUNCTIONS or _SYMBOL.fullmatch(name) for name in names)
    ):
        raise _refused(path, f"the size {text[:80]!r} is no arithmetic on symbols")


def _entries(content: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """Every value with the key that it stands under, at any depth; what nodes are annotated with is left out.

    A key itself is a name too, of a value of the graph or of a parameter.
    """
    if isinstance(content, dict):
        yield key, content
        for name, value in content.items():
            if name == "metadata":
                continue
            yield "key", name
            yield from _entries(value, name)
    elif isinstance(content, list):
        for item in content:
            yield from _entries(item, key)
    else:
        yield key, content


def _moved(content: Any, device: str) -> Any:
    """The same with every device changed to ``device``, and without annotations, which hold source lines."""
    if isinstance(content, list):
        return [_moved(item, device) for item in content]
    if not isinstance(content, dict):
        return content
    if set(content) == {"type", "index"} and isinstance(content["type"], str):
        return {"type": device, "index": None if device == "cpu" else 0}
    return {name: {} if name == "metadata" else _moved(value, device) for name, value in content.items()}
