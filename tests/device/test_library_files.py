"""What the GPU libraries read and write in a device child, and what a child says of their state."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from audit.device.library_state import library_state
from audit.device.places import Place, with_library_files
from audit.rules.preflight import preflight
from audit.schema import DeviceInfo


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("USER_DB_PATH", "CUSTOM_CACHE_DIR", "NAIVE_TIMEOUT", "FIND_MODE"):
        monkeypatch.delenv(f"MIOPEN_{name}", raising=False)
    for name in ("ENABLED", "TUNING", "FILENAME"):
        monkeypatch.delenv(f"PYTORCH_TUNABLEOP_{name}", raising=False)


@pytest.fixture
def rocm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "hip", "7.2.53211")
    monkeypatch.setattr(torch.version, "cuda", None)


@pytest.mark.usefixtures("rocm")
def test_miopen_has_private_folders_that_are_there_and_waits_for_its_naive_kernels(tmp_path: Path) -> None:
    place = with_library_files(Place("hip", {"HIP_VISIBLE_DEVICES": "1"}), tmp_path)
    assert place.environment == {
        "HIP_VISIBLE_DEVICES": "1",
        "MIOPEN_USER_DB_PATH": str(tmp_path / "miopen-db"),
        "MIOPEN_CUSTOM_CACHE_DIR": str(tmp_path / "miopen-cache"),
        "MIOPEN_NAIVE_TIMEOUT": "0",
        "ROCM_AUDIT_SET": "MIOPEN_USER_DB_PATH MIOPEN_CUSTOM_CACHE_DIR MIOPEN_NAIVE_TIMEOUT",
    }
    assert sorted(path.name for path in tmp_path.iterdir()) == ["miopen-cache", "miopen-db"]


@pytest.mark.usefixtures("rocm")
def test_a_database_that_the_user_names_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MIOPEN_USER_DB_PATH", "/data/db")
    place = with_library_files(Place("hip"), tmp_path)
    assert "MIOPEN_USER_DB_PATH" not in place.environment
    assert place.environment["ROCM_AUDIT_SET"] == "MIOPEN_CUSTOM_CACHE_DIR MIOPEN_NAIVE_TIMEOUT"


@pytest.mark.parametrize("device", ["sim", "cpu", "none"])
@pytest.mark.usefixtures("rocm")
def test_a_device_that_is_no_gpu_is_left_as_it_is(device: str, tmp_path: Path) -> None:
    assert with_library_files(Place(device), tmp_path) == Place(device)


def test_cuda_has_no_miopen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "hip", None)
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    assert with_library_files(Place("cuda"), tmp_path) == Place("cuda")


def test_the_results_of_tunable_op_are_found_from_the_children_s_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTORCH_TUNABLEOP_ENABLED", "1")
    place = with_library_files(Place("cuda"), tmp_path)
    assert place.environment["PYTORCH_TUNABLEOP_FILENAME"] == str(tmp_path / "tunableop_results.csv")


# --- state -----------------------------------------------------------------------------------------------------------


def test_a_build_that_lacks_a_question_leaves_it_out() -> None:
    state = library_state({})
    assert state["float32 products"] in ("highest", "high", "medium")
    assert "MIOpen find mode" not in state or torch.version.hip


@pytest.mark.usefixtures("rocm")
def test_what_the_audit_has_set_is_told_without_its_paths() -> None:
    environ = {
        "ROCM_AUDIT_SET": "MIOPEN_USER_DB_PATH MIOPEN_NAIVE_TIMEOUT",
        "MIOPEN_USER_DB_PATH": "/dev/shm/rocm-audit-spool-x/lane-0/miopen-db",
        "MIOPEN_NAIVE_TIMEOUT": "0",
        "MIOPEN_FIND_MODE": "2",
    }
    state = library_state(environ)
    assert state["set by the audit"] == "MIOPEN_USER_DB_PATH (a private folder, empty at first), MIOPEN_NAIVE_TIMEOUT=0"
    assert state["MIOpen find mode"] == "2"


@pytest.fixture
def tunable(monkeypatch: pytest.MonkeyPatch) -> Any:
    """TunableOp as a GPU build has it: on, looking up two results."""
    standing_in = SimpleNamespace(
        is_enabled=lambda: True,
        tuning_is_enabled=lambda: False,
        get_results=lambda: ((), ()),
        get_filename=lambda: "/home/ada/tuned0.csv",
    )
    monkeypatch.setattr(torch.cuda, "tunable", standing_in)
    return standing_in


def test_tunable_op_says_what_it_does_and_from_which_file(tunable: Any) -> None:
    assert library_state({})["TunableOp"] == "on, looks results up, 2 results from tuned0.csv"
    tunable.is_enabled = lambda: False
    assert library_state({})["TunableOp"] == "off"


def test_tuning_inside_the_audit_is_a_warning_with_a_remedy(tunable: Any) -> None:
    tunable.tuning_is_enabled = lambda: True
    state = library_state({})["TunableOp"]
    [check] = preflight(DeviceInfo("hip", "MI300X", "gfx942", {"TunableOp": state}), {})
    assert (check.name, check.result) == ("TunableOp", "warning")
    assert check.remedy == "set PYTORCH_TUNABLEOP_TUNING=0, so that results are looked up only"


@pytest.mark.parametrize(
    ("variables", "n_warnings"),
    [
        ({}, 0),
        ({"PYTORCH_TUNABLEOP_ENABLED": "1"}, 1),
        ({"PYTORCH_TUNABLEOP_ENABLED": "1", "PYTORCH_TUNABLEOP_TUNING": "0"}, 0),
        ({"PYTORCH_TUNABLEOP_TUNING": "1"}, 0),
    ],
)
def test_where_no_process_was_asked_the_variables_tell(variables: dict[str, str], n_warnings: int) -> None:
    assert len(preflight(DeviceInfo("hip", "MI300X", "gfx942"), variables)) == n_warnings
