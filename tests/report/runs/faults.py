"""The faults of ``llama.jsonl.gz``: one of each kind that the report shows, in a real training step on ``sim``."""

import os
import signal

import torch


def not_a_number(call):
    result = call.run(*call.args, **call.kwargs).clone()
    result.view(-1)[0] = float("nan")
    return result


def off_by_a_percent(call):
    return call.run(*call.args, **call.kwargs) * 1.01


def dies(call):
    call.stderr("Memory access fault by GPU node-1 (Agent handle: 0x55d0) on address 0x7f11. Reason: Unknown.\n")
    os.kill(os.getpid(), signal.SIGABRT)


def no_code_object(call):
    raise RuntimeError("HIP error: invalid device function\nCompile with `TORCH_USE_HIP_DSA` to enable assertions.")


def no_memory(call):
    raise torch.OutOfMemoryError("HIP out of memory. Tried to allocate 20.00 GiB.")


def through_the_host(call):
    n_bytes = sum(a.numel() * a.element_size() for a in call.args if isinstance(a, torch.Tensor))
    call.copy("DtoH", n_bytes)
    call.copy("HtoD", n_bytes)
    return call.run(*call.args, **call.kwargs)


def naive_kernel(call):
    call.kernel("naive_conv_ab_nonpacked_fwd_nchw_half_double_half", 900)
    call.warn("a workspace of 0 bytes was given")
    call.stderr(
        "MIOpen(HIP): Warning [IsEnoughWorkspace] Solver <GemmFwdRest>, workspace required: 590224, provided: 0\n"
    )
    return call.run(*call.args, **call.kwargs)


def first_four_unwritten(call):
    result = call.run(*call.args, **call.kwargs)
    partial = torch.empty_like(result)
    partial.view(-1)[4:] = result.reshape(-1)[4:]
    return partial


FAULTS = {
    "aten::rsqrt.default": not_a_number,
    "aten::silu.default": off_by_a_percent,
    "aten::cos.default": dies,
    "aten::embedding.default": no_code_object,
    "aten::sqrt.default": no_memory,
    "aten::mean.dim": through_the_host,
    "aten::sin.default": naive_kernel,
    "aten::pow.Tensor_Scalar": first_four_unwritten,
}
