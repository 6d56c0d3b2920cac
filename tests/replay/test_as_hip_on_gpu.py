"""Whole cases on the GPU at hand while torch describes itself as a ROCm build: the HIP branches around real kernels."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from audit.codec import decode
from audit.comparison import Comparison
from audit.detect.registry import DETECTORS
from audit.device.gpu import GpuDevice
from audit.replay.measure import DeviceSide
from audit.replay.reference import Reference
from audit.schema import Outcome

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no HIP or CUDA GPU here"),
]


@pytest.fixture
def as_hip(monkeypatch: pytest.MonkeyPatch) -> GpuDevice:
    """The GPU here under the version and the properties of an MI300X under ROCm 7.2."""
    real = torch.cuda.get_device_properties(0)
    shown = {
        name: getattr(real, name) for name in ("multi_processor_count", "total_memory", "warp_size", "L2_cache_size")
    }
    properties = SimpleNamespace(
        name="AMD Instinct MI300X", gcnArchName="gfx942:sramecc+:xnack-", major=9, minor=4, **shown
    )
    monkeypatch.setattr(torch.version, "hip", "7.2.53211")
    monkeypatch.setattr(torch.version, "cuda", None)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda *_: properties)
    return GpuDevice()


def test_a_product_is_measured_and_compared_as_on_a_hip_device(as_hip: GpuDevice, build: Any, tmp_path: Path) -> None:
    case = build.case("aten::mm.default", build.tensor([64, 32]), build.tensor([32, 16], storage=1))
    reference = Reference(None, tmp_path, seed=0)
    job = reference.prepare(case)
    side = DeviceSide(as_hip, [make() for make in DETECTORS], tmp_path, 0, (0x5B, 0xA4), 0.05, n_threads=2)
    answer = side.measure(case, job, say=lambda stage: None)
    [compared] = reference.compare(case.key, answer["outputs"], tmp_path / f"{case.key}.outputs", answer["index"])
    assert (as_hip.info().backend, as_hip.info().arch) == ("hip", "gfx942")
    assert (answer["outcome"], answer["canary"]) == ({"kind": "ok"}, "passed")
    assert decode(Comparison, compared).worst_ratio < 8
    assert answer["timing"]["n"] >= 5


def test_a_hip_error_raised_beside_real_kernels_is_one_of_the_device(
    as_hip: GpuDevice, build: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = build.case("aten::neg.default", build.tensor([8]))
    job = Reference(None, tmp_path, seed=0).prepare(case)

    def fails() -> None:
        raise RuntimeError(
            "HIP error: an illegal memory access was encountered\nconsider passing AMD_SERIALIZE_KERNEL=3"
        )

    monkeypatch.setattr(as_hip, "synchronize", fails)
    side = DeviceSide(as_hip, [], tmp_path, 0, (0x5B, 0xA4), 0.01, n_threads=1)
    outcome = decode(Outcome, side.measure(case, job, say=lambda stage: None)["outcome"])
    assert (outcome.kind, outcome.device_error, outcome.missing_kernel) == ("raised", True, False)
