"""Trains a small Llama with dropout in its attention, causal and unpadded, under bf16 autocast."""

import torch
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(0)
config = LlamaConfig(
    vocab_size=256, hidden_size=256, intermediate_size=512, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=4, max_position_embeddings=128, attention_dropout=0.1,
)  # fmt: skip
model = LlamaForCausalLM(config).cuda().train()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
tokens = torch.randint(3, 256, (2, 64), device="cuda")
torch.cuda.synchronize()

for _ in range(2):
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = model(input_ids=tokens, labels=tokens, use_cache=False).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print(f"loss {loss.item():.3f}")
