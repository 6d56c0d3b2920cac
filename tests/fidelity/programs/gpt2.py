"""Trains a small GPT-2 with its usual dropout, under fp16 autocast with a gradient scaler."""

import torch
from transformers import GPT2Config, GPT2LMHeadModel

torch.manual_seed(0)
config = GPT2Config(vocab_size=256, n_positions=64, n_embd=128, n_layer=2, n_head=2)
model = GPT2LMHeadModel(config).to("cuda").train()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, weight_decay=0.01)
scaler = torch.amp.GradScaler("cuda")
tokens = torch.randint(0, 256, (2, 48), device="cuda")
torch.cuda.synchronize()

for _ in range(2):
    with torch.autocast("cuda", dtype=torch.float16):
        loss = model(tokens, labels=tokens, use_cache=False).loss
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
print(f"loss {loss.item():.3f}")
