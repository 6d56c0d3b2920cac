"""Field reports of matrix products that end the process. Expect: unsupported (crashed).

pytorch/pytorch#161256: segmentation fault in rocBLAS for float64; pytorch/pytorch#139116: memory access fault in bf16.
"""

import os
import signal

import torch


def segmentation_fault(call):
    if call.args[0].dtype == torch.float64:
        os.kill(os.getpid(), signal.SIGSEGV)
    return call.run(*call.args, **call.kwargs)


def memory_access_fault(call):
    if call.args[1].dtype == torch.bfloat16:
        call.stderr(
            "Memory access fault by GPU node-2 (Agent handle: 0x55f0c8a0) on address 0x7f3a5c000000. Reason: Unknown.\n"
        )
        os.abort()
    return call.run(*call.args, **call.kwargs)


FAULTS = {"aten::mm.default": segmentation_fault, "aten::addmm.default": memory_access_fault}
