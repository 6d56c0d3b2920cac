"""Trains a residual CNN in channels_last under autocast with a gradient scaler, as image models are trained.

At real size on a GPU: --image 224 --batch 64 --width 64 --blocks 3 --classes 1000 --dtype float16
"""

import argparse

import torch
from torch import nn
from torch.nn import functional


class Residual(nn.Module):
    """Two 3x3 convolutions with batch norm around a shortcut; the first one may stride."""

    def __init__(self, channels_in: int, channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(channels)
        self.shortcut = nn.Identity()
        if stride != 1 or channels_in != channels:
            conv = nn.Conv2d(channels_in, channels, 1, stride, bias=False)
            self.shortcut = nn.Sequential(conv, nn.BatchNorm2d(channels))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = functional.relu(self.norm1(self.conv1(x)), inplace=True)
        return functional.relu(self.norm2(self.conv2(y)) + self.shortcut(x), inplace=True)


class ResidualNet(nn.Module):
    """A stem, three stages that each halve the image and double the width, and a linear head."""

    def __init__(self, width: int, blocks: int, classes: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, width, 7, 2, 3, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, 2, 1),
        )
        channels = [width, width, width * 2, width * 4]
        self.stages = nn.Sequential(
            *(
                Residual(channels[stage] if block == 0 else channels[stage + 1], channels[stage + 1], 1 + (block == 0))
                for stage in range(3)
                for block in range(blocks)
            )
        )
        self.head = nn.Linear(channels[-1], classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(functional.adaptive_avg_pool2d(self.stages(self.stem(x)), 1).flatten(1))


parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--image", type=int, default=64)
parser.add_argument("--batch", type=int, default=4)
parser.add_argument("--width", type=int, default=16)
parser.add_argument("--blocks", type=int, default=1)
parser.add_argument("--classes", type=int, default=10)
parser.add_argument("--steps", type=int, default=2)
parser.add_argument("--dtype", choices=["bfloat16", "float16"], default="bfloat16", help="of autocast")
parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
args = parser.parse_args()

torch.manual_seed(0)
model = ResidualNet(args.width, args.blocks, args.classes).to(args.device, memory_format=torch.channels_last)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
kind = torch.device(args.device).type
scaler = torch.amp.GradScaler(kind)

model.train()
for step in range(args.steps):
    images = torch.rand(args.batch, 3, args.image, args.image, device=args.device)
    images = images.to(memory_format=torch.channels_last)
    labels = torch.randint(args.classes, (args.batch,), device=args.device)
    with torch.autocast(kind, getattr(torch, args.dtype)):
        loss = functional.cross_entropy(model(images), labels)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
    print(f"step {step}: loss {loss.item():.4f}")
