"""pytorch/pytorch#191552: matrix cores of MI200 flush fp16 and bf16 subnormals of inputs and outputs to zero.

Documented hardware behaviour, in GEMM and convolution only. Small gradients vanish. Expect: divergent where the
program's values hold subnormals, supported elsewhere.
"""

import torch


def flushed(tensor):
    if not isinstance(tensor, torch.Tensor) or tensor.dtype not in (torch.float16, torch.bfloat16):
        return tensor
    return torch.where(tensor.abs() < torch.finfo(tensor.dtype).tiny, torch.zeros_like(tensor), tensor)


def flush(call):
    return flushed(call.run(*(flushed(arg) for arg in call.args), **call.kwargs))


FAULTS = {"aten::mm.default": flush, "aten::bmm.default": flush, "aten::addmm.default": flush}
