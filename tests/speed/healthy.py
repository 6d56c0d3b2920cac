"""More than two hundred large calls as any model makes them, forward and backward: none of them is slow on a GPU.

Products, attention, convolutions, normalisation, elementwise work, embeddings and losses in the shapes and layouts of
language models, vision transformers and residual networks. ``--share 4`` divides the number of rows, for a look on a
small machine.
"""

import argparse
from collections.abc import Callable
from itertools import product

import torch
from torch.nn import functional

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--share", type=int, default=1)
parser.add_argument("--device", default="cuda")
args = parser.parse_args()

BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32


def made(*sizes: int, dtype: torch.dtype = BF16) -> torch.Tensor:
    return torch.randn(sizes, device=args.device, dtype=dtype).requires_grad_()


def channels_last(*sizes: int, dtype: torch.dtype) -> torch.Tensor:
    """Made so: bringing a tensor into the layout is a copy that no GPU does well."""
    batch, channels, *sides = sizes
    return made(batch, *sides, channels, dtype=dtype).detach().movedim(-1, 1).requires_grad_()


def forth_and_back(call: Callable[..., torch.Tensor], *operands: torch.Tensor) -> None:
    result = call(*operands)
    result.backward(torch.ones_like(result))
    for operand in operands:
        operand.grad = None


def products() -> None:
    shapes = ((4096, 4096, 4096), (2048, 4096, 11264), (8192, 1024, 4096), (4096, 2048, 8192), (6144, 2048, 6144))
    for rows, inner, columns in shapes:
        for dtype in (BF16, FP16):
            left, weight = made(rows // args.share, inner, dtype=dtype), made(columns, inner, dtype=dtype)
            forth_and_back(functional.linear, left, weight)
            forth_and_back(torch.matmul, left, made(inner, columns, dtype=dtype))
    for rows, inner, columns in ((2048, 2048, 2048), (4096, 1024, 4096)):
        bias = made(columns, dtype=FP32)
        operands = made(rows // args.share, inner, dtype=FP32), made(columns, inner, dtype=FP32), bias
        forth_and_back(functional.linear, *operands)
    for batch, rows, inner, columns in ((64, 512, 512, 512), (96, 1024, 64, 1024), (96, 1024, 1024, 64)):
        batch //= args.share
        forth_and_back(torch.bmm, made(batch, rows, inner), made(batch, inner, columns))


def attention() -> None:
    for (batch, heads, length, width), dtype, is_causal in product(
        ((2, 16, 2048, 64), (1, 16, 2048, 128), (8, 16, 1024, 64)), (BF16, FP16), (False, True)
    ):
        q, k, v = (made(batch, heads // args.share, length, width, dtype=dtype) for _ in range(3))
        forth_and_back(lambda *qkv, c=is_causal: functional.scaled_dot_product_attention(*qkv, is_causal=c), q, k, v)


def convolutions() -> None:
    shapes = ((64, 56, 3), (128, 56, 3), (256, 28, 3), (512, 14, 3), (256, 56, 1), (1024, 28, 1))
    for (channels, side, width), dtype in product(shapes, (FP16, BF16)):
        image = channels_last(64 // args.share, channels, side, side, dtype=dtype)
        weight = channels_last(channels if width > 1 else channels // 2, channels, width, width, dtype=dtype)
        forth_and_back(lambda x, w, p=width // 2: functional.conv2d(x, w, padding=p), image, weight)


def normalisation() -> None:
    for (rows, width), dtype in product(((16384, 1024), (8192, 4096), (32768, 768)), (BF16, FP16, FP32)):
        weight, bias = made(width, dtype=dtype), made(width, dtype=dtype)
        hidden = made(rows // args.share, width, dtype=dtype)
        forth_and_back(lambda x, w, b, n=width: functional.layer_norm(x, (n,), w, b), hidden, weight, bias)
        forth_and_back(lambda x, w, n=width: functional.rms_norm(x, (n,), w), hidden, weight)
    for channels, side in ((256, 56), (512, 28)):
        image = channels_last(64 // args.share, channels, side, side, dtype=FP16)
        weight, bias = made(channels, dtype=FP32), made(channels, dtype=FP32)
        mean, variance = (torch.zeros(channels, device=args.device) for _ in range(2))
        forth_and_back(
            lambda x, w, b, m=mean, v=variance: functional.batch_norm(x, m, v, w, b, training=True), image, weight, bias
        )
        plain = made(64 // args.share, channels, side, side, dtype=FP16)
        forth_and_back(lambda x: functional.group_norm(x, 32), plain)


def elementwise() -> None:
    for dtype in (BF16, FP16, FP32):
        one, two = made(8192 // args.share, 4096, dtype=dtype), made(8192 // args.share, 4096, dtype=dtype)
        for binary in (torch.add, torch.mul, torch.sub):
            forth_and_back(binary, one, two)
        for unary in (functional.gelu, functional.silu, functional.relu, torch.sigmoid, torch.tanh, torch.exp):
            forth_and_back(unary, one)
        forth_and_back(lambda x: x.softmax(-1), one)
        forth_and_back(lambda x: x.log_softmax(-1), one)
        with torch.no_grad():
            one.clone()
            one.to(torch.float64 if dtype is FP32 else FP32)
            torch.cat((one, two))
            one + 1.0
            one * two.sigmoid()
            torch.where(one > 0, one, two)
            one.sum(-1)
            one.mean(-1)
            one.amax(-1)
            torch.addcmul(one, one, two)
            one.pow(2)
            one.rsqrt()
            two.detach().clone().mul_(0.5).add_(one)


def tables() -> None:
    """Rows by their number, and what adds up in backward: every row is met a few times."""
    for rows, width, dtype in ((32000, 1024, BF16), (8192, 2048, FP32)):
        table = made(rows, width, dtype=dtype)
        numbers = torch.randint(rows, (16384 // args.share,), device=args.device)
        forth_and_back(lambda t, n=numbers: functional.embedding(n, t), table)
        forth_and_back(lambda t, n=numbers: t.index_select(0, n), table)
        forth_and_back(lambda t, n=numbers: t[n], table)
        places = numbers[:, None].expand(-1, width)
        forth_and_back(lambda t, p=places: t.gather(0, p), table)
    logits = made(4096 // args.share, 32000, dtype=FP32)
    classes = torch.randint(32000, (4096 // args.share,), device=args.device)
    forth_and_back(lambda x: functional.cross_entropy(x, classes), logits)
    pooled = channels_last(64 // args.share, 64, 112, 112, dtype=FP16)
    forth_and_back(lambda x: functional.max_pool2d(x, 3, 2, 1), pooled)
    forth_and_back(lambda x: functional.adaptive_avg_pool2d(x, 1), pooled)


for part in (products, attention, convolutions, normalisation, elementwise, tables):
    part()
