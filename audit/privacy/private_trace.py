"""A trace without what tells whose it is.

Kept are what replay needs and a report counts: ops of PyTorch, arguments, sizes, strides, phases, calls, coarse
statistics. Names of modules, lines, programs and custom ops become pseudonyms; sentences keep our words alone.
docs/audit-file.md says what stays visible.
"""

from __future__ import annotations

import builtins
import dataclasses
import re
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path

from audit.codec import tensors_of
from audit.knowledge.signals import load_variables
from audit.privacy.coarse import coarse_values
from audit.privacy.name_map import NameMap, write_map
from audit.privacy.own_words import masked, own_words
from audit.pseudonyms import Pseudonyms
from audit.schema import Arg, Case, DeviceTimes, NotAudited, Source, TensorSpec, Trace

#: Namespaces of ops that come with PyTorch or its sister projects: their names say nothing of a program.
_PUBLIC_OPS = frozenset(
    """aten prims prim profiler c10d _c10d_functional _c10d_functional_autograd symm_mem fsdp quantized torchvision
    torchaudio inductor rngprims higher_order mkldnn mkl onednn xnnpack""".split()
)
_OP = re.compile(r"([A-Za-z_]\w*)::[\w.]+", re.ASCII)
#: What an aten op takes as text. Other text (a message, a file name) is the program's.
_PUBLIC_TEXTS = frozenset(
    """none mean sum prod amin amax add multiply floor trunc tanh left right same valid L U fro nuc ortho forward
    backward reduced complete r linear lower higher midpoint nearest gelsy gelsd gelss gels constant reflect replicate
    circular ij xy bilinear bicubic gesvd gesvdj gesvda""".split()
) | {""}
_VERSION = re.compile(
    r"\d{1,4}(?:\.\d{1,5}){0,3}(?:(?:a|b|rc)\d{1,3})?(?:\+(?:cpu|cu\d{2,3}|rocm\d{1,2}(?:\.\d{1,2}){0,2}))?"
)
_SYSTEM = re.compile(r"([A-Za-z]+)-(\d{1,2}\.\d{1,3})")
_ARCHS = re.compile(r"(?:gfx[0-9a-f]{3,4}|sm_\d{2,3}|compute_\d{2,3}| )+")
_SETTING = re.compile(r"[0-9]{1,3}(?:\.[0-9]{1,2}){0,2}|true|false|on|off|yes|no", re.IGNORECASE)


def private_trace(trace: Trace) -> tuple[Trace, NameMap | None]:
    """The private form of ``trace``, and the map that restores its names; None where it is private already.

    Calls whose arguments hold a text of the program are counted as not
    audited, for they cannot be replayed without it.
    """
    if trace.source.private:
        return trace, None
    pseudonyms = Pseudonyms()
    cases, left_out = [], []
    for case in trace.cases:
        reason = _unspeakable(case)
        if reason:
            left_out.append(NotAudited(_op(case.op, pseudonyms), reason, case.n_calls))
        else:
            cases.append(_private_case(case, pseudonyms))
    private = Trace(
        source=_private_source(trace.source, pseudonyms),
        environment=private_environment(trace.environment),
        cases=tuple(cases),
        not_audited=_counted([*(_private_item(item, pseudonyms) for item in trace.not_audited), *left_out]),
        n_recorded=trace.n_recorded,
        notes=(*(masked(note, pseudonyms) for note in trace.notes), "private: without values, names and lines"),
        elsewhere=_private_times(trace.elsewhere),
    )
    drawn = secrets.token_hex(4)  # no digest: of names that one can guess it would be a proof
    private = dataclasses.replace(private, source=dataclasses.replace(private.source, private=(drawn,)))
    return private, NameMap(drawn, pseudonyms.names())


def _private_times(times: DeviceTimes | None) -> DeviceTimes | None:
    """Times, and of the device the words of hardware and the numbers."""
    if times is None:
        return None
    device = dataclasses.replace(
        times.device,
        name=_hardware(times.device.name),
        arch=_hardware(times.device.arch),
        properties={name: value for name, value in times.device.properties.items() if value.isdecimal()},
    )
    return dataclasses.replace(times, device=device, environment=private_environment(times.environment))


def made_private(trace: Trace, names: Path) -> Trace:
    """The private form of ``trace``; the map that restores its names is written to ``names`` where there is one."""
    private, name_map = private_trace(trace)
    if name_map is not None:
        write_map(names, name_map)
    return private


# --- cases -------------------------------------------------------------------------------------------------------


def _unspeakable(case: Case) -> str:
    """Why a case cannot be part of a private trace, or an empty string."""
    if not _is_public(case.op):
        return "custom op: a private trace does not name it"
    texts = (arg for arg in _plain_arguments(case) if isinstance(arg, str))
    return "" if all(text in _PUBLIC_TEXTS for text in texts) else "a text argument that a private trace leaves out"


