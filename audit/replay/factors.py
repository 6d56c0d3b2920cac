"""Factors of a matrix that are free in signs, phases or order: what is compared in their place.

Two right libraries give other singular vectors, eigenvectors, QR and LU factors; their product is the matrix for all.
So the product, the products of columns with each other, and the eigenvalues whatever their order are compared, each
computed in double precision from the factors as they came, and rounded to their dtype once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import torch

from audit.codec import decode, encode
from audit.comparison import TensorFact
from audit.replay.compare import Expected, eps_of, fact_of, flat
from audit.replay.inputs import torch_dtype
from audit.replay.overload import base_of
from audit.replay.spool import bytes_of
from audit.replay.widen import wide_dtype
from audit.schema import Case

Named: TypeAlias = dict[str, torch.Tensor]

FREE = "free in signs, phases or order: what it gives with the other factors is compared"
#: What was seen of memory and of repeats is told of the factors themselves.
_NO_FACTS = {
    "n_unwritten": 0, "first_unwritten": (), "n_not_repeated": 0, "unwritten": None, "not_repeated": None,
    "n_runs_differing": 0,
}  # fmt: skip
#: A quotient by way of a reciprocal may be a step above the bound of the quotient.
_SLACK = 1e-2
#: Sums of so many powers stand for eigenvalues in any order.
_N_POWERS = 6


def free_outputs(op: str) -> tuple[str, ...]:
    """Names of the outputs of an op that are not compared themselves."""
    return _FORMS[base_of(op)].free if base_of(op) in _FORMS else ()


def recomposed(case: Case, outputs: Mapping[str, torch.Tensor]) -> Named:
    """What is compared in place of the free outputs, by name; nothing where they are not there, or empty."""
    form = _FORMS.get(base_of(case.op))
    if form is None or not set(form.factors) <= outputs.keys() or not any(outputs[n].numel() for n in form.free):
        return {}
    given = [outputs[name].detach().resolve_conj() for name in form.factors]
    made = form.compared(*(factor.to(wide_dtype(factor.dtype)) for factor in given))
    dtype = outputs[form.free[0]].dtype
    return {name: tensor.resolve_conj().to(dtype).contiguous() for name, tensor in made.items()}


def with_terms_that_cancel(expected: Expected) -> Expected:
    """``expected`` of a product of factors: where its terms cancel to 0, a rounding step of the largest is left."""
    values = expected.wide if expected.wide is not None else expected.same
    largest = float(values.abs().max()) if values is not None and values.numel() else 0.0
    step = largest * eps_of(expected.fact.dtype)
    return replace(expected, noise=max(expected.noise, step)) if math.isfinite(step) else expected


def with_recomposed(
    case: Case, outputs: dict[str, Any], spans: Mapping[str, torch.Tensor]
) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """``outputs`` and their bytes as a device left them, and what is compared in place of the free ones."""
    if not free_outputs(case.op):
        return outputs, dict(spans)
    whole = {
        name: spans[name].view(torch_dtype(item["stored_dtype"])).reshape(decode(TensorFact, item["fact"]).sizes)
        for name, item in outputs.items()
    }
    try:
        made = recomposed(case, whole)
    except (RuntimeError, IndexError):  # factors of shapes that do not go together; these are compared, and told
        made = {}
    of_any: dict[str, Any] = next(iter(outputs.values()), {})
    described = {
        name: {**of_any, **_NO_FACTS, "fact": encode(fact_of(t)), "stored_dtype": str(t.dtype).removeprefix("torch.")}
        for name, t in made.items()
    }
    return {**outputs, **described}, {**spans, **{name: bytes_of(flat(t)) for name, t in made.items()}}


def _svd(u: torch.Tensor, s: torch.Tensor, vh: torch.Tensor) -> Named:
    k = s.shape[-1]
    product = (u[..., :k] * s.unsqueeze(-2).to(u.dtype)) @ vh[..., :k, :]
    return {"U S Vh": product, "Uh U": u.mH @ u, "Vh V": vh @ vh.mH}


def _eigh(values: torch.Tensor, vectors: torch.Tensor) -> Named:
    product = (vectors * values.unsqueeze(-2).to(vectors.dtype)) @ vectors.mH
    return {"V L Vh": product, "Vh V": vectors.mH @ vectors}


def _eig(values: torch.Tensor, vectors: torch.Tensor) -> Named:
    inverse, _ = torch.linalg.inv_ex(vectors)
    product = (vectors * values.unsqueeze(-2)) @ inverse
    lengths = torch.linalg.vector_norm(vectors, dim=-2).to(vectors.dtype)
    return {"V L V^-1": product, "lengths of V's columns": lengths, **_eigenvalues(values)}


def _eigenvalues(values: torch.Tensor) -> Named:
    powers = [values.pow(power).sum(-1) for power in range(1, min(values.shape[-1], _N_POWERS) + 1)]
    return {"sums of the eigenvalues' powers": torch.stack(powers, -1)} if powers else {}


def _qr(q: torch.Tensor, r: torch.Tensor) -> Named:
    if not q.numel():  # only R was asked for
        return {"Rh R": r.mH @ r, "R below its diagonal": r.tril(-1)}
    return {"Q R": q @ r, "Qh Q": q.mH @ q, "R below its diagonal": r.tril(-1)}


def _lu(factors: torch.Tensor, pivots: torch.Tensor) -> Named:
    """Which row is the pivot depends on the norm of complex numbers that a library takes, and on ties."""
    order, lower, upper = torch.lu_unpack(factors, pivots)
    return _plu(order, lower, upper)


def _plu(order: torch.Tensor, lower: torch.Tensor, upper: torch.Tensor) -> Named:
    """``lower`` has no element above 1 where the pivots were chosen, or above the root of 2 by the sum of two parts."""
    bound = math.sqrt(2.0) if lower.is_complex() else 1.0
    return {"P L U": order @ lower @ upper, "L beyond 1": (lower.abs() - bound * (1 + _SLACK)).clamp(min=0)}


@dataclass(frozen=True)
class _Form:
    """The names of the factors among the outputs, those of them that are free, and what is made of all."""

    factors: tuple[str, ...]
    free: tuple[str, ...]
    compared: Callable[..., Named]


_SVD = _Form(("U", "S", "Vh"), ("U", "Vh"), _svd)
_EIGH = _Form(("eigenvalues", "eigenvectors"), ("eigenvectors",), _eigh)
_FORMS: dict[str, _Form] = {
    "_linalg_svd": _SVD,
    "linalg_svd": _SVD,
    "_linalg_eigh": _EIGH,
    "linalg_eigh": _EIGH,
    "linalg_eig": _Form(("eigenvalues", "eigenvectors"), ("eigenvalues", "eigenvectors"), _eig),
    "linalg_eigvals": _Form(("output",), ("output",), _eigenvalues),
    "_linalg_eigvals": _Form(("output",), ("output",), _eigenvalues),
    "linalg_qr": _Form(("Q", "R"), ("Q", "R"), _qr),
    "linalg_lu_factor_ex": _Form(("LU", "pivots"), ("LU", "pivots"), _lu),
    "linalg_lu": _Form(("P", "L", "U"), ("P", "L", "U"), _plu),
}
