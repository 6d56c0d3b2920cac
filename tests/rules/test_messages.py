"""FBK304: warnings and stderr."""

from __future__ import annotations

from audit.schema import Outcome

UNSUPPORTED_ARCH = (
    "Attempting to use hipBLASLt on an unsupported architecture! Overriding blas backend to hipblas "
    "(Triggered internally at Context.cpp:436.)"
)
WORKSPACE = (
    "MIOpen(HIP): Warning [IsEnoughWorkspace] [EvaluateInvokers] Solver <GemmFwdRest>, "
    "workspace required: 20348928, provided ptr: 0 size: 0"
)


def test_a_warning_of_a_lesser_blas_is_falling_back(build):
    [finding] = build.findings(build.measurement(device=Outcome("ok", warnings=(UNSUPPORTED_ARCH,))))
    assert (finding.code, finding.status) == ("FBK304", "falling_back")
    assert finding.message.startswith("said: Attempting to use hipBLASLt on an unsupported architecture!")


def test_a_library_line_among_others_on_stderr_is_found_and_quoted(build):
    outcome = Outcome("ok", stderr=f"compiling\n{WORKSPACE}\ndone")
    [finding] = build.findings(build.measurement(device=outcome))
    assert (finding.code, finding.status) == ("FBK304", "supported")
    assert "Solver <GemmFwdRest>" in finding.message
    assert "compiling" not in finding.message


def test_one_message_said_twice_is_one_finding(build):
    outcome = Outcome("ok", warnings=(UNSUPPORTED_ARCH,), stderr=UNSUPPORTED_ARCH)
    assert build.codes(build.measurement(device=outcome)) == [("FBK304", "falling_back")]


def test_what_every_rocm_build_says_and_unknown_chatter_are_no_findings(build):
    outcome = Outcome("ok", warnings=("Torch was not compiled with cuDNN attention.",), stderr="hello")
    assert build.codes(build.measurement(device=outcome)) == []


def test_messages_of_an_op_that_raised_are_part_of_the_error_not_a_fallback(build):
    outcome = Outcome("raised", message="no", warnings=(UNSUPPORTED_ARCH,))
    assert build.codes(build.measurement(device=outcome)) == [("SUP101", "unsupported")]
