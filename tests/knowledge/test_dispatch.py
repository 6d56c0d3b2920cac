"""The dispatch table and the script that derives it."""

from __future__ import annotations

import csv
import io
from importlib.metadata import PackageNotFoundError, distribution
from importlib.resources import files
from pathlib import Path

import pytest

from audit.knowledge.derive_dispatch import YAML, classify, parse, write
from audit.knowledge.dispatch import load_dispatch

FUNCTIONS = """
- func: own.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)
  structured: True
  dispatch:
    CPU, CUDA: own_out  # NB: a comment
    MPS: own_out_mps

- func: own(Tensor self) -> Tensor
  structured_delegate: own.out
  dispatch:
    SparseCPU, SparseCUDA: own_sparse
  tags: core

- func: made_of_others(Tensor self) -> Tensor
  variants: function

- func: everywhere(Tensor self) -> Tensor
  dispatch:
    CompositeExplicitAutograd: everywhere
  autogen: everywhere.out, everywhere_copy

- func: host_only(Tensor self) -> Tensor
  dispatch:
    CPU: host_only
  autogen: host_only.out

- func: sparse_only(Tensor self) -> Tensor
  dispatch:
    SparseCPU: a
    SparseCUDA: b

- func: sum_of.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)
  structured: True
  ufunc_inner_loop:
    Generic: add (AllAndComplex, BFloat16)
  dispatch:
    SparseCPU: c
"""


def test_each_kind_of_entry_is_told_apart():
    assert {op: kind for op, kind, _ in classify(parse(FUNCTIONS))} == {
        "aten::own.out": "cuda",
        "aten::own.default": "cuda",
        "aten::made_of_others.default": "composite",
        "aten::everywhere.default": "composite",
        "aten::everywhere.out": "composite",
        "aten::everywhere_copy.default": "composite",
        "aten::host_only.default": "none",
        "aten::host_only.out": "none",
        "aten::sparse_only.default": "other layout",
        "aten::sum_of.out": "cuda",
    }


def test_the_kernel_is_the_one_of_the_cuda_key():
    assert ("aten::own.default", "cuda", "own_out") in set(classify(parse(FUNCTIONS)))


def test_the_table_is_sorted_and_has_its_source():
    target = io.StringIO()
    write(target, parse(FUNCTIONS), "9.9.9")
    table = list(csv.DictReader(target.getvalue().splitlines()))
    assert [row["op"] for row in table] == sorted(row["op"] for row in table)
    assert {row["torch_version"] for row in table} == {"9.9.9"}


def test_the_shipped_table_knows_the_ops_that_models_use():
    table = load_dispatch()
    kinds = [table[f"aten::{op}"].kind for op in ("addmm.default", "add.Tensor", "_softmax.default", "sum.default")]
    assert kinds == ["cuda", "cuda", "cuda", "composite"]
    assert table["aten::mkldnn_linear.default"].kind == "none"


def test_the_shipped_table_is_what_the_script_derives_from_its_torch():
    try:
        torch = distribution("torch")
    except PackageNotFoundError:
        pytest.skip("needs torch to compare with")
    version = load_dispatch()["aten::addmm.default"].torch_version
    if torch.version.split("+")[0] != version:
        pytest.skip(f"the table was made from torch {version}, here is {torch.version}")
    target = io.StringIO()
    write(target, parse(Path(str(torch.locate_file(YAML))).read_text()), version)
    assert target.getvalue() == files("audit.knowledge").joinpath("dispatch.csv").read_text()
