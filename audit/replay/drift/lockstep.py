"""Plays a tape on the device, on the CPU and in fp64, call by call, and measures what each call adds.

Every call waits for the device, so that what goes wrong only while calls overlap is not seen.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from audit.device.guarded import host_copy
from audit.device.protocol import Device
from audit.device.steering import steered
from audit.drift_records import Cause, DriftEnd, DriftStarted, DriftStep
from audit.replay.drift.call_error import CallError, CallReference, outputs_of
from audit.replay.drift.liveness import last_backwards, last_uses
from audit.replay.drift.sides import DeviceSide, Side, WideSide, on_device, run_once
from audit.replay.execute import in_phase
from audit.replay.host_memory import available_bytes
from audit.replay.inputs import InputError, torch_dtype
from audit.replay.outcomes import attempt
from audit.replay.overload import resolve, written_operands
from audit.replay.standards import standard_of
from audit.replay.widen import wide_dtype
from audit.replay.work import operand_bytes
from audit.schema import Outcome
from audit.tape import VALUES_FILE, Again, Fed, Leaf, Memory, Record, TapeCall, TapeEnd, read_tape

#: From here on a call is looked at closely: alone, and with copies of its inputs. Half of what the rules allow.
SUSPICIOUS_RATIO = 4.0
#: How far the mean magnitude of a result may be from what the program had, in square roots of its dtype's eps: another
#: number of threads sums in another order. Beyond, this is another computation.
_FAITHFUL = 4.0

#: Operands and results of one call are held so many times over, half of them in fp64.
_COPIES = 12
#: So much is left to the system.
_SPARE_BYTES = 256 << 20

Say = Callable[[DriftStarted | DriftStep], None]


class Unfaithful(Exception):
    """The CPU, playing the tape, has come to other values than the program had: the tape lacks something."""


class LockStep:
    """One tape on three sides. ``say`` is told of each call before the device is touched, and of each step after it."""

    def __init__(self, folder: Path, device: Device, say: Say) -> None:
        self._folder = folder
        self._device = device
        self._say = say
        self._ours, self._wide, self._theirs = Side(), WideSide(), DeviceSide(device)
        self._made_by: dict[int, int] = {}  # address of a storage on the device -> the step that wrote it last
        self._tried: Counter[str] = Counter()
        self._index = 0
        self._uses, self.n_calls = last_uses(read_tape(folder))
        self._backwards = last_backwards(read_tape(folder))
        values = folder / VALUES_FILE
        self._n_bytes = values.stat().st_size
        self._content = torch.empty(0, dtype=torch.uint8)
        if self._n_bytes:  # mapped: what is not looked at is not read
            self._content = torch.from_file(str(values), shared=False, size=self._n_bytes, dtype=torch.uint8)

    def play(self, enough: Callable[[], bool] = lambda: False) -> DriftEnd:
        """The whole tape, or as much as can be."""
        reason, n_unseen = "", 0
        try:
            for record in read_tape(self._folder):
                if isinstance(record, TapeEnd):
                    reason, n_unseen = record.reason, record.n_unseen
                elif isinstance(record, TapeCall):
                    if enough():
                        reason = "the time for it was spent"
                        break
                    if message := _shortage(record):
                        reason = message
                        break
                    self._step(record)
                    self._let_go()
                    self._index += 1
                else:
                    self._meet(record)
        except Unfaithful as found:
            reason = str(found)
        except InputError as error:
            reason = f"the tape cannot be played: {error}"
        return DriftEnd(self.n_calls, self._index, n_unseen, self._n_bytes, reason)

    def _let_go(self) -> None:
        """Gives back what no later call asks for."""
        numbers, graphs = self._uses.pop(self._index, ()), self._backwards.pop(self._index, ())
        for side in self._sides:
            for number in numbers:
                side.drop(number)
            for graph in graphs:
                side.drop_graph(graph)

    @property
    def _sides(self) -> tuple[Side, ...]:
        return self._ours, self._wide, self._theirs

    def _meet(self, record: Record) -> None:
        for side in self._sides:
            if isinstance(record, Memory):
                side.remember(record, self._content[record.start : record.start + record.nbytes])
            elif isinstance(record, Leaf):
                side.see(record)
            elif isinstance(record, Again):
                side.see_again(record)

    # --- one call --------------------------------------------------------------------------------------------------

    def _step(self, call: TapeCall) -> None:
        case = call.case
        phase = case.phase if call.backward_of is None else "backward"
        step = DriftStep(self._index, case.key, case.op, phase, call.module, call.source)
        if call.fed:
            for side in self._sides:
                self._feed(side, call)
            self._note_writers(call)
            self._say(replace(step, fed=call.why_fed))
            return
        self._say(DriftStarted(self._index, case.op))
        theirs = [host_copy(self._on_host(tensor)) for tensor in self._theirs.operands(call)]
        ours = [host_copy(tensor) for tensor in self._ours.operands(call)]
        before = self._before(call)
        self._play_on_cpu(call)
        lost = self._play_wide(call)
        produced = attempt(lambda: self._theirs.run(call))
        if isinstance(produced, Outcome):
            self._carry_on(call)
            self._say(replace(step, failure=produced, before=before, lost=lost))
            return
        outputs = outputs_of(call, produced, self._theirs.operands(call))
        given = {name: host_copy(self._on_host(tensor)) for name, tensor in outputs.items()}
        error, noise, eps, n_elements, n_different = self._accumulated(call)
        step = replace(
            step, before=before, lost=lost, error=error, noise=noise, eps=eps, n_elements=n_elements,
            n_different=n_different, layout=_other_strides(theirs, ours),
        )  # fmt: skip
        self._say(self._judged_alone(call, step, theirs, ours, given))
        self._note_writers(call)

    def _judged_alone(
        self,
        call: TapeCall,
        step: DriftStep,
        theirs: list[torch.Tensor],
        ours: list[torch.Tensor],
        given: dict[str, torch.Tensor],
    ) -> DriftStep:
        """The call on the device's own inputs and, where that is news, on the CPU's."""
        if standard_of(call.case).uninitialised:
            return step
        found = CallReference(call, theirs).error_of(given)
        step = replace(step, ratio=found.ratio, wrong=found.wrong, worst=found.worst)
        self._tried[call.case.key] += 1
        suspicious = _is_suspicious(found)
        if self._tried[call.case.key] > 1 and not suspicious:
            return step
        alone = self._alone(call, ours)
        if alone is None:
            return step
        step = replace(step, alone_ratio=alone.ratio, alone_wrong=alone.wrong, alone_error=alone.error)
        if suspicious and not _is_suspicious(alone):
            step = replace(step, cause=self._cause(call, theirs, ours))
        return step

    def _alone(self, call: TapeCall, inputs: Sequence[torch.Tensor]) -> CallError | None:
        """The device on copies of these inputs in fresh memory; None where it fails there."""
        case = call.case

        def run() -> dict[str, torch.Tensor]:
            self._device.begin_case(case.op, case.phase)
            placed = self._theirs.operands(call)
            operands = [self._beside(place, value) for place, value in zip(placed, inputs, strict=True)]
            with steered(case.settings):
                op = resolve(case.op)
                produced, _ = in_phase(
                    case.phase, case, lambda: run_once(call, op, operands, self._device.torch_device, case)
                )
            self._device.synchronize()
            outputs = outputs_of(call, produced, operands)
            return {name: host_copy(self._on_host(tensor)) for name, tensor in outputs.items()}

        outputs = attempt(run)
        return None if isinstance(outputs, Outcome) else CallReference(call, inputs).error_of(outputs)

    def _beside(self, place: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        """A copy in fresh memory, on the device or on the host as ``place`` is."""
        copy = host_copy(value)
        return copy if place.device.type != self._device.torch_device.type else on_device(self._device, copy)

    def _cause(self, call: TapeCall, theirs: list[torch.Tensor], ours: list[torch.Tensor]) -> Cause:
        """What about its real inputs makes a call go wrong that is right on the CPU's."""
        again = self._alone(call, theirs)
        if again is None or not _is_suspicious(again):
            return "memory or order"
        packed = [_with_strides_of(value, model) for value, model in zip(theirs, ours, strict=True)]
        laid_out = self._alone(call, packed)
        return "layout" if laid_out is not None and not _is_suspicious(laid_out) else "values"

    # --- the sides -------------------------------------------------------------------------------------------------

    def _play_on_cpu(self, call: TapeCall) -> None:
        found = attempt(lambda: self._ours.run(call))
        if isinstance(found, Outcome):
            raise Unfaithful(f"the CPU raised at {call.case.op}, which the program ran: {found.message[:200]}")
        for number, magnitude in call.magnitudes:
            value = self._ours.value(number)
            wide = torch.complex128 if value.is_complex() else torch.float64
            flat = value.detach().resolve_conj().resolve_neg().reshape(-1)
            mean = float(flat[:: max(1, flat.numel() // (1 << 20))].to(wide).abs().mean())
            allowed = _FAITHFUL * math.sqrt(torch.finfo(value.dtype).eps) * abs(magnitude)
            if abs(mean - magnitude) > allowed and math.isfinite(mean) == math.isfinite(magnitude):
                raise Unfaithful(
                    f"at {call.case.op} in {call.module or 'the program'} the tape no longer plays what the program "
                    f"did: mean magnitude {mean:.4g}, the program had {magnitude:.4g}"
                )

    def _play_wide(self, call: TapeCall) -> str:
        """In fp64; choices (integers, masks) are the CPU's, so that both go the same way. Why it was lost, or empty."""
        found = attempt(lambda: self._wide.run(call))
        lost = ""
        if isinstance(found, Outcome):
            lost = f"no fp64 form on the CPU: {found.error_type} {found.message.partition(chr(10))[0][:120]}"
        for number in self._numbers(call):
            value = self._ours.value(number)
            if not lost and self._wide.value(number).shape != value.shape:
                lost = "its bytes are seen as another dtype"
            if lost:
                self._wide.take(number, value)
            elif not (value.is_floating_point() or value.is_complex()):
                self._choose(number, value)
            elif self._wide.value(number).dtype != wide_dtype(value.dtype):
                self._wide.take(number, self._wide.value(number))  # zeros in torch's default dtype
        return lost

    def _choose(self, number: int, value: torch.Tensor) -> None:
        """Integers and masks of the CPU's own dtypes in place of those that fp64 came to."""
        wide = self._wide.value(number)
        if not torch.equal(wide, value):
            _write(wide, value)

    def _carry_on(self, call: TapeCall) -> None:
        """The device failed here: it goes on with the CPU's values, so that what follows is still looked at."""
        for number in self._numbers(call):
            self._theirs.take(number, host_copy(self._ours.value(number)))

    def _feed(self, side: Side, call: TapeCall) -> None:
        """Gives a side what the program's own run gave."""
        positions = written_operands(call.case)
        targets = [call.operands[position] for position in positions if position < len(call.operands)]
        in_place = bool(targets) and len(call.fed) == len([n for n in call.results if n is not None])
        rest = list(call.fed)
        results = [number for number in call.results if number is not None]
        for position, fed in enumerate(rest):
            value = self._fed_value(fed)
            if in_place and position < len(targets):
                side.write(targets[position], value)
                side.alias(results[position], targets[position])
            elif fed.number in results:
                side.take(fed.number, value)
            else:
                side.write(fed.number, value)

    def _fed_value(self, fed: Fed) -> torch.Tensor:
        raw = self._content[fed.start : fed.start + fed.nbytes].clone()
        return raw.view(torch_dtype(fed.dtype)).reshape(fed.sizes)

    def _numbers(self, call: TapeCall) -> list[int]:
        return [number for number in call.results if number is not None]

    def _on_host(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor if tensor.device.type == "cpu" else self._device.to_host(tensor)

    # --- what accumulates ------------------------------------------------------------------------------------------

    def _accumulated(self, call: TapeCall) -> tuple[float | None, float | None, float, int, int]:
        """Relative error of the device and of the CPU against fp64, the coarsest eps, the number
        of elements, and choices that differ."""
        device = cpu = scale = eps = 0.0
        n_elements = n_different = 0
        if standard_of(call.case).uninitialised:
            return None, None, eps, 0, 0
        written = [call.operands[position] for position in written_operands(call.case)]
        for number in dict.fromkeys((*self._numbers(call), *written)):
            ours, theirs = self._ours.value(number), self._on_host(self._theirs.value(number))
            if ours.shape != theirs.shape:
                continue
            if not ours.is_floating_point():
                n_different += int((ours != theirs).sum()) if not ours.is_complex() else 0
                continue
            wide = self._wide.value(number).double()
            for_device, for_cpu, size = _squares(theirs, ours, wide)
            device, cpu, scale = device + for_device, cpu + for_cpu, scale + size
            n_elements += ours.numel()
            eps = max(eps, float(torch.finfo(ours.dtype).eps))
        if not scale:
            return None, None, eps, n_elements, n_different
        return math.sqrt(device / scale), math.sqrt(cpu / scale), eps, n_elements, n_different

    def _note_writers(self, call: TapeCall) -> None:
        written = [call.operands[position] for position in written_operands(call.case)]
        for number in (*self._numbers(call), *written):
            self._made_by[number] = self._index

    def _before(self, call: TapeCall) -> tuple[int, ...]:
        return tuple(dict.fromkeys(self._made_by[n] for n in call.operands if n in self._made_by))


def _shortage(call: TapeCall) -> str:
    """Why memory does not do for the next call, or an empty string: what seven runs of it read and give."""
    needed = _COPIES * operand_bytes(call.case)
    there = available_bytes()
    if needed + _SPARE_BYTES <= there:
        return ""
    return (
        f"memory: {call.case.op} in {call.module or 'the program'} needs {needed / 2**30:.1f} GiB here for its "
        f"copies in fp64, and {there / 2**30:.1f} GiB are free"
    )


def _is_suspicious(error: CallError) -> bool:
    return error.wrong > 0 or (error.ratio is not None and error.ratio > SUSPICIOUS_RATIO)


def _squares(theirs: torch.Tensor, ours: torch.Tensor, wide: torch.Tensor) -> tuple[float, float, float]:
    """Sums of squares over what is finite everywhere: the device's error, the CPU's, the values themselves."""
    theirs, ours = theirs.double(), ours.double()
    finite = torch.isfinite(theirs) & torch.isfinite(ours) & torch.isfinite(wide)
    if not bool(finite.all()):
        theirs, ours, wide = theirs[finite], ours[finite], wide[finite]
    return float((theirs - wide).square().sum()), float((ours - wide).square().sum()), float(wide.square().sum())


def _other_strides(theirs: Iterable[torch.Tensor], ours: Iterable[torch.Tensor]) -> tuple[str, ...]:
    return tuple(
        f"operand {position} has strides {tuple(there.stride())}, on the CPU {tuple(here.stride())}"
        for position, (there, here) in enumerate(zip(theirs, ours, strict=True))
        if there.shape == here.shape and there.numel() > 1 and there.stride() != here.stride()
    )


def _with_strides_of(value: torch.Tensor, model: torch.Tensor) -> torch.Tensor:
    if value.shape != model.shape:
        return value
    result = host_copy(model)
    _write(result, value)
    return result


def _write(target: torch.Tensor, value: torch.Tensor) -> None:
    """Where a dimension has no stride, all its elements are one: it is written once."""
    for dim, (size, stride) in enumerate(zip(target.shape, target.stride(), strict=True)):
        if stride == 0 and size > 1:
            target, value = target.narrow(dim, 0, 1), value.narrow(dim, 0, 1)
    target.copy_(value)
