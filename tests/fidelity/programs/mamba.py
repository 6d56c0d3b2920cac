"""Trains a small Mamba by its portable scan, without the kernels of its own package."""

import torch
from transformers import MambaConfig, MambaForCausalLM

torch.manual_seed(0)
config = MambaConfig(vocab_size=256, hidden_size=64, state_size=8, num_hidden_layers=2)
model = MambaForCausalLM(config).to("cuda").train()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
tokens = torch.randint(0, 256, (2, 16), device="cuda")
torch.cuda.synchronize()

for _ in range(2):
    loss = model(input_ids=tokens, labels=tokens, use_cache=False).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print(f"loss {loss.item():.3f}")
