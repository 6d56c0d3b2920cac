"""Trains a small Llama with random weights on random tokens: an ordinary script that knows nothing of the audit.

At the size of one real layer pair, on a GPU: --hidden 4096 --heads 32 --seq 2048 --batch 1 --dtype bfloat16
"""

import argparse

import torch
from transformers import LlamaConfig, LlamaForCausalLM

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--hidden", type=int, default=64)
parser.add_argument("--layers", type=int, default=2)
parser.add_argument("--heads", type=int, default=4)
parser.add_argument("--vocabulary", type=int, default=512)
parser.add_argument("--seq", type=int, default=64)
parser.add_argument("--batch", type=int, default=2)
parser.add_argument("--steps", type=int, default=2)
parser.add_argument("--dtype", choices=["float32", "bfloat16", "float16"], default="float32")
parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
args = parser.parse_args()

torch.manual_seed(0)
config = LlamaConfig(
    vocab_size=args.vocabulary,
    hidden_size=args.hidden,
    intermediate_size=args.hidden * 11 // 4,
    num_hidden_layers=args.layers,
    num_attention_heads=args.heads,
    num_key_value_heads=max(1, args.heads // 2),
    max_position_embeddings=args.seq,
)
model = LlamaForCausalLM(config).to(args.device, getattr(torch, args.dtype))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01)

model.train()
for step in range(args.steps):
    tokens = torch.randint(args.vocabulary, (args.batch, args.seq), device=args.device)
    loss = model(input_ids=tokens, labels=tokens, use_cache=False).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    print(f"step {step}: loss {loss.item():.4f}")
