"""Archs, capabilities, releases and versions."""

from __future__ import annotations

import pytest

from audit.knowledge.archs import has_capability, load_releases, newest_release_with_archs, version_tuple
from audit.knowledge.gpus import gpus_of, load_gpus


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("7.13.60800-96e30b429c", (7, 13, 60800)),
        ("2.13.0+rocm7.2", (2, 13, 0)),
        ("v10.1.0", (10, 1, 0)),
        ("", ()),
        ("unknown", ()),
    ],
)
def test_versions_are_read_as_numbers(text, expected):
    assert version_tuple(text) == expected


def test_rocm_seven_thirteen_is_later_than_seven_two_and_earlier_than_ten():
    assert version_tuple("7.2.1") < version_tuple("7.13.0") < version_tuple("10.1.0")


@pytest.mark.parametrize(
    ("capability", "arch", "rocm", "expected"),
    [
        ("hipblaslt_preferred", "gfx942", "", True),
        ("hipblaslt_preferred", "gfx950", "6.4", False),
        ("hipblaslt_preferred", "gfx950", "7.0", True),
        ("hipblaslt_preferred", "gfx950", "10.1", True),
        ("hipblaslt_preferred", "gfx1100", "7.2", False),
        ("hipblaslt_supported", "gfx1100", "7.2", True),
        ("fp8_scaled_mm", "gfx942", "", True),
        ("fp8_scaled_mm", "gfx90a", "", False),
        ("aotriton_flash_and_memeff", "gfx1030", "", False),
        ("nonsense", "gfx942", "", False),
    ],
)
def test_capabilities_go_by_arch_and_rocm(capability, arch, rocm, expected):
    assert has_capability(capability, arch, rocm) is expected


def test_releases_list_archs_or_nothing():
    assert all(arch.startswith("gfx") for release in load_releases() for arch in release.archs)
    assert {release.basis for release in load_releases() if release.archs} == {"collected", "inferred"}
    assert "gfx942" in newest_release_with_archs().archs
    assert "gfx906" not in newest_release_with_archs().archs


def test_gpus_are_found_by_arch_and_numbers_are_numbers():
    mi300x = next(gpu for gpu in gpus_of("gfx942") if gpu.product == "Instinct MI300X")
    assert (mi300x.compute_units, mi300x.bf16_tflops, mi300x.fp8_flavour) == (304, 1307.4, "FNUZ")
    strix = next(gpu for gpu in gpus_of("gfx1151"))
    assert strix.memory_gib is None  # shared with the host, no number
    assert strix.wavefront == 32  # "32 (or 64)" in the source
    assert gpus_of("gfx0") == ()
    assert {gpu.vendor for gpu in load_gpus()} == {"AMD", "NVIDIA"}
