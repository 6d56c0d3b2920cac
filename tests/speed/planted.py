"""Seven calls that are slow or take the wrong path on any GPU, each in a function whose name says what was planted."""

import argparse

import torch
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--share", type=int, default=1)
parser.add_argument("--device", default="cuda")
args = parser.parse_args()


def made(*sizes: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.randn(sizes, device=args.device, dtype=dtype)


@torch.library.custom_op("planted::through_host", mutates_args=())
def through_host(x: torch.Tensor) -> torch.Tensor:
    return (x.cpu() * 2).to(x.device)


def attention_by_math() -> None:
    q, k, v = (made(4, 16 // args.share, 2048, 64) for _ in range(3))
    with sdpa_kernel(SDPBackend.MATH):
        functional.scaled_dot_product_attention(q, k, v)


def convolution_without_library() -> None:
    with torch.backends.cudnn.flags(enabled=False):
        functional.conv2d(made(32 // args.share, 256, 28, 28), made(256, 256, 3, 3), padding=1)


def custom_op_through_host() -> None:
    through_host(made(2048 // args.share, 2048))


def product_in_float64() -> None:
    made(2048 // args.share, 2048, dtype=torch.float64) @ made(2048, 2048, dtype=torch.float64)


def gather_of_one_place() -> None:
    """Backward adds everything up in one place of each column, one addition after the other."""
    table = made(4096, 1024).requires_grad_()
    places = torch.zeros(16384 // args.share, 1024, dtype=torch.int64, device=args.device)
    table.gather(0, places).backward(made(16384 // args.share, 1024))


def rows_of_one_number() -> None:
    """Backward adds all gradients up in one row, one after the other."""
    table = made(4096, 1024, dtype=torch.float32).requires_grad_()
    numbers = torch.zeros(16384 // args.share, dtype=torch.int64, device=args.device)
    table[numbers].backward(made(16384 // args.share, 1024, dtype=torch.float32))


def transposed_copy() -> None:
    made(8192, 8192 // args.share).t().contiguous()


attention_by_math()
convolution_without_library()
custom_op_through_host()
product_in_float64()
gather_of_one_place()
rows_of_one_number()
transposed_copy()
# What the program is otherwise made of: the dtype of most of its arithmetic.
for _ in range(4):
    made(4096 // args.share, 4096) @ made(4096, 4096)
