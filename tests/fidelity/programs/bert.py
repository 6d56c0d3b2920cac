"""Trains a small BERT on padded sentences, in fp32 with dropout."""

import torch
from transformers import BertConfig, BertForMaskedLM

torch.manual_seed(0)
config = BertConfig(vocab_size=256, hidden_size=128, num_hidden_layers=2, num_attention_heads=2, intermediate_size=256)
model = BertForMaskedLM(config).to("cuda").train()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
tokens = torch.randint(0, 256, (4, 32), device="cuda")
mask = torch.ones_like(tokens)
mask[1, 20:] = 0
torch.cuda.synchronize()

for _ in range(2):
    loss = model(tokens, attention_mask=mask, labels=tokens).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print(f"loss {loss.item():.3f}")
