"""Judges a product, healthy or not, as an audit does: the reference in parts, then every rule on accuracy."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from audit.comparison import Comparison
from audit.replay.compare import Expected, compare, fact_of
from audit.replay.sampled.linear_output import LinearOutput, prepared
from audit.replay.sampled.products import product_of
from audit.replay.stream import Stream
from audit.rules import accuracy, whole_output
from audit.rules.thresholds import DEFAULT
from audit.run_records import RunHeader
from audit.schema import Case, DeviceInfo, Measurement, Outcome, Source
from tests.sensitivity.products import FAULTS, Trial

_RULES = (accuracy.beyond_allowance, accuracy.masks, whole_output.sketched)
_OK = Outcome("ok")
_CASE = Case("k", "aten::mm.default", ())
_HEADER = RunHeader("simulated", Source("script", "-"), DeviceInfo("sim", "-", "-"), {}, {}, "-", "-", 1, 1)


def reference_of(trial: Trial, seed: int, bias: Tensor | None = None) -> LinearOutput:
    arguments = {"self": trial.left, "mat2": trial.right}
    if bias is not None:
        arguments = {"self": bias, "mat1": trial.left, "mat2": trial.right}
    form = product_of("mm" if bias is None else "addmm", arguments, torch.bfloat16)
    assert form is not None
    return prepared(form, Stream(seed, "sensitivity"))


def compared(reference: LinearOutput, out: Tensor) -> Comparison:
    expected = Expected("output", fact_of(out), "numeric", sampled=reference)
    return compare(expected, out.view(-1), fact_of(out))


def codes(comparison: Comparison) -> tuple[str, ...]:
    """Of the findings that call the output divergent."""
    measurement = Measurement("k", _OK, _OK, (comparison,))
    found = (finding for rule in _RULES for finding in rule(_CASE, measurement, _HEADER, DEFAULT))
    return tuple(finding.code for finding in found if finding.status == "divergent")


@dataclass(frozen=True)
class Found:
    """What was said of one output; ``size`` 0 for a healthy one."""

    fault: str
    size: float
    codes: tuple[str, ...]


def judged(seed: int, sizes: tuple[int, int, int], sweep: bool) -> Iterator[Found]:
    """A healthy output, and one of each fault: of the first size, or of all."""
    trial = Trial.make(seed, *sizes)
    reference = reference_of(trial, seed)
    yield Found("healthy", 0.0, codes(compared(reference, trial.healthy())))
    deviation = float(trial.product[0].std())
    for name, fault in FAULTS.items():
        for size in fault.sizes if sweep else (fault.whole or fault.sizes[0],):
            against = reference
            if name == "bias dropped":
                bias = torch.randn(sizes[2], generator=trial.generator) * (deviation * size)
                against = reference_of(trial, seed, bias.bfloat16())
            yield Found(name, size, codes(compared(against, fault.make(trial, size))))


@dataclass(frozen=True)
class Cost:
    """Seconds: to prepare the reference, noise included, to compare a whole output, and of the full product in fp64."""

    prepare: float
    compare: float
    full: float

    @property
    def share(self) -> float:
        return (self.prepare + self.compare) / self.full


def costs(trial: Trial, seed: int, n_turns: int = 3) -> tuple[Cost, Cost]:
    """Medians of turns in which all three were measured after each other: by the clock, and CPU time of all threads."""
    out = trial.healthy()
    left, right = trial.left.double(), trial.right.double()
    turns = []
    for _ in range(n_turns):
        stamps = [(time.perf_counter(), time.process_time())]
        reference = reference_of(trial, seed)
        stamps.append((time.perf_counter(), time.process_time()))
        compared(reference, out)
        stamps.append((time.perf_counter(), time.process_time()))
        torch.mm(left, right)
        stamps.append((time.perf_counter(), time.process_time()))
        turns.append(stamps)
    by_clock, of_cpu = (
        Cost(*(statistics.median(turn[step + 1][which] - turn[step][which] for turn in turns) for step in range(3)))
        for which in range(2)
    )
    return by_clock, of_cpu
