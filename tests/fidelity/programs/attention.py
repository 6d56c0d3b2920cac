"""Attention forward and backward over masks, causality, dropout, grouped heads, scales, dtypes and head sizes."""

import itertools

import torch
from torch.nn import functional as F

torch.manual_seed(0)
padding = torch.ones(2, 1, 32, 32, dtype=torch.bool, device="cuda")
padding[1, :, :, 20:] = False
masks = {
    "none": None,
    "boolean": padding,
    "additive": torch.zeros(2, 4, 32, 32, device="cuda").masked_fill(~padding, -1e4),
}
torch.cuda.synchronize()

for dtype, head_size in itertools.product((torch.bfloat16, torch.float16, torch.float32), (64, 40)):
    for n_kv, name, causal, dropout in (
        (4, "none", False, 0.0), (4, "none", True, 0.0), (4, "none", True, 0.1), (4, "boolean", False, 0.0),
        (4, "additive", False, 0.1), (2, "none", True, 0.0), (2, "boolean", False, 0.0),
    ):  # fmt: skip
        q = torch.randn(2, 32, 4, head_size, device="cuda", dtype=dtype, requires_grad=True)
        k, v = (torch.randn(2, 32, n_kv, head_size, device="cuda", dtype=dtype, requires_grad=True) for _ in range(2))
        mask = masks[name]
        if mask is not None and mask.is_floating_point():
            mask = mask.to(dtype)
        heads = (tensor.transpose(1, 2) for tensor in (q, k, v))
        out = F.scaled_dot_product_attention(
            *heads, attn_mask=mask, dropout_p=dropout, is_causal=causal, enable_gqa=n_kv != 4
        )
        out.transpose(1, 2).reshape(2, 32, -1).square().mean().backward()
