"""One audit over a device where many things go wrong: each case says what happened to it, and the audit goes on."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest

from audit.schema import Values

FAULTS = """
import ctypes, os, resource, signal, torch

STATE = {"poisoned": False}

def segfault(call):
    os.kill(os.getpid(), signal.SIGSEGV)

def abort(call):
    os.abort()

def gpu_fault(call):
    call.stderr("Memory access fault by GPU node-1 (Agent handle: 0x5581) on address 0x7f00. Reason: Unknown.")
    os.abort()

def hip_error(call):
    raise RuntimeError("HIP error: an illegal memory access was encountered")

def leave(call):
    os._exit(7)

def hang(call):
    while True:
        pass

def nan(call):
    result = call.run(*call.args, **call.kwargs)
    result.view(-1)[5] = float("nan")
    return result

def unwritten(call):
    result = torch.empty_like(call.args[0])
    result.view(-1)[:3] = call.run(*call.args).view(-1)[:3]
    result.view(-1)[4:] = call.run(*call.args).view(-1)[4:]
    return result

def unrepeatable(call):
    return call.run(*call.args) + int.from_bytes(os.urandom(4), "little") * 1e-6

def beyond(call):
    source = call.args[0]
    ctypes.memset(source.data_ptr() + source.numel() * source.element_size() + 8, 0, 4)
    return call.run(*call.args)

def talk(call):
    call.stderr("MIOpen(HIP): Warning [IsEnoughWorkspace] Solver <GemmFwdRest>")
    call.warn("Using a slow path")
    call.copy("DtoH", 4096)
    call.kernel("naive_conv_fwd", 12.5)
    return call.run(*call.args)

def poison(call):
    STATE["poisoned"] = True
    return call.run(*call.args)

def poisoned(call):
    result = call.run(*call.args, **call.kwargs)
    return result + 1 if STATE["poisoned"] else result

def full(call):
    raise torch.OutOfMemoryError("HIP out of memory. Tried to allocate 20.00 GiB.")

def exhaust(call):
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    in_use = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (in_use + (64 << 20), hard))
    try:
        return torch.zeros(1 << 33, dtype=torch.uint8)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))

def plain(call):
    raise RuntimeError("miopenStatusUnknownError")

def missing(call):
    raise NotImplementedError('"erfc_cuda" not implemented for \\'Half\\'')

def writes_its_input(call):
    result = call.run(*call.args)
    call.args[0].view(-1)[2] = 77.0
    return result

