"""The device side: runs one case on the device with detectors beside it and writes its outputs to the spool."""

from __future__ import annotations

import dataclasses
import gc
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import Any

import torch

from audit.codec import encode
from audit.comparison import TensorFact
from audit.detect.detector import Detector, Evidence, OpCall
from audit.device.protocol import Buffer, Device
from audit.device.steering import refusal, steered
from audit.device.timing import remarks
from audit.replay.canary import canary_passes
from audit.replay.changed_inputs import changed_for_replay, spool_changed
from audit.replay.compare import fact_of, flat
from audit.replay.execute import Produced, call, in_phase, with_mutated
from audit.replay.forwards import with_own_forward
from audit.replay.inputs import Bound, Storage, bind, seed_generators, storages_of, torch_dtype
from audit.replay.layout import with_alias
from audit.replay.memory_facts import MemoryFacts, OutputRuns
from audit.replay.outcomes import attempt
from audit.replay.overload import growing_operands, named_arguments, operand_names, resolve
from audit.replay.spool import on_storage, read_spool, second_run, write_spool
from audit.replay.standards import standard_of
from audit.replay.stray_writes import may_stray, strayed
from audit.replay.threads import set_threads_for
from audit.run_records import Change
from audit.schema import Case, Outcome, TensorSpec, Timing

#: Operands that the CPU leaves alone are read back and compared up to this many bytes a case.
READ_BACK_BYTES = 64 << 20

Say = Callable[[str], None]


@dataclass
class Placed:
    """The operands of one run on the device: guarded buffers, and the call bound to views on them."""

    bound: Bound
    buffers: dict[str, Buffer]
    n_damaged: int = 0
    note: str = ""


@dataclass
class Found:
    """What one case gave so far; stays readable when a later step raises. ``second``: outputs that did not repeat."""

    first: dict[str, torch.Tensor] = field(default_factory=dict)
    second: dict[str, torch.Tensor] = field(default_factory=dict)
    facts: dict[str, MemoryFacts] = field(default_factory=dict)
    timing: Timing | None = None
    first_us: float | None = None
    n_damaged: int = 0
    guards_broken: dict[str, None] = field(default_factory=dict)
    aliases: dict[str, TensorFact] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


