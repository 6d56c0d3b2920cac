"""Messages and variables."""

from __future__ import annotations

import pytest

from audit.knowledge.signals import load_signals, load_variables, match_signal, match_signals


@pytest.mark.parametrize(
    ("text", "signal_class"),
    [
        ("UserWarning: Attempting to use hipBLASLt on an unsupported architecture! Overriding", "falling_back"),
        ("Flash Efficient attention on Current AMD GPU is still experimental.", "falling_back"),
        ("UserWarning: 1Torch was not compiled with flash attention.", "falling_back"),
        ("Torch was not compiled with cuDNN attention.", "expected_on_rocm"),
        (
            "HIPBLAS_STATUS_NOT_SUPPORTED when calling hipblasLtMatmul. Will attempt to recover by calling cublas "
            "instead.",
            "falling_back",
        ),
        ("LSTM with projections is not supported with MIOpen. Using default implementation.", "falling_back"),
        ("RuntimeError: miopenStatusUnknownError", "unsupported"),
        ("\"addmm_cuda\" not implemented for 'Half'", "unsupported"),
        ("HIP error: invalid device function", "env"),
        ("HIP error: an illegal memory access was encountered", "crash"),
        ("No HIP GPUs are available", "env"),
    ],
)
def test_known_messages_are_recognised(text, signal_class):
    signal = match_signal(text)
    assert signal is not None
    assert signal.signal_class == signal_class
    assert signal.meaning or signal.action or signal.source


def test_other_text_is_not():
    assert match_signal("Using a slow image processor") is None
    assert match_signals("") == ()


def test_two_messages_in_one_text_are_both_found():
    text = "Attempting to use CK on an unsupported architecture\nexpandable_segments not supported on this platform"
    assert [signal.signal_class for signal in match_signals(text)] == ["falling_back", "info"]


def test_variables_have_plain_names_each_once():
    names = [variable.name for variable in load_variables()]
    assert len(set(names)) == len(names)
    assert {"HSA_OVERRIDE_GFX_VERSION", "TORCH_BLAS_PREFER_HIPBLASLT", "MIOPEN_DEBUG_CONV_GEMM"} <= set(names)
    assert all(name.isupper() and " " not in name for name in names)


def test_every_signal_has_a_class_that_the_rules_know():
    classes = {signal.signal_class for signal in load_signals()}
    known = {"falling_back", "slow", "unsupported", "crash", "env", "info", "nondeterministic", "expected_on_rocm"}
    assert classes == known
