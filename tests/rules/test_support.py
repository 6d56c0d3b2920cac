"""SUP101..105: raised, crashed, hung, poisoned."""

from __future__ import annotations

from audit.schema import Outcome


def test_an_exception_is_unsupported_with_its_first_line(build):
    outcome = Outcome("raised", error_type="RuntimeError", message="\nmiopenStatusUnknownError\nmore")
    [finding] = build.findings(build.measurement(device=outcome))
    assert (finding.code, finding.status) == ("SUP101", "unsupported")
    assert finding.message.startswith("the device raised RuntimeError: miopenStatusUnknownError")
    assert finding.data["signal_class"] == "unsupported"


def test_a_missing_kernel_is_called_that(build):
    text = "Could not run 'aten::foo' with arguments from the 'CUDA' backend."
    outcome = Outcome("raised", error_type="NotImplementedError", message=text, missing_kernel=True)
    [finding] = build.findings(build.measurement(device=outcome))
    assert finding.message.startswith(f"the device has no kernel for this: {text}")


def test_comparisons_left_from_before_a_raise_are_not_judged(build):
    measurement = build.measurement(build.comparison(worst_ratio=1e9), device=Outcome("raised", message="no"))
    assert build.codes(measurement) == [("SUP101", "unsupported")]


def test_a_confirmed_crash_names_its_signal_and_last_words(build):
    stderr = "loading\nMemory access fault by GPU node-2 on address 0x7f. Reason: Unknown.\n"
    outcome = Outcome("crashed", signal=6, confirmed=True, stderr=stderr)
    [finding] = build.findings(build.measurement(device=outcome))
    assert (finding.code, finding.status) == ("SUP102", "unsupported")
    assert finding.message == (
        "the process died with SIGABRT, and so again alone in a fresh process: "
        "Memory access fault by GPU node-2 on address 0x7f. Reason: Unknown."
    )


def test_an_exit_code_stands_in_for_a_signal(build):
    [finding] = build.findings(build.measurement(device=Outcome("crashed", exit_code=134)))
    assert finding.message == "the process died with exit code 134, not tried again"


def test_a_failure_that_does_not_come_back_alone_is_inconclusive_with_its_story(build):
    story = "at first it crashed (signal 11), alone in a fresh process it passed; before it ran: mm-1"
    [finding] = build.findings(build.measurement(device=Outcome("ok", confirmed=False), notes=("slow", story)))
    assert (finding.code, finding.status) == ("INC908", "inconclusive")
    assert finding.message.endswith(story)


def test_a_crash_alone_after_another_failure_is_still_a_crash(build):
    [finding] = build.findings(build.measurement(device=Outcome("crashed", signal=11, confirmed=False)))
    assert (finding.code, finding.status) == ("SUP102", "unsupported")
    assert finding.message == (
        "the process died with SIGSEGV, alone in a fresh process; at first it failed in another way"
    )


def test_a_hang_tells_its_limit_and_stage(build):
    outcome = Outcome("hung", stage="first call", limit_s=180.0)
    [finding] = build.findings(build.measurement(device=outcome))
    assert (finding.code, finding.status) == ("SUP103", "unsupported")
    assert finding.message == "the device did not answer within 180 s (first call); not tried again"


def test_an_op_after_which_the_canary_fails_is_unsupported_though_it_returned(build):
    assert build.codes(build.measurement(canary="failed")) == [("SUP105", "unsupported")]


def test_a_failed_canary_is_no_news_after_a_device_error(build):
    outcome = Outcome("raised", message="HIP error: unspecified launch failure", device_error=True)
    assert build.codes(build.measurement(device=outcome, canary="failed")) == [("SUP101", "unsupported")]