class DeviceSide:
    """Measures cases on ``device``; ``folder`` has the spooled inputs and receives the outputs."""

    def __init__(
        self,
        device: Device,
        detectors: list[Detector],
        folder: FilePath,
        seed: int,
        fills: tuple[int, int],
        timing_budget_s: float,
        n_threads: int,
        n_repeats: int = 2,
    ) -> None:
        self._device = device
        self._detectors = detectors
        self._folder = folder
        self._seed = seed
        self._fills = fills
        self._timing_budget_s = timing_budget_s
        self._n_threads = n_threads
        self._n_repeats = max(n_repeats, 2)

    def measure(self, case: Case, job: dict[str, Any], say: Say) -> dict[str, Any]:
        """Runs the case; ``job`` has the spool ``index``, the ``mutated`` positions and expected ``output_bytes``.

        Whatever the op raises is part of the answer. ``say`` is told before each stage that may hang.
        """
        found, evidence = Found(), Evidence()
        set_threads_for(sum(length for _, length in job["index"].values()), self._n_threads)
        for detector in self._detectors:
            detector.begin(self._device)
        with steered(case.settings) as unknown:
            found.notes += [f"this torch has no {name}; replayed without it" for name in unknown]
            outcome = attempt(lambda: self._runs(case, job, say, found))
            if outcome.kind == "out_of_memory":  # perhaps for what earlier cases left in the allocator's cache
                self._free_memory()
                outcome = attempt(lambda: self._runs(case, job, say, found))
            if outcome.kind == "ok":
                outcome = self._beside(case, job, say, found) or outcome
        for detector in self._detectors:
            detector.end(self._device, evidence)
        outcome = dataclasses.replace(outcome, stderr=evidence.stderr, warnings=evidence.warnings)
        outputs, index = self._spool_outputs(case, found) if outcome.kind == "ok" else ({}, {})
        if outcome.kind == "out_of_memory":
            self._free_memory()
        say("steady")
        canary = "not run" if outcome.device_error else self._canary()
        return {
            "outcome": encode(outcome),
            "outputs": outputs,
            "index": index,
            "path": encode(dataclasses.replace(evidence.path, refusals=evidence.refusals)),
            "timing": None if found.timing is None else encode(found.timing),
            "peak_bytes": evidence.peak_bytes,
            "n_damaged_inputs": found.n_damaged,
            "guards_broken": list(found.guards_broken),
            "canary": canary,
            "notes": found.notes,
        }

    def measure_changed(self, case: Case, change: Change, job: dict[str, Any], say: Say) -> dict[str, Any]:
        """``measure`` of the case under a change, on the inputs of the case itself; ``job`` is the case's own."""
        if change.settings is not None and (reason := refusal(change.settings)):
            return {"outcome": encode(Outcome("not_run", message=reason)), "canary": "not run", "notes": []}
        changed = changed_for_replay(case, change)
        index = spool_changed(case, changed, self._folder, job["index"])
        return self.measure(changed, {**job, "index": index}, say)

    # --- the compared runs -----------------------------------------------------------------------------------------

    def _runs(self, case: Case, job: dict[str, Any], say: Say, found: Found) -> Outcome:
        """Two runs or more with fresh inputs, over memory filled in two ways.

        The first one's outputs are kept, and of the others the first that differs.
        """
        say("first call")
        self._device.begin_case(case.op, case.phase)
        found.first = self._run(case, job, self._fills[0], found)
        standard = standard_of(case)
        runs = {
            name: OutputRuns(
                tensor,
                written=standard.must_be_written(name) and not name.endswith("(mutated)"),
                repeats=standard.must_repeat(name),
            )
            for name, tensor in found.first.items()
        }
        for n in range(1, self._n_repeats):
            say("steady")
            another = self._run(case, job, self._fills[n % 2], found)
            for name, tensor in found.first.items():
                other = another.get(name, tensor.new_empty(0))
                if runs[name].add(other, self._fills if n == 1 else None):
                    found.second.setdefault(name, other)
        found.facts = {name: output.facts() for name, output in runs.items()}
        return Outcome("ok")

    def _run(self, case: Case, job: dict[str, Any], fill: int, found: Found) -> dict[str, torch.Tensor]:
        """One run; host copies of what it gave, by name."""
        op = resolve(case.op)
        placed = self._place(case, job, verify=True)
        found.n_damaged = max(found.n_damaged, placed.n_damaged)
        if placed.note and placed.note not in found.notes:
            found.notes.append(placed.note)
        seed_generators(self._seed, self._device.torch_device)
        self._device.fill_fresh_memory(fill, job["output_bytes"])
        start = time.perf_counter()
        produced = in_phase(case.phase, case, lambda: call(case, op, placed.bound))
        self._device.synchronize()
        if found.first_us is None:
            found.first_us = (time.perf_counter() - start) * 1e6
        changed = [*job["mutated"], *self._changed(case, job, placed)]
        outputs = with_mutated(case, placed.bound, produced, changed)
        if not found.aliases:
            found.aliases = self._aliases(case, placed, produced)
        host = {item.name: self._device.to_host(item.tensor) for item in outputs if item.tensor is not None}
        self._check_guards(case, job, placed, found)
        return host

    def _place(self, case: Case, job: dict[str, Any], verify: bool) -> Placed:
        """Fresh operands. Each copy to the device is read back, and made again once where it arrived damaged."""
        contents = read_spool(self._folder / f"{case.key}.inputs", job["index"])
        buffers: dict[str, Buffer] = {}
        owner: dict[int, Storage] = {}
        n_damaged = 0
        growing = growing_operands(case)
        for storage in storages_of(case):
            owner.update((position, storage) for position, _ in storage.members)
            content = contents[storage.name]
            if storage.host:
                contents[storage.name] = content.clone()
                continue
            grows = any(position in growing for position, _ in storage.members)
            buffers[storage.name] = self._device.buffer(content, grows)
            if verify and not torch.equal(buffers[storage.name].read(), content):
                buffers[storage.name] = self._device.buffer(content, grows)
                n_damaged += not torch.equal(buffers[storage.name].read(), content)

        def operand(position: int, spec: TensorSpec) -> torch.Tensor:
            storage, dtype = owner[position], torch_dtype(spec.dtype)
            if storage.host:
                return on_storage(contents[storage.name], dtype, spec.sizes, spec.strides, spec.offset)
            return buffers[storage.name].view(dtype, spec.sizes, spec.strides, spec.offset)

        bound = bind(case, operand, self._device.torch_device, self._seed)
        seed_generators(self._seed, self._device.torch_device)
        bound, note = with_own_forward(case, bound, resolve)
        return Placed(bound, buffers, n_damaged, note)

    def _changed(self, case: Case, job: dict[str, Any], placed: Placed) -> list[int]:
        """Operands whose bytes changed although the CPU changes none of them, where reading back is cheap."""
        contents = read_spool(self._folder / f"{case.key}.inputs", job["index"])
        left = READ_BACK_BYTES
        changed: list[int] = []
        for storage in storages_of(case):
            positions = [position for position, _ in storage.members]
            left -= storage.nbytes
            if storage.host or left < 0 or set(positions) & set(job["mutated"]):
                continue
            if not torch.equal(placed.buffers[storage.name].read(), contents[storage.name]):
                changed += positions
        return changed

    def _aliases(self, case: Case, placed: Placed, produced: list[Produced]) -> dict[str, TensorFact]:
        """The facts of the outputs that lie in an operand's memory, by name."""
        facts = {
            item.name: with_alias(fact_of(item.tensor), item.tensor, case, placed.bound.operands, self._device.address)
            for item in produced
            if item.tensor is not None and case.grads is None
        }
        return {name: fact for name, fact in facts.items() if fact.alias}

    def _check_guards(self, case: Case, job: dict[str, Any], placed: Placed, found: Found) -> None:
        names = operand_names(case)
        for storage in storages_of(case):
            if not storage.host and (
                not placed.buffers[storage.name].guards_intact() or self._strayed(case, job, placed, storage)
            ):
                found.guards_broken[names[storage.members[0][0]]] = None

    def _strayed(self, case: Case, job: dict[str, Any], placed: Placed, storage: Storage) -> bool:
        """Whether a storage that is written changed beside the views that are to be written."""
        positions = {position for position, _ in storage.members}
        if not positions & set(job["mutated"]) or positions & set(growing_operands(case)):
            return False
        if storage.nbytes > READ_BACK_BYTES or not may_stray(storage, job["mutated"]):
            return False
        before = read_spool(self._folder / f"{case.key}.inputs", job["index"])[storage.name]
        return strayed(storage, job["mutated"], before, placed.buffers[storage.name].read())

    # --- beside the compared runs ----------------------------------------------------------------------------------

    def _beside(self, case: Case, job: dict[str, Any], say: Say, found: Found) -> Outcome | None:
        """Observed call and timed calls. Their plain exceptions are noted; a device error is the case's outcome."""
        for step, what in ((self._observe, "observed"), (self._time, "timed")):
            say("steady")
            failure = attempt(lambda step=step: step(case, job, found))  # type: ignore[misc]
            if isinstance(failure, Outcome):
                if failure.device_error:
                    return dataclasses.replace(failure, message=f"while it was {what}: {failure.message}")
                found.notes.append(f"could not be {what}: {failure.error_type}: {failure.message.splitlines()[0]}")
        return None

    def _observe(self, case: Case, job: dict[str, Any], found: Found) -> None:
        placed = self._place(case, job, verify=False)
        op = resolve(case.op)
        seed_generators(self._seed, self._device.torch_device)
        arguments = named_arguments(case.op, placed.bound.args, placed.bound.kwargs)
        watched = OpCall(case.op, arguments, lambda: in_phase(case.phase, case, lambda: call(case, op, placed.bound)))
        for detector in self._detectors:
            detector.watch(watched)

    def _time(self, case: Case, job: dict[str, Any], found: Found) -> None:
        """Times repeated calls on one set of operands. Ops that write an operand see it drift, which costs no accuracy
        of the time; ops that change an operand's shape cannot be repeated and are not timed."""
        op = resolve(case.op)
        if torch.Tag.inplace_view in op.tags:
            found.notes.append("not timed: each call changes the shape that the next one would see")
            return
        placed = self._place(case, job, verify=False)
        bound = placed.bound

        def plain() -> object:
            return op(*bound.args, **bound.kwargs)

        def timed() -> Timing:
            if case.grads is not None:
                return self._device.time(lambda: call(case, op, bound), self._timing_budget_s)
            with torch.no_grad():
                return self._device.time(plain, self._timing_budget_s)

        timing = in_phase(case.phase, case, timed)
        found.timing = dataclasses.replace(timing, first_us=found.first_us)
        found.notes += remarks(timing)

    # --- after -----------------------------------------------------------------------------------------------------

    def _spool_outputs(self, case: Case, found: Found) -> tuple[dict[str, Any], dict[str, tuple[int, int]]]:
        outputs: dict[str, Any] = {}
        contents: dict[str, torch.Tensor] = {}
        for name, tensor in found.first.items():
            elements = flat(tensor)
            contents[name] = elements.view(torch.uint8)
            if name in found.second:
                contents[second_run(name)] = flat(found.second[name]).view(torch.uint8)
            facts = found.facts.get(name, MemoryFacts())
            outputs[name] = {
                "fact": encode(found.aliases.get(name) or fact_of(tensor)),
                "stored_dtype": str(elements.dtype).removeprefix("torch."),
                "n_unwritten": facts.n_unwritten,
                "first_unwritten": facts.first_unwritten,
                "n_not_repeated": facts.n_not_repeated,
                "unwritten": encode(facts.unwritten),
                "not_repeated": encode(facts.not_repeated),
                "n_runs": facts.n_runs,
                "n_runs_differing": facts.n_runs_differing,
            }
        return outputs, write_spool(self._folder / f"{case.key}.outputs", contents)

    def _canary(self) -> str:
        result = attempt(lambda: canary_passes(self._device))
        return "passed" if result is True else "failed"

    def _free_memory(self) -> None:
        gc.collect()
        self._device.free_memory()