def _plain_arguments(case: Case) -> Iterator[Arg]:
    waiting: list[Arg] = [*case.args, *(arg for _, arg in case.kwargs)]
    while waiting:
        arg = waiting.pop()
        if isinstance(arg, tuple):
            waiting.extend(arg)
        else:
            yield arg


def _private_case(case: Case, pseudonyms: Pseudonyms) -> Case:
    specs = tensors_of(case.args, case.kwargs, case.grads)
    visible = _visible(case, specs)
    return Case(
        key=case.key,  # a digest of op, arguments and phase, all of which stay
        op=case.op,
        args=case.args,
        kwargs=case.kwargs,
        phase=case.phase,
        grads=case.grads,
        settings=case.settings,
        n_calls=case.n_calls,
        n_recomputed=case.n_recomputed,
        modules=tuple(pseudonyms.of("module", name) for name in case.modules),
        sources=tuple(pseudonyms.of("line", line) for line in case.sources),
        values={
            position: coarse_values(values, specs[position].dtype, visible) for position, values in case.values.items()
        },
    )


def _visible(case: Case, specs: list[TensorSpec]) -> frozenset[int]:
    """The integers that anybody reads in the case: sizes and integer arguments."""
    numbers = {arg for arg in _plain_arguments(case) if isinstance(arg, int)}
    return frozenset(numbers.union(*(spec.sizes for spec in specs)))


# --- names and sentences ---------------------------------------------------------------------------------------------


def _is_public(op: str) -> bool:
    namespace, separator, _ = op.partition("::")
    return bool(separator) and namespace in _PUBLIC_OPS


def _op(op: str, pseudonyms: Pseudonyms) -> str:
    return op if _is_public(op) else pseudonyms.of("op", op)


def _private_item(item: NotAudited, pseudonyms: Pseudonyms) -> NotAudited:
    """Without its kernels, whose names may be the program's own."""
    is_op = _OP.fullmatch(item.what) is not None
    what = _op(item.what, pseudonyms) if is_op else masked(item.what, pseudonyms)
    return dataclasses.replace(item, what=what, reason=masked(item.reason, pseudonyms), kernels=())


def _counted(items: list[NotAudited]) -> tuple[NotAudited, ...]:
    """One entry for what has come to be called the same."""
    counted: dict[tuple[str, str], NotAudited] = {}
    for item in items:
        old = counted.get((item.what, item.reason))
        if old is not None:
            item = dataclasses.replace(
                item,
                n_calls=old.n_calls + item.n_calls,
                n_seen=old.n_seen + item.n_seen,
                nbytes=old.nbytes + item.nbytes,
                n_ranks=max(old.n_ranks, item.n_ranks),
            )
        counted[item.what, item.reason] = item
    return tuple(counted[key] for key in sorted(counted))


def _private_source(source: Source, pseudonyms: Pseudonyms) -> Source:
    error = None
    if source.error is not None:
        kind = source.error.partition(":")[0]
        is_public = isinstance(getattr(builtins, kind, None), type)
        error = f"{kind if is_public else 'an exception'} ({pseudonyms.of('error', source.error)})"
    return Source(source.kind, pseudonyms.of("program", source.name), source.mode, source.n_steps, error)


def private_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Versions, GPUs, and the settings of variables that are known to steer kernels; nothing else."""
    known = {variable.name for variable in load_variables()}
    private = {name: _private_fact(name, value, known) for name, value in environment.items()}
    return {name: value for name, value in private.items() if value}


def _private_fact(name: str, value: str, known: set[str]) -> str:
    if name == "os":
        system = _SYSTEM.match(value)
        return f"{system[1]}-{system[2]}" if system is not None and system[1] in ("Linux", "Windows", "macOS") else ""
    if name in ("arch_list", "gpus"):
        return value if _ARCHS.fullmatch(value) else ""
    if re.fullmatch(r"gpu \d{1,3}", name):
        return _hardware(value)
    if name in known:
        return value if _SETTING.fullmatch(value) else "(set)"
    version = _VERSION.match(value)
    return version[0] if name.islower() and name in _FACTS and version is not None else ""


#: What ``audit.device.environment`` says of versions.
_FACTS = frozenset(
    """python torch hip cuda rocm amdgpu numpy safetensors torchvision transformers triton
    pytorch-triton-rocm""".split()
)


def _hardware(text: str) -> str:
    return " ".join(word for word in text.split() if _is_hardware(word))


def _is_hardware(word: str) -> bool:
    """A word of a GPU's description: ``Instinct``, ``MI300X``, ``(gfx942:sramecc+:xnack-),``, ``304``, ``GiB``."""
    parts = re.findall(r"\w+", word)
    ours = own_words() | {"NVIDIA", "AMD", "GiB", "units", "sramecc", "xnack"}
    return all(part in ours or re.fullmatch(r"\d{1,4}|gfx[0-9a-f]{3,4}|sm_\d{2,3}", part) for part in parts)
