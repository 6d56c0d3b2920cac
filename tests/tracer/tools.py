"""Two tools behind one interface: ours, and what one writes first, a bare dispatch mode with a naive replay.

A test of ``test_tool_failures`` is worth something only if the bare tool fails it.
"""

from __future__ import annotations

import faulthandler
import json
import os
import runpy
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Protocol

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from audit.codec import case_key
from audit.device.environment import collect_environment
from audit.opset import extract_values, read_opset
from audit.replay.engine import ReplaySettings
from audit.replay.pool import Pool
from audit.rules.judge import judge
from audit.run_records import Run, RunHeader
from audit.schema import Case, Measurement, Source, TensorSpec, Trace
from audit.tracer.recorder import Recorder
from audit.tracer.values import Span, ValueRecorder
from audit.tracer.writing import write_trace
from tests.tracer.invariant import Program, Tracer, check


@dataclass(frozen=True)
class Answer:
    """What a tool says of one op: its status, and what the op said while it ran."""

    status: str
    warnings: tuple[str, ...] = ()


class Answers(dict[str, Answer]):
    """By qualified overload; an op that nobody answered for is ``lost``."""

    def __missing__(self, op: str) -> Answer:
        return Answer("lost")


class Tool(Protocol):
    def check(self, program: Program) -> Trace:
        """The trace of ``program``, which computed under the tool what it computes without (``invariant.check``)."""
        ...

    def trace(self, program: Program) -> tuple[Trace, Mapping[str, torch.Tensor]]:
        """The trace of ``program`` and the values that were kept, by ``<key>/<position>``."""
        ...

    def saved(self, program: Program, path: Path) -> Trace:
        """The trace of ``program``, written to a file and read again."""
        ...

    def audit(self, program: Program, faults: Path) -> Answers:
        """Every op of ``program`` replayed on the device that ``faults`` describes, by qualified overload."""
        ...


class Ours:
    def check(self, program: Program) -> Trace:
        return check(program)

    def trace(self, program: Program) -> tuple[Trace, Mapping[str, torch.Tensor]]:
        recorder = _recorded(Recorder(ValueRecorder()), program)
        trace, spans = recorder.build(Source("script", "test"), {})
        return trace, {name: span.memory for name, span in spans.items() if span.memory is not None}

    def saved(self, program: Program, path: Path) -> Trace:
        recorder = _recorded(Recorder(ValueRecorder()), program)
        write_trace(recorder, Source("script", "test"), {}, path)
        return read_opset(path)

    def audit(self, program: Program, faults: Path) -> Answers:
        opset = faults.with_suffix(".audit")
        trace = self.saved(program, opset)
        settings = ReplaySettings(
            device=f"sim:{faults}", values=extract_values(opset, faults.parent), timing_budget_s=0.002
        )
        with Pool(settings) as pool:
            measured = [event for event in pool.replay(trace.cases) if isinstance(event, Measurement)]
            device = pool.device_info()
        header = RunHeader(
            "simulated", trace.source, device, collect_environment(), {}, "", "", len(trace.cases), trace.n_recorded
        )
        run = Run(header, trace.cases, {measurement.key: measurement for measurement in measured})
        said = {m.key: m.device.warnings for m in measured}
        return Answers({v.op: Answer(v.status, said.get(v.key, ())) for v in judge(run).verdicts})


def _recorded(recorder: Recorder, program: Program) -> Recorder:
    recorder.start()
    try:
        program()
    finally:
        recorder.stop()
    return recorder


# --- the bare tool ----------------------------------------------------------------------------------------------


