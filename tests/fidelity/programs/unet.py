"""Trains a small diffusion UNet under fp16 autocast: group norm, SiLU, attention, up- and downsampling."""

import torch
from torch import nn
from torch.nn import functional as F


class Residual(nn.Module):
    def __init__(self, n_in: int, n_out: int) -> None:
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(4, n_in), nn.Conv2d(n_in, n_out, 3, padding=1)
        self.time = nn.Linear(64, n_out)
        self.norm2, self.conv2 = nn.GroupNorm(4, n_out), nn.Conv2d(n_out, n_out, 3, padding=1)
        self.skip = nn.Conv2d(n_in, n_out, 1)

    def forward(self, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        y = self.conv1(F.silu(self.norm1(x))) + self.time(F.silu(time))[:, :, None, None]
        return self.conv2(F.silu(self.norm2(y))) + self.skip(x)


class Attention(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.qkv, self.out = nn.GroupNorm(4, width), nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, width, height, _ = x.shape
        tokens = self.norm(x).flatten(2).transpose(1, 2)
        q, k, v = (part.unflatten(-1, (2, -1)).transpose(1, 2) for part in self.qkv(tokens).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        return x + self.out(y).transpose(1, 2).reshape(batch, width, height, -1)


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.time = nn.Sequential(nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 64))
        self.first, self.down, self.shrink = (
            nn.Conv2d(3, 32, 3, padding=1),
            Residual(32, 32),
            nn.Conv2d(32, 64, 3, 2, 1),
        )
        self.middle, self.attention = Residual(64, 64), Attention(64)
        self.grow, self.up = nn.Conv2d(64, 32, 3, padding=1), Residual(64, 32)
        self.last = nn.Sequential(nn.GroupNorm(4, 32), nn.SiLU(), nn.Conv2d(32, 3, 3, padding=1))

    def forward(self, x: torch.Tensor, step: torch.Tensor) -> torch.Tensor:
        angles = step[:, None] * torch.exp(-torch.arange(32, device=x.device) / 32 * 9.2)
        time = self.time(torch.cat([angles.sin(), angles.cos()], -1))
        wide = self.down(self.first(x), time)
        y = self.attention(self.middle(self.shrink(wide), time))
        y = self.grow(F.interpolate(y, scale_factor=2.0, mode="nearest"))
        return self.last(self.up(torch.cat([y, wide], 1), time))


torch.manual_seed(0)
model = UNet().cuda().train()
optimizer, scaler = torch.optim.AdamW(model.parameters(), lr=1e-4), torch.amp.GradScaler("cuda")
images, noise = torch.randn(2, 3, 32, 32, device="cuda"), torch.randn(2, 3, 32, 32, device="cuda")
step = torch.randint(0, 1000, (2,), device="cuda")
torch.cuda.synchronize()

for _ in range(2):
    with torch.autocast("cuda", dtype=torch.float16):
        loss = F.mse_loss(model(images + noise, step), noise)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
print(f"loss {loss.item():.3f}")
