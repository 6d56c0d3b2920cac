"""Trains a small T5, whose attention has a learned bias and no scale."""

import torch
from transformers import T5Config, T5ForConditionalGeneration

torch.manual_seed(0)
config = T5Config(
    vocab_size=256, d_model=128, d_kv=64, d_ff=256, num_layers=2, num_heads=2, decoder_start_token_id=0, pad_token_id=0
)
model = T5ForConditionalGeneration(config).to("cuda").train()
optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-4, momentum=0.9)
source = torch.randint(3, 256, (2, 32), device="cuda")
target = torch.randint(3, 256, (2, 16), device="cuda")
torch.cuda.synchronize()

for _ in range(2):
    loss = model(input_ids=source, labels=target).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print(f"loss {loss.item():.3f}")
