"""Singular vectors, eigenvectors, QR and LU factors may have any sign, phase or order, and nothing else."""

from __future__ import annotations

import pytest
import torch

from audit.replay.factors import recomposed
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

def lu(call):
    factors, pivots, info = call.run(*call.args, **call.kwargs)
    return factors if factors.shape[-1] == 4 else factors * 1.001, pivots, info

FAULTS = {
    "aten::linalg_lu_factor_ex.default": lu,
    "aten::_linalg_svd.default": svd,
    "aten::_linalg_eigh.default": eigh,
    "aten::linalg_eig.default": eig,
    "aten::linalg_qr.default": qr,
}
"""
OPS = {
    "linalg_lu_factor_ex": ("P L U", "L beyond 1"),
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


def eliminated(matrix: torch.Tensor, choose: bool) -> dict[str, torch.Tensor]:
    """By the element of largest absolute value, where LAPACK takes the largest sum of both parts; or by the next."""
    matrix, rows = matrix.clone(), []
    for k in range(len(matrix)):
        row = k + int(matrix[k:, k].abs().argmax()) if choose else k
        matrix[[k, row]] = matrix[[row, k]]
        rows.append(row + 1)
        matrix[k + 1 :, k] /= matrix[k, k]
        matrix[k + 1 :, k + 1 :] -= matrix[k + 1 :, k, None] * matrix[k, k + 1 :]
    return {"LU": matrix, "pivots": torch.tensor(rows, dtype=torch.int32)}


def test_pivots_of_complex_matrices_may_be_chosen_by_another_norm(build):
    """So cuSOLVER does, and was once called divergent."""
    matrix = torch.tensor([[3 + 3j, 1, 2], [5, 1j, 4], [1, 2, -3j]])
    case = build.case("aten::linalg_lu_factor_ex.default", build.tensor([3, 3], "complex64"))
    by_sum, by_size = dict(zip(("LU", "pivots"), torch.linalg.lu_factor(matrix), strict=True)), eliminated(matrix, True)
    assert (by_sum["pivots"].tolist(), by_size["pivots"].tolist()) == ([1, 2, 3], [2, 3, 3])
    for outputs in (by_sum, by_size):
        made = recomposed(case, outputs)
        assert torch.allclose(made["P L U"], matrix, atol=1e-5)
        assert made["L beyond 1"].count_nonzero() == 0


def test_a_factorisation_that_chooses_no_pivots_is_told_by_its_lower_factor(build):
    matrix = torch.tensor([[0.1, 1.0], [2.0, 3.0]])
    case = build.case("aten::linalg_lu_factor_ex.default", build.tensor([2, 2]))
    assert float(recomposed(case, eliminated(matrix, False))["L beyond 1"][1, 0]) == pytest.approx(18.99)