FAULTS = {
    "aten::sin.default": segfault,
    "aten::cos.default": abort,
    "aten::round.default": gpu_fault,
    "aten::erf.default": hip_error,
    "aten::expm1.default": leave,
    "aten::tan.default": hang,
    "aten::exp.default": nan,
    "aten::log1p.default": unwritten,
    "aten::sqrt.default": unrepeatable,
    "aten::neg.default": beyond,
    "aten::tanh.default": talk,
    "aten::sigmoid.default": poison,
    "aten::addbmm.default": poisoned,
    "aten::abs.default": full,
    "aten::trunc.default": exhaust,
    "aten::ceil.default": plain,
    "aten::erfc.default": missing,
    "aten::relu.default": writes_its_input,
}
"""

OPS = "sin cos round erf expm1 tan exp log1p sqrt neg tanh sigmoid abs trunc ceil erfc relu floor".split()


@pytest.fixture(scope="module")
def cases(build):
    positive = {0: Values(minimum=0.5, maximum=2.0, mean=1.0, std=0.3)}
    return {op: build.case(f"aten::{op}.default", build.tensor([4, 3]), values=positive) for op in OPS}


@pytest.fixture(scope="module")
def run(cases, fault_file, replay: Callable):
    """Between any two faulty cases nothing is started anew by the caller: the audit itself has to go on."""
    return replay(list(cases.values()), device=fault_file(FAULTS), first_call_limit_s=8.0)


def test_every_case_is_started_once_and_measured_once(run, cases):
    keys = [case.key for case in cases.values()]
    assert run.started == keys
    assert [event.key for event in run.events if hasattr(event, "device")] == keys


@pytest.mark.parametrize(("op", "number"), [("sin", signal.SIGSEGV), ("cos", signal.SIGABRT)])
def test_a_crash_ends_one_case_and_is_confirmed_alone(run, cases, op, number):
    outcome = run.of(cases[op]).device
    assert (outcome.kind, outcome.signal, outcome.confirmed) == ("crashed", number, True)
    assert not outcome.device_error


def test_a_gpu_memory_fault_is_a_device_error_with_its_text(run, cases):
    outcome = run.of(cases["round"]).device
    assert (outcome.kind, outcome.device_error, outcome.confirmed) == ("crashed", True, True)
    assert outcome.stderr.startswith("Memory access fault by GPU node-1")


def test_a_sticky_error_is_confirmed_in_a_fresh_process(run, cases):
    outcome = run.of(cases["erf"]).device
    assert (outcome.kind, outcome.device_error, outcome.confirmed) == ("raised", True, True)
    assert outcome.message == "HIP error: an illegal memory access was encountered"


def test_a_process_that_leaves_is_a_crash_with_its_exit_code(run, cases):
    outcome = run.of(cases["expm1"]).device
    assert (outcome.kind, outcome.signal, outcome.exit_code) == ("crashed", None, 7)


def test_a_hang_ends_one_case_and_is_not_repeated(run, cases):
    outcome = run.of(cases["tan"]).device
    assert (outcome.kind, outcome.stage, outcome.limit_s, outcome.confirmed) == ("hung", "first call", 8.0, None)


def test_a_nan_is_counted_and_placed(run, cases):
    [output] = run.of(cases["exp"]).comparisons
    assert (output.n_nan_mismatch, output.worst_index, output.worst_actual) == (1, (1, 2), "nan")


def test_an_element_that_follows_the_fill_was_never_written(run, cases):
    [output] = run.of(cases["log1p"]).comparisons
    assert (output.n_unwritten, output.first_unwritten, output.n_not_repeated) == (1, (1, 0), 0)


def test_a_result_that_differs_from_run_to_run_is_counted(run, cases):
    [output] = run.of(cases["sqrt"]).comparisons
    assert (output.n_not_repeated, output.n_unwritten) == (12, 0)


def test_a_write_past_an_operand_breaks_its_guard(run, cases):
    assert run.of(cases["neg"]).guards_broken == ("self",)
    assert run.of(cases["floor"]).guards_broken == ()


def test_what_the_op_says_and_does_is_evidence(run, cases):
    measured = run.of(cases["tanh"])
    assert measured.device.stderr.startswith("MIOpen(HIP): Warning [IsEnoughWorkspace] Solver <GemmFwdRest>")
    assert "Using a slow path" in measured.device.warnings
    assert measured.path.observed
    assert "naive_conv_fwd" in [kernel.name for kernel in measured.path.kernels]
    assert [(copy.direction, copy.nbytes) for copy in measured.path.copies] == [("DtoH", 4096)]


def test_evidence_of_one_case_does_not_leak_into_the_next(run, cases):
    later = run.of(cases["sigmoid"])
    assert (later.device.stderr, later.device.warnings) == ("", ())


def test_the_canary_finds_the_case_that_poisons_later_ones(run, cases):
    measured = run.of(cases["sigmoid"])
    assert (measured.device.kind, measured.canary) == ("ok", "failed")


def test_cases_after_the_poison_are_not_its_victims(run, cases):
    assert run.of(cases["floor"]).canary == "passed"
    assert run.of(cases["ceil"]).canary == "passed"


def test_out_of_memory_ends_one_case_and_keeps_the_process(run, cases):
    outcome = run.of(cases["abs"]).device
    assert outcome.kind == "out_of_memory"
    assert outcome.message.startswith("HIP out of memory")


def test_memory_that_is_really_exhausted_ends_one_case_too(run, cases):
    outcome = run.of(cases["trunc"]).device
    assert outcome.kind == "out_of_memory"
    assert "can't allocate memory" in outcome.message
    assert run.of(cases["trunc"]).canary == "passed"


def test_a_plain_exception_is_recorded_with_type_and_text(run, cases):
    outcome = run.of(cases["ceil"]).device
    assert (outcome.kind, outcome.error_type, outcome.message) == ("raised", "RuntimeError", "miopenStatusUnknownError")
    assert not outcome.device_error
    assert outcome.confirmed is None


def test_a_missing_kernel_is_told_from_other_exceptions(run, cases):
    outcome = run.of(cases["erfc"]).device
    assert (outcome.kind, outcome.missing_kernel) == ("raised", True)


def test_an_input_changed_on_the_sly_is_an_output_that_differs(run, cases):
    output, changed = run.of(cases["relu"]).comparisons
    assert output.n_different == 0
    assert (changed.name, changed.standard, changed.n_different) == ("self (mutated)", "exact", 1)
    assert (changed.worst_index, changed.worst_actual) == ((0, 2), "77.0")


def test_a_healthy_case_has_no_finding(run, cases):
    measured = run.of(cases["floor"])
    [output] = measured.comparisons
    assert (output.standard, output.n_elements, output.n_different) == ("exact", 12, 0)
    assert measured.device_time is not None
    assert measured.reference_time is not None
    assert measured.operand_bytes == 48
