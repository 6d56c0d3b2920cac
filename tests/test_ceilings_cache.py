"""Ceilings are measured once for a device and its versions; a broken cache is measured over."""

from __future__ import annotations

from pathlib import Path

import pytest

from audit.ceilings_cache import cached_ceilings
from audit.schema import Ceilings, DeviceInfo, Rate

DEVICE = DeviceInfo("cuda", "NVIDIA H200", "sm_90", {"compute_units": "132"})
TORCH = {"torch": "2.11.0"}
CEILINGS = Ceilings(Rate(3900.0, 12.0, 30), {"bfloat16": Rate(700.0, 9.0, 20)}, Rate(2.5, 0.1, 100))


BELOW_ZERO = '{"copy_gbs":{"median":-4,"iqr":0,"n":9},"gemm_tflops":{},"launch_us":{"median":4,"iqr":0,"n":9}}'


class Meter:
    def __init__(self, ceilings: Ceilings | None = CEILINGS) -> None:
        self.n_measured = 0
        self._ceilings = ceilings

    def __call__(self) -> Ceilings | None:
        self.n_measured += 1
        return self._ceilings


def test_the_second_time_they_come_from_the_cache(tmp_path: Path) -> None:
    meter = Meter()
    found = [cached_ceilings(DEVICE, TORCH, meter, tmp_path / "new") for _ in range(2)]
    assert found == [CEILINGS, CEILINGS]
    assert meter.n_measured == 1


def test_another_torch_or_another_device_is_measured_anew(tmp_path: Path) -> None:
    meter = Meter()
    cached_ceilings(DEVICE, TORCH, meter, tmp_path)
    cached_ceilings(DEVICE, {"torch": "2.12.0"}, meter, tmp_path)
    cached_ceilings(DEVICE, {**TORCH, "ROCBLAS_USE_HIPBLASLT": "0"}, meter, tmp_path)
    cached_ceilings(DeviceInfo("cuda", "NVIDIA H100", "sm_90"), TORCH, meter, tmp_path)
    assert meter.n_measured == 4


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        "null",
        '{"copy_gbs": 1}',
        '{"copy_gbs": {"median": "x", "iqr": 0, "n": 1}}',
        "[" * 5000,
        "\udcff",
        BELOW_ZERO,
    ],
    ids=["empty", "cut", "a list", "null", "no rate", "a word", "deep", "not UTF-8", "below zero"],
)
def test_a_broken_file_is_measured_over(content: str, tmp_path: Path) -> None:
    cached_ceilings(DEVICE, TORCH, Meter(), tmp_path)
    (file,) = tmp_path.iterdir()
    file.write_text(content, encoding="utf-8", errors="surrogateescape")
    meter = Meter()
    assert cached_ceilings(DEVICE, TORCH, meter, tmp_path) == CEILINGS
    assert meter.n_measured == 1


def test_what_could_not_be_measured_is_not_kept(tmp_path: Path) -> None:
    assert cached_ceilings(DEVICE, TORCH, Meter(None), tmp_path) is None
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    assert cached_ceilings(DEVICE, TORCH, Meter(), tmp_path / "file" / "cache") == CEILINGS


def test_a_user_without_a_home_has_no_cache_and_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", homeless)
    assert cached_ceilings(DEVICE, TORCH, Meter()) == CEILINGS
