"""Slow or falling back on a real GPU: what was planted is found, what is healthy is not called so. Minutes long."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import torch

from audit.rules.judge import judge
from audit.store import read_run
from audit.verdicts import Judgement

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no HIP or CUDA GPU here"),
    pytest.mark.timeout(1800),
]

HERE = Path(__file__).parent
#: What each planted call is found by; an op of the program's own is a root cause above all cases.
PLANTED = {
    ("aten::scaled_dot_product_attention.default", "bfloat16"): "FBK302",
    ("aten::convolution.default", "bfloat16"): "FBK302",
    ("aten::mm.default", "float64"): "SPD404",
    ("aten::scatter_add.default", "bfloat16"): "SPD403",
    ("aten::index_put.default", "float32"): "SPD403",
    ("aten::clone.default", "bfloat16"): "SPD403",
}
#: Classes of the two hundred healthy calls, and how long one takes at least to be called large, in microseconds.
CLASSES, LARGE_US = ("gemm", "attention", "convolution", "normalization", "elementwise"), 15.0


def audited(program: str, folder: Path) -> Judgement:
    """The judgement of a real audit of the program on the GPU here."""
    command = [sys.executable, "-m", "audit", "run", str(HERE / program), "--device", "cuda", "-o", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1500)
    assert done.returncode == 0, done.stderr[-2000:]
    return judge(read_run(folder))


def test_what_was_planted_is_found(tmp_path: Path) -> None:
    judgement = audited("planted.py", tmp_path)
    cases = {case.key: case for case in judgement.run.cases}
    found = {
        (verdict.op, verdict.signature.partition("[")[0]): {f.code for f in verdict.findings if f.status != "supported"}
        for verdict in judgement.verdicts
        if cases[verdict.key].args
    }
    short = {"bfloat16": "bf16", "float64": "f64", "float32": "f32"}
    missed = {op: found for (op, dtype), code in PLANTED.items() if code not in found.get((op, short[dtype]), set())}
    assert not missed
    assert [cause.code for cause in judgement.root_causes] == ["FBK301"]


def test_what_is_healthy_is_not_called_slow(tmp_path: Path) -> None:
    judgement = audited("healthy.py", tmp_path)
    large = [v for v in judgement.verdicts if v.op_class in CLASSES and (v.device_us or 0.0) >= LARGE_US]
    statuses = Counter(verdict.status for verdict in large)
    assert len(large) >= 200
    assert statuses["slow"] + statuses["falling_back"] <= 0.01 * len(large), statuses
    assert statuses["inconclusive"] == 0
