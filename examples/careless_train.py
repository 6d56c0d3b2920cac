"""One training step with habits that cost time, numbers or a crash on a GPU: what an audit is for.

A third of its operators have findings on a GPU; each function names its habit. On a real GPU, at size:
-- --scale 8
"""

import argparse

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--scale", type=int, default=1, help="of batch and widths")
parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
args = parser.parse_args()
scale, device = args.scale, args.device
torch.manual_seed(0)


def made(*sizes: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    return torch.randn(sizes, device=device, dtype=dtype)


class Encoder(nn.Module):
    """Attention held to SDPA's math path, as a debugging session left it."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, tokens: Tensor) -> Tensor:
        batch, length, width = tokens.shape
        split = self.qkv(self.norm(tokens)).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = split.permute(2, 0, 3, 1, 4)
        with sdpa_kernel(SDPBackend.MATH):
            mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return tokens + self.out(mixed.transpose(1, 2).reshape(batch, length, width))


class Stem(nn.Module):
    """A convolution without its library: somebody turned cudnn (MIOpen on AMD) off and forgot."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, width, 3, padding=1)
        self.norm = nn.BatchNorm2d(width)

    def forward(self, image: Tensor) -> Tensor:
        with torch.backends.cudnn.flags(enabled=False):
            return functional.gelu(self.norm(self.conv(image)))


class Careless(nn.Module):
    def __init__(self, width: int, words: int) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.stem = Stem(width)
        self.encoder = Encoder(width, width // 64)
        self.head = nn.Linear(width, words)

    def forward(self, image: Tensor, numbers: Tensor) -> Tensor:
        seen = self.stem(image).flatten(2).mean(2)
        tokens = self.encoder(self.words(numbers) + seen[:, None])
        return self.head(tokens)


def counts_as_integers(numbers: Tensor) -> None:
    """Co-occurrence as a product of integers: no GPU has a kernel for it."""
    seen = functional.one_hot(numbers[:, :64] % 64, 64).sum(1)
    try:
        seen.t() @ seen
    except RuntimeError as error:
        print("counts:", str(error).splitlines()[0][:80])


def thumbnails_of_bytes(image: Tensor) -> None:
    try:
        functional.interpolate((image[:1] * 255).byte(), scale_factor=0.5, mode="bilinear")
    except RuntimeError as error:
        print("thumbnails:", str(error).splitlines()[0][:80])


def spectrum(width: int) -> None:
    """Eigenvalues go through the host, whole matrix and all."""
    torch.linalg.eigvals(made(width // 4, width // 4, dtype=torch.float32))


def metrics_in_float64(logits: Tensor) -> None:
    """NumPy's default dtype crept in."""
    wide = logits.detach().flatten(0, 1).double()
    wide.t() @ wide
    functional.hardsigmoid(wide)
    torch.logsumexp(wide, 0)


def gather_of_one_place(width: int) -> None:
    """Every gradient is added up in one place of its column, in bf16, one after the other."""
    table = made(256, width).requires_grad_()
    places = torch.zeros(512 * scale, width, dtype=torch.int64, device=device)
    table.gather(0, places).backward(made(512 * scale, width))


def rows_of_one_number(width: int) -> None:
    """All rows are the padding row: its gradient is a queue of atomic additions."""
    table = made(256, width, dtype=torch.float32).requires_grad_()
    padding = torch.zeros(512 * scale, dtype=torch.int64, device=device)
    table[padding].backward(made(512 * scale, width, dtype=torch.float32))


def transposed_copies(width: int) -> None:
    made(512 * scale, width).t().contiguous()
    made(512 * scale, width, dtype=torch.float32).t().contiguous()


def products_of_slivers() -> None:
    """Thousands of tiny products: launches, not arithmetic."""
    made(64 * scale, 3, 3, dtype=torch.float32) @ made(64 * scale, 3, 1, dtype=torch.float32)
    torch.cumsum(made(8, 512 * scale), 1)
    torch.linalg.svdvals(made(16 * scale, 8, 8, dtype=torch.float32))


width, words = 64 * scale, 512 * scale
model = Careless(width, words).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False)
image = torch.rand(2 * scale, 3, 32, 32, device=device)
numbers = torch.randint(words, (2 * scale, 128), device=device)

with torch.autocast(device, torch.bfloat16):
    logits = model(image, numbers)
loss = functional.cross_entropy(logits.flatten(0, 1).float(), numbers.flatten())
loss.backward()
counts_as_integers(numbers)
thumbnails_of_bytes(image)
spectrum(width)
metrics_in_float64(logits)
gather_of_one_place(width)
rows_of_one_number(width)
transposed_copies(width)
products_of_slivers()
optimizer.step()
print(f"loss {loss.item():.3f}")
