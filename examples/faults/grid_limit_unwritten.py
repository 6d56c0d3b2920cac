"""Launch grid limits, as in pytorch/pytorch#185557: beyond the limit, part of the output is never written.

What stands there is whatever the memory held before, often the right answer of the call before. Expect: divergent.
"""

import torch

#: Elements that one launch covers here; the real limit is 65,535 blocks.
LIMIT = 4096


def write_part(call):
    right = call.run(*call.args, **call.kwargs)
    if right.numel() <= LIMIT or not right.is_contiguous():
        return right
    output = torch.empty_like(right)
    output.view(-1)[:LIMIT] = right.view(-1)[:LIMIT]
    return output


FAULTS = {"aten::silu.default": write_part, "aten::gelu.default": write_part, "aten::relu.default": write_part}
