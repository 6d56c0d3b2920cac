"""What the reference side's runs say about one output: its standard, its values in two precisions, its noise."""

from __future__ import annotations

import torch

from audit.replay.compare import Expected, error_between, fact_of, flat
from audit.replay.noise import Locality, local_noise
from audit.replay.standards import OpStandard
from audit.replay.ulp import spacing_above_one

#: The reference is no better than these: its error is the device's at best.
_DOUBLE = (torch.float64, torch.complex128)


def expected_of(
    name: str,
    tensor: torch.Tensor,
    wide: dict[str, torch.Tensor],
    moved: list[dict[str, torch.Tensor]],
    standard: OpStandard,
    locality: Locality,
) -> Expected:
    kind, why = standard.of_output(name)
    same, fact = flat(tensor), fact_of(tensor)
    if kind == "metadata":
        return Expected(name, fact, kind, why)
    if kind == "exact" or not (same.dtype.is_floating_point or same.dtype.is_complex):
        signed = standard.signed_zeros and tensor.dtype.itemsize > 1  # some flavours of fp8 have no -0.0
        return Expected(name, fact, "exact", why, same=same, signed_zeros=signed)
    reference = wide.get(name)
    step = least_step(tensor.dtype)
    if reference is None or reference.numel() != same.numel():
        return Expected(name, fact, kind, why, same=same, noise=max(change(moved, name, same), step))
    elements = flat(reference)
    largest, rms = error_between(same, elements)
    noise = max(largest, change(moved, name, elements), step)
    changed = [flat(run[name]) for run in moved if name in run and run[name].numel() == elements.numel()]
    if same.dtype in _DOUBLE and locality != "jump":
        locality = "output"  # its own error, which is not known, may be all that makes an element noisy
    local = local_noise(locality, fact.sizes, same.dtype, same, elements, changed, noise)
    return Expected(name, fact, kind, why, same, elements, noise, largest, rms, local=local)


def least_step(dtype: torch.dtype) -> float:
    """The distance of subnormal numbers: a result that small cannot be had more exactly, however it is computed."""
    return float(torch.finfo(dtype).smallest_normal * spacing_above_one(dtype))


def change(moved: list[dict[str, torch.Tensor]], name: str, elements: torch.Tensor) -> float:
    """The worst change of an output when the inputs moved, added up over runs that moved one each; 0 where none was."""
    tensors = (run[name] for run in moved if name in run)
    return sum(error_between(flat(t), elements)[0] for t in tensors if t.numel() == elements.numel())
