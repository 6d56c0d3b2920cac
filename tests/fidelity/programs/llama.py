"""Trains a small Llama with grouped-query attention on padded sequences, in bf16."""

import torch
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(0)
config = LlamaConfig(
    vocab_size=256, hidden_size=256, intermediate_size=512, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, max_position_embeddings=128,
)  # fmt: skip
model = LlamaForCausalLM(config).to("cuda", torch.bfloat16).train()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
tokens = torch.randint(3, 256, (2, 64), device="cuda")
mask = torch.ones_like(tokens)
mask[1, 48:] = 0
torch.cuda.synchronize()

for _ in range(2):
    loss = model(input_ids=tokens, attention_mask=mask, labels=tokens, use_cache=False).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
print(f"loss {loss.item():.3f}")
