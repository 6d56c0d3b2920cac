"""Faults that nobody reported, of factorisations: free signs and orders are allowed, what does not multiply is not."""

from __future__ import annotations

from typing import Any

import torch

from audit.device.sim.faults import Call
from tests.detection.fault import Fault, healthy, instead, normal, replaced


def _signs(n: int) -> torch.Tensor:
    return torch.where(torch.arange(n) % 2 == 0, -1.0, 1.0)


def _svd_of_other_signs(result: Any) -> Any:
    u, s, vh = result
    flip = _signs(s.size(-1))
    return u * flip, s, vh * flip.unsqueeze(-1)


def _eigenvectors_of_other_signs(result: Any) -> Any:
    w, v = result
    return w, v * _signs(w.size(-1))


def _qr_of_other_signs(result: Any) -> Any:
    q, r = result
    flip = _signs(q.size(-1))
    return q * flip, r * flip.unsqueeze(-1)


def _reversed(result: Any) -> Any:
    return tuple(x.flip(-1) for x in result)


def _first_left_vector(result: Any) -> Any:
    """One vector is turned and its partner is not."""
    u = result[0].clone()
    u[..., 0] *= -1
    return replaced(result, 0, u)


def _not_orthogonal(result: Any) -> Any:
    w, v = result
    v = v.clone()
    v[..., 1] = v[..., 0]
    return w, v


def _last_of_the_batch(call: Call) -> Any:
    q, r = healthy(call)
    r = r.clone()
    r[-1, 0, -1] += 1e-3
    return q, r


def _symmetric(n: int) -> torch.Tensor:
    a = normal(n, n)
    return a + a.T


FAULTS = (
    Fault(
        "svd-signs", "singular vectors of other signs, in pairs (allowed)", ("aten::_linalg_svd.default",),
        lambda call: call.args[0].size(-1) == 12, instead(_svd_of_other_signs),
        lambda: torch.linalg.svd(normal(20, 12), full_matrices=False),
        lambda: torch.linalg.svd(normal(20, 11), full_matrices=False), "another size",
        expected="supported", codes=(),
    ),
    Fault(
        "svd-one-sign", "one left vector of another sign without its partner", ("aten::_linalg_svd.default",),
        lambda call: call.args[0].size(-1) == 14, instead(_first_left_vector),
        lambda: torch.linalg.svd(normal(20, 14), full_matrices=False),
        lambda: torch.linalg.svd(normal(20, 13), full_matrices=False), "another size",
    ),
    Fault(
        "eigenvector-signs", "eigenvectors of other signs (allowed)", ("aten::_linalg_eigh.default",),
        lambda call: call.args[0].size(-1) == 12, instead(_eigenvectors_of_other_signs),
        lambda: torch.linalg.eigh(_symmetric(12)), lambda: torch.linalg.eigh(_symmetric(11)), "another size",
        expected="supported", codes=(),
    ),
    Fault(
        "eigenvectors-dependent", "two eigenvectors are the same", ("aten::_linalg_eigh.default",),
        lambda call: call.args[0].size(-1) == 14, instead(_not_orthogonal),
        lambda: torch.linalg.eigh(_symmetric(14)), lambda: torch.linalg.eigh(_symmetric(13)), "another size",
    ),
    Fault(
        "eigenvalues-reversed", "linalg.eig gives its pairs in another order (allowed)", ("aten::linalg_eig.default",),
        lambda call: call.args[0].size(-1) == 9, instead(_reversed),
        lambda: torch.linalg.eig(normal(9, 9)), lambda: torch.linalg.eig(normal(8, 8)), "another size",
        expected="supported", codes=(),
    ),
    Fault(
        "qr-signs", "QR factors of other signs (allowed)", ("aten::linalg_qr.default",),
        lambda call: call.args[0].dim() == 2, instead(_qr_of_other_signs),
        lambda: torch.linalg.qr(normal(20, 12)), lambda: torch.linalg.qr(normal(2, 20, 12)), "a batch",
        expected="supported", codes=(),
    ),
    Fault(
        "qr-last-of-batch", "one element of R is off in the last matrix of a batch", ("aten::linalg_qr.default",),
        lambda call: call.args[0].dim() == 3 and call.args[0].size(0) > 4, _last_of_the_batch,
        lambda: torch.linalg.qr(normal(5, 20, 12)), lambda: torch.linalg.qr(normal(4, 20, 12)), "four matrices",
    ),
)  # fmt: skip
