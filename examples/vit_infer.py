"""A small Vision Transformer as a file that defines `model` and `inputs`: the audit runs one forward call of it.

ViT-L on a GPU: -- --hidden 1024 --layers 24 --heads 16 --image 224 --batch 32 --dtype bfloat16
"""

import argparse

import torch
from transformers import ViTConfig, ViTForImageClassification

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--hidden", type=int, default=64)
parser.add_argument("--layers", type=int, default=2)
parser.add_argument("--heads", type=int, default=4)
parser.add_argument("--image", type=int, default=64)
parser.add_argument("--patch", type=int, default=16)
parser.add_argument("--batch", type=int, default=2)
parser.add_argument("--dtype", choices=["float32", "bfloat16", "float16"], default="float32")
parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
args = parser.parse_args()

torch.manual_seed(0)
config = ViTConfig(
    hidden_size=args.hidden,
    intermediate_size=args.hidden * 4,
    num_hidden_layers=args.layers,
    num_attention_heads=args.heads,
    image_size=args.image,
    patch_size=args.patch,
)
dtype = getattr(torch, args.dtype)
model = ViTForImageClassification(config).to(args.device, dtype).eval()
inputs = (torch.rand(args.batch, 3, args.image, args.image, device=args.device, dtype=dtype),)
