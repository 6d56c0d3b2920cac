"""Trains embedding bags of three modes, with weights and padding, in fp32 and bf16."""

import torch
from torch import nn

torch.manual_seed(0)
bags = nn.ModuleList([nn.EmbeddingBag(64, 32, mode=mode, padding_idx=0) for mode in ("sum", "mean", "max")]).cuda()
half = nn.EmbeddingBag(64, 32, mode="sum").to("cuda", torch.bfloat16)
head = nn.Linear(96, 1).cuda()
optimizer = torch.optim.Adagrad([*bags.parameters(), *half.parameters(), *head.parameters()], lr=0.1)
index = torch.randint(0, 64, (40,), device="cuda")
offsets = torch.tensor([0, 7, 7, 20], device="cuda")
weights = torch.rand(40, device="cuda", dtype=torch.bfloat16)
torch.cuda.synchronize()

for _ in range(2):
    features = torch.cat([bag(index, offsets) for bag in bags], -1)
    loss = head(features).square().mean() + half(index, offsets, per_sample_weights=weights).float().square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print(f"loss {loss.item():.3f}")
