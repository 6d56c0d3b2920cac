"""Singular vectors, eigenvectors and QR factors may have any sign, phase or order, and nothing else."""

from __future__ import annotations

import pytest

from audit.rules.accuracy import beyond_allowance, metadata
from audit.rules.thresholds import DEFAULT
from audit.schema import Values

#: What is right is done to matrices of four rows, what is wrong to those of five.
FAULTS = """
import torch

def signs(n):
    return torch.tensor([1.0, -1.0] * n)[:n]

def svd(call):
    u, s, vh = call.run(*call.args, **call.kwargs)
    flip = signs(s.shape[-1])
    if u.shape[-2] == 6:
        return u[..., :3], s, vh
    return u * flip, s, vh * flip[:, None] if u.shape[-2] == 4 else vh

def eigh(call):
    values, vectors = call.run(*call.args, **call.kwargs)
    return values, vectors * signs(4) if vectors.shape[-1] == 4 else vectors[:, [1, 0, 2, 3, 4]]

def eig(call):
    values, vectors = call.run(*call.args, **call.kwargs)
    order = torch.arange(vectors.shape[-1] - 1, -1, -1)
    phase = torch.polar(torch.ones(vectors.shape[-1]), torch.arange(vectors.shape[-1]).float()).to(vectors.dtype)
    return values[order], (vectors * phase)[:, order] if vectors.shape[-1] == 4 else vectors

def qr(call):
    q, r = call.run(*call.args, **call.kwargs)
    flip = signs(q.shape[-1])
    return q * flip, r * flip[:, None] if q.shape[-1] == 4 else r

FAULTS = {
    "aten::_linalg_svd.default": svd,
    "aten::_linalg_eigh.default": eigh,
    "aten::linalg_eig.default": eig,
    "aten::linalg_qr.default": qr,
}
"""
OPS = {
    "_linalg_svd": ("U S Vh", "Uh U", "Vh V"),
    "_linalg_eigh": ("V L Vh", "Vh V"),
    "linalg_eig": ("V L V^-1", "lengths of V's columns", "sums of the eigenvalues' powers"),
    "linalg_qr": ("Q R", "Qh Q", "R below its diagonal"),
}
NORMAL = {0: Values(minimum=-3.0, maximum=3.0, mean=0.0, std=1.0)}


@pytest.fixture(scope="module")
def cases(build):
    return {
        (op, n): build.case(f"aten::{op}.default", build.tensor([n, n]), values=NORMAL)
        for op in OPS
        for n in (4, 5, 6)
        if n < 6 or op == "_linalg_svd"
    }


@pytest.fixture(scope="module")
def run(cases, fault_file, replay):
    return replay(list(cases.values()), device=fault_file(FAULTS))


def wrong(run, case, rule=beyond_allowance):
    return [finding.data["output"] for finding in rule(case, run.of(case), None, DEFAULT)]


@pytest.mark.parametrize("op", OPS)
def test_other_signs_phases_and_orders_are_no_difference(run, cases, op):
    measured = run.of(cases[op, 4])
    compared = {comparison.name for comparison in measured.comparisons if comparison.standard == "numeric"}
    assert wrong(run, cases[op, 4]) == []
    assert set(OPS[op]) <= compared


@pytest.mark.parametrize("op", OPS)
def test_factors_that_do_not_give_the_matrix_are_found(run, cases, op):
    assert OPS[op][0] in wrong(run, cases[op, 5])


def test_factors_of_another_shape_are_found(run, cases):
    assert "U" in wrong(run, cases["_linalg_svd", 6], metadata)
