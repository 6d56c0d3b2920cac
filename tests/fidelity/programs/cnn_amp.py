"""Trains a residual CNN in channels_last under fp16 autocast with a gradient scaler, as image models are trained."""

import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    def __init__(self, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(width // stride, width, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, groups=2, bias=False)
        self.norm2 = nn.BatchNorm2d(width)
        self.shortcut = nn.Identity() if stride == 1 else nn.Conv2d(width // stride, width, 1, stride, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.relu(self.norm1(self.conv1(x)), inplace=True)
        return F.relu(self.norm2(self.conv2(y)) + self.shortcut(x), inplace=True)


torch.manual_seed(0)
model = nn.Sequential(
    nn.Conv2d(3, 16, 7, 2, 3, bias=False), nn.BatchNorm2d(16), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1),
    Block(16, 1), Block(32, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.1), nn.Linear(32, 10),
)  # fmt: skip
model = model.to("cuda", memory_format=torch.channels_last).train()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4, nesterov=True)
scaler = torch.amp.GradScaler("cuda")
images = torch.rand(4, 3, 64, 64, device="cuda").to(memory_format=torch.channels_last)
labels = torch.randint(10, (4,), device="cuda")
torch.cuda.synchronize()

for _ in range(2):
    with torch.autocast("cuda", dtype=torch.float16):
        loss = F.cross_entropy(model(images), labels, label_smoothing=0.1)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
print(f"loss {loss.item():.3f}")
