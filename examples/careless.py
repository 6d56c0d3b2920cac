"""Inference with habits that cost time, numbers or a crash on a GPU: what an audit is for.

About a third of its operators have findings on a GPU; each function names its habit. At size: -- --scale 8
"""

import argparse
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--scale", type=int, default=1, help="of batch and widths")
parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
args = parser.parse_args()
scale, device = args.scale, args.device
width, words = 64 * scale, 512 * scale
torch.manual_seed(0)


def made(*sizes: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    return torch.randn(sizes, device=device, dtype=dtype)


class Encoder(nn.Module):
    """Attention held to SDPA's math path, as a debugging session left it."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, tokens: Tensor) -> Tensor:
        batch, length, _ = tokens.shape
        split = self.qkv(self.norm(tokens)).view(batch, length, 3, width // 64, 64)
        query, key, value = split.permute(2, 0, 3, 1, 4)
        with sdpa_kernel(SDPBackend.MATH):
            mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return tokens + self.out(mixed.transpose(1, 2).reshape(batch, length, width))


class Stem(nn.Module):
    """A convolution without its library: somebody turned cudnn (MIOpen on AMD) off and forgot."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, width, 3, padding=1)
        self.norm = nn.BatchNorm2d(width)

    def forward(self, image: Tensor) -> Tensor:
        with torch.backends.cudnn.flags(enabled=False):
            return functional.gelu(self.norm(self.conv(image)))


class Careless(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.stem = Stem()
        self.encoder = Encoder()
        self.head = nn.Linear(width, words)

    def forward(self, image: Tensor, numbers: Tensor) -> Tensor:
        seen = self.stem(image).flatten(2).mean(2)
        return self.head(self.encoder(self.words(numbers) + seen[:, None]))


def counts_as_integers() -> None:
    """Products of integers: no GPU has a kernel for them."""
    counts = torch.randint(9, (4, 16 * scale, 16 * scale), device=device)
    attempt(lambda: counts[0] @ counts[1])
    attempt(lambda: counts @ counts)
    attempt(lambda: counts[0] @ counts[0, 0])
    attempt(lambda: torch.dot(counts[0, 0], counts[0, 1]))


def pictures_as_bytes(image: Tensor) -> None:
    """Image code from a CPU: bytes are resized and pooled as they are."""
    picture = (image[:1] * 255).to(torch.uint8)
    attempt(lambda: functional.interpolate(picture, scale_factor=0.5, mode="bilinear"))
    attempt(lambda: functional.max_pool2d(picture, 2))
    attempt(lambda: functional.avg_pool2d(picture.long(), 2))


def statistics_of_numpy(logits: Tensor) -> None:
    """What NumPy has: histograms, least squares by SVD, gamma functions, float64 throughout."""
    line = logits.detach().flatten()[: 4096 * scale]
    attempt(lambda: torch.histogram(line.float(), 16))
    attempt(lambda: torch.histc(line, 16))
    tall = made(64 * scale, 16 * scale, dtype=torch.float32)
    attempt(lambda: torch.linalg.lstsq(tall, tall[:, :1], driver="gelsd"))
    attempt(lambda: torch.special.gammainc(line.abs(), line.abs()))
    wide = logits.detach().flatten(0, 1).double()
    functional.hardsigmoid(wide)
    functional.hardswish(wide)


def spectrum() -> None:
    """Eigenvalues go through the host, whole matrix and all."""
    torch.linalg.eigvals(made(16 * scale, 16 * scale, dtype=torch.float32))


def additions_in_one_place() -> None:
    """Every gradient lands on the padding row: a queue of atomic additions, rounded to bf16 one by one."""
    n = 512 * scale
    places = torch.zeros(n, width, dtype=torch.int64, device=device)
    torch.zeros(256, width, device=device, dtype=torch.bfloat16).scatter_add(0, places, made(n, width))
    table = torch.zeros(256, width, device=device)
    table.index_put_((places[:, 0],), made(n, width, dtype=torch.float32), accumulate=True)


def attempt(habit: Callable[[], object]) -> None:
    try:
        habit()
    except (RuntimeError, NotImplementedError) as error:
        print(str(error).splitlines()[0][:100])


with torch.inference_mode():
    model = Careless().to(device, torch.bfloat16).eval()
    image = torch.rand(2 * scale, 3, 32, 32, device=device, dtype=torch.bfloat16)
    numbers = torch.randint(words, (2 * scale, 128), device=device)
    logits = model(image, numbers)
    counts_as_integers()
    pictures_as_bytes(image)
    statistics_of_numpy(logits)
    spectrum()
    additions_in_one_place()
    print(f"mean {logits.float().mean().item():.4f}")
