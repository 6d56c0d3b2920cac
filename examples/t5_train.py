"""Trains a small T5 on random pairs: encoder and decoder, relative position biases, tied embeddings.

T5-large on a GPU: --hidden 1024 --layers 24 --heads 16 --seq 512 --batch 8 --dtype bfloat16
"""

import argparse

import torch
from transformers import T5Config, T5ForConditionalGeneration

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--hidden", type=int, default=64)
parser.add_argument("--layers", type=int, default=2)
parser.add_argument("--heads", type=int, default=4)
parser.add_argument("--vocabulary", type=int, default=512)
parser.add_argument("--seq", type=int, default=32)
parser.add_argument("--batch", type=int, default=2)
parser.add_argument("--steps", type=int, default=2)
parser.add_argument("--dtype", choices=["float32", "bfloat16", "float16"], default="float32")
parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
args = parser.parse_args()

torch.manual_seed(0)
config = T5Config(
    vocab_size=args.vocabulary,
    d_model=args.hidden,
    d_kv=args.hidden // args.heads,
    d_ff=args.hidden * 4,
    num_layers=args.layers,
    num_heads=args.heads,
    feed_forward_proj="gated-gelu",
    decoder_start_token_id=0,
)
model = T5ForConditionalGeneration(config).to(args.device, getattr(torch, args.dtype))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

model.train()
for step in range(args.steps):
    source = torch.randint(args.vocabulary, (args.batch, args.seq), device=args.device)
    target = torch.randint(args.vocabulary, (args.batch, args.seq // 2), device=args.device)
    loss = model(input_ids=source, labels=target).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(f"step {step}: loss {loss.item():.4f}")
