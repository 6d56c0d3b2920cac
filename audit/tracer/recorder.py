"""Turns a running program's aten calls into a trace: what is installed while it runs, and what comes out of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from audit.schema import Source, Trace
from audit.tracer.compiled import CompiledRegions
from audit.tracer.composites import CompositeKernels, run_composite
from audit.tracer.extensions import ImportWatch
from audit.tracer.launches import LaunchWatch
from audit.tracer.ledger import Ledger
from audit.tracer.processes import ProcessWatch
from audit.tracer.recording import Recording
from audit.tracer.threads import ThreadWatch
from audit.tracer.values import Span, ValueRecorder
from audit.tracer.whereabouts import ModuleStacks, SourceLines


class Recorder:
    """Records every aten call between ``start`` and ``stop``; ``build`` gives the trace.

    ``values`` None switches value capture off (for measurement of the bookkeeping alone). ``shapes`` is the fake mode
    that the program runs under with ``--fake``; its calls are recorded, those of any other fake mode are listed.
    """

    def __init__(self, values: ValueRecorder | None, shapes: FakeTensorMode | None = None) -> None:
        self.values = values
        self._shapes = shapes
        self.modules = ModuleStacks()
        self.n_optimizer_steps = 0
        self.on_optimizer_step: Callable[[], None] | None = None
        self._ledger = Ledger()
        self._sources = SourceLines()
        self._composites = CompositeKernels(self._intercept)
        self._imports = ImportWatch()
        self._parts = (
            self._composites,
            self.modules,
            CompiledRegions(self.name, self.modules.away),
            ThreadWatch(self._recording),
            ProcessWatch(self.name, self._ledger.abandon),
            LaunchWatch(self.name, lambda: self.modules.here().path),
            self._imports,
        )
        self._notes: list[str] = []
        self._installed = ExitStack()

    # --- life --------------------------------------------------------------------------------------------------

    def start(self) -> Recorder:
        """Installs hooks and kernels, and starts recording on this thread."""
        for part in self._parts:
            part.install()
            self._installed.callback(part.remove)
        for handle in (
            register_optimizer_step_pre_hook(self._optimizer_starts),
            register_optimizer_step_post_hook(self._optimizer_ends),
        ):
            self._installed.callback(handle.remove)
        self._installed.enter_context(self._recording())
        return self

    def stop(self) -> None:
        """Ends the recording, on all threads."""
        self._ledger.close()
        self._installed.close()
        for what, reason in self._imports.named():
            self.name(what, reason)
        if self.values is not None:
            self.values.finish()

    @contextmanager
    def _recording(self) -> Iterator[None]:
        """Records the calling thread."""
        modules = self.modules.here()
        recording = Recording(self._ledger, self.values, modules, self._sources, self._composites, self._shapes)
        # A mode is thread-local: backward on another thread would run unseen.
        with torch.autograd.set_multithreading_enabled(False), recording:
            yield

    def _here(self) -> Recording | None:
        """The recording of the calling thread, None where there is none or the program has switched modes off."""
        for mode in reversed(_get_current_dispatch_mode_stack()):
            if isinstance(mode, Recording) and mode.ledger is self._ledger:
                return mode
        return None

    def paused(self) -> AbstractContextManager[None]:
        """Lets the calling thread's ops run unrecorded."""
        recording = self._here()
        assert recording is not None, "paused outside of start and stop"
        return recording.paused()

    def reset(self) -> None:
        """Forgets what was recorded so far (the set-up of a file that defines a model)."""
        self._ledger.reset()

    @property
    def n_recorded(self) -> int:
        return self._ledger.n_recorded

    def _intercept(self, op: torch._ops.OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        recording = self._here()
        return run_composite(op, args, kwargs) if recording is None else recording.intercept(op, args, kwargs)

    def _optimizer_starts(self, *_: Any) -> None:
        if (recording := self._here()) is not None:
            recording.in_optimizer = True

    def _optimizer_ends(self, *_: Any) -> None:
        if (recording := self._here()) is not None:
            recording.in_optimizer = False
        self.n_optimizer_steps += 1
        if self.on_optimizer_step is not None:
            self.on_optimizer_step()

    # --- the trace ---------------------------------------------------------------------------------------------

    def name(self, what: str, reason: str) -> None:
        """Names something that is no recorded call and not audited: a compiled region, a process."""
        self._ledger.name_thing(what, reason)

    def note(self, text: str) -> None:
        """Adds a sentence about how the trace was made."""
        self._notes.append(text)

    def build(self, source: Source, environment: Mapping[str, str]) -> tuple[Trace, dict[str, Span]]:
        """The trace and the kept values by their names in the value file."""
        audited = self._ledger.audited()
        cases, spans = self._ledger.cases(audited)
        trace = Trace(
            source=source,
            environment=environment,
            cases=tuple(cases.values()),
            not_audited=self._ledger.not_audited(audited),
            n_recorded=self._ledger.n_recorded,
            notes=tuple(self._notes),
        )
        return trace, spans
