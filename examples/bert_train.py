"""Fine-tunes a small BERT classifier on padded batches, so that the attention masks carry real zeros.

BERT-base on a GPU: --hidden 768 --layers 12 --heads 12 --seq 512 --batch 16 --dtype bfloat16
"""

import argparse

import torch
from transformers import BertConfig, BertForSequenceClassification

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--hidden", type=int, default=64)
parser.add_argument("--layers", type=int, default=2)
parser.add_argument("--heads", type=int, default=4)
parser.add_argument("--vocabulary", type=int, default=512)
parser.add_argument("--seq", type=int, default=48)
parser.add_argument("--batch", type=int, default=4)
parser.add_argument("--steps", type=int, default=2)
parser.add_argument("--dtype", choices=["float32", "bfloat16", "float16"], default="float32")
parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
args = parser.parse_args()

torch.manual_seed(0)
config = BertConfig(
    vocab_size=args.vocabulary,
    hidden_size=args.hidden,
    intermediate_size=args.hidden * 4,
    num_hidden_layers=args.layers,
    num_attention_heads=args.heads,
    max_position_embeddings=args.seq,
    num_labels=3,
)
model = BertForSequenceClassification(config).to(args.device, getattr(torch, args.dtype))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

model.train()
for step in range(args.steps):
    tokens = torch.randint(args.vocabulary, (args.batch, args.seq), device=args.device)
    lengths = torch.randint(args.seq // 2, args.seq + 1, (args.batch, 1), device=args.device)
    mask = (torch.arange(args.seq, device=args.device) < lengths).long()
    labels = torch.randint(3, (args.batch,), device=args.device)
    loss = model(input_ids=tokens, attention_mask=mask, labels=labels).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(f"step {step}: loss {loss.item():.4f}")
