"""Transcribes noise with a small Whisper of random weights: encoder once, decoder token by token with a cache.

Whisper-large on a GPU: --hidden 1280 --layers 32 --heads 20 --frames 3000 --tokens 32 --dtype float16
"""

import argparse

import torch
from transformers import WhisperConfig, WhisperForConditionalGeneration

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--hidden", type=int, default=64)
parser.add_argument("--layers", type=int, default=2)
parser.add_argument("--heads", type=int, default=4)
parser.add_argument("--vocabulary", type=int, default=512)
parser.add_argument("--frames", type=int, default=200)
parser.add_argument("--tokens", type=int, default=4)
parser.add_argument("--batch", type=int, default=1)
parser.add_argument("--dtype", choices=["float32", "bfloat16", "float16"], default="float32")
parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
args = parser.parse_args()

torch.manual_seed(0)
config = WhisperConfig(
    vocab_size=args.vocabulary,
    d_model=args.hidden,
    encoder_layers=args.layers,
    decoder_layers=args.layers,
    encoder_attention_heads=args.heads,
    decoder_attention_heads=args.heads,
    encoder_ffn_dim=args.hidden * 4,
    decoder_ffn_dim=args.hidden * 4,
    max_source_positions=args.frames // 2,
    max_target_positions=args.tokens + 4,
    pad_token_id=0,
    bos_token_id=1,
    eos_token_id=2,
    decoder_start_token_id=1,
    begin_suppress_tokens=None,
)
dtype = getattr(torch, args.dtype)
model = WhisperForConditionalGeneration(config).to(args.device, dtype).eval()
features = torch.randn(args.batch, config.num_mel_bins, args.frames, device=args.device, dtype=dtype)

with torch.no_grad():
    tokens = model.generate(features, max_new_tokens=args.tokens, do_sample=False)
print("tokens", tokens.tolist())