class _BareMode(TorchDispatchMode):
    """Appends what it sees, and keeps the arguments as they are."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, tuple[Any, ...], dict[str, Any]]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls.append((func, args, kwargs or {}))
        return func(*args, **(kwargs or {}))


@dataclass
class BareRecorder:
    """The interface of a recorder around a bare mode: names, arguments and shapes of calls, and no more."""

    mode: _BareMode = field(default_factory=_BareMode)

    def start(self) -> None:
        self.mode.__enter__()

    def stop(self) -> None:
        self.mode.__exit__(None, None, None)

    def build(self, source: Source, environment: Mapping[str, str]) -> tuple[Trace, dict[str, Span]]:
        cases = tuple(_bare_case(number, *call) for number, call in enumerate(self.mode.calls))
        return Trace(source, environment, cases, n_recorded=len(cases)), {}


def _bare_case(number: int, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Case:
    op = f"{func.namespace}::{str(func).removeprefix(func.namespace + '.')}"
    described = tuple(_describe(arg) for arg in args)
    return Case(f"{number}-{op}", op, described, tuple((name, _describe(arg)) for name, arg in kwargs.items()))


def _describe(arg: Any) -> Any:
    if isinstance(arg, torch.Tensor):
        return TensorSpec(tuple(arg.shape), (), str(arg.dtype).removeprefix("torch."))
    return tuple(_describe(item) for item in arg) if isinstance(arg, (list, tuple)) else arg


class Bare:
    """A bare mode; its replay shares inputs, draws random ones, and runs everything in one process."""

    def check(self, program: Program) -> Trace:
        return check(program, tracer=BareRecorder)

    def _run(self, program: Program) -> BareRecorder:
        recorder = BareRecorder()
        recorder.start()
        try:
            program()
        finally:
            recorder.stop()
        return recorder

    def trace(self, program: Program) -> tuple[Trace, Mapping[str, torch.Tensor]]:
        recorder = self._run(program)
        trace, _ = recorder.build(Source("script", "test"), {})
        kept = {
            f"{case.key}/{position}": arg
            for case, (_, args, _) in zip(trace.cases, recorder.mode.calls, strict=True)
            for position, arg in enumerate(arg for arg in args if isinstance(arg, torch.Tensor))
        }
        return trace, kept

    def saved(self, program: Program, path: Path) -> Trace:
        recorder = self._run(program)
        path.write_text(json.dumps([(str(func), args, kwargs) for func, args, kwargs in recorder.mode.calls]))
        calls = json.loads(path.read_text())
        cases = tuple(Case(case_key(op, tuple(args), (), "forward", None), op, tuple(args)) for op, args, _ in calls)
        return Trace(Source("script", "test"), {}, cases, n_recorded=len(cases))

    def audit(self, program: Program, faults: Path) -> Answers:
        """Replays in a fork, so that the device's crash does not end the test; it ends the replay all the same."""
        functions = runpy.run_path(str(faults))["FAULTS"]
        trace, _ = self._run(program).build(Source("script", "test"), {})
        answers = faults.with_suffix(".txt")
        if (child := os.fork()) == 0:
            faulthandler.disable()  # the crash is meant, and said by what is missing
            try:
                with answers.open("w") as file:
                    for case in trace.cases:
                        print(case.op, _naive_status(case, functions), file=file, flush=True)
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        return Answers({op: Answer(status) for op, status in map(str.split, answers.read_text().splitlines())})


def _naive_status(case: Case, faults: Mapping[str, Callable[[Any], Any]]) -> str:
    base, _, overload = case.op.removeprefix("aten::").partition(".")
    try:
        op = getattr(getattr(torch.ops.aten, base), overload or "default")
        args, kwargs = [_random(arg) for arg in case.args], {name: _random(arg) for name, arg in case.kwargs}
        expected = op(*args, **kwargs)
        call = SimpleNamespace(op=case.op, args=args, kwargs=kwargs, run=op, warn=warnings.warn)
        actual = faults[case.op](call) if case.op in faults else op(*args, **kwargs)
        equal = torch.allclose(actual, expected) if isinstance(actual, torch.Tensor) else True
    except Exception:  # noqa: BLE001 - what such tools do: whatever failed is no result
        return "skipped"
    return "supported" if equal else "divergent"


def _random(arg: Any) -> Any:
    if isinstance(arg, TensorSpec):
        dtype = getattr(torch, arg.dtype)
        if dtype.is_floating_point:
            return torch.randn(arg.sizes).to(dtype)
        return torch.randint(0, 1 << 16, arg.sizes).to(dtype)
    return [_random(item) for item in arg] if isinstance(arg, tuple) else arg


_: type[Tracer] = BareRecorder  # the bridge is complete
