"""Trains a small Whisper: 1-D convolutions, an encoder, a decoder with attention across."""

import torch
from transformers import WhisperConfig, WhisperForConditionalGeneration

torch.manual_seed(0)
config = WhisperConfig(
    vocab_size=256, d_model=128, encoder_layers=2, decoder_layers=2, encoder_attention_heads=2,
    decoder_attention_heads=2, encoder_ffn_dim=256, decoder_ffn_dim=256, max_source_positions=40,
    max_target_positions=32, num_mel_bins=16, pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1,
)  # fmt: skip
model = WhisperForConditionalGeneration(config).to("cuda", torch.bfloat16).train()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
features = torch.randn(2, 16, 80, device="cuda", dtype=torch.bfloat16)
labels = torch.randint(3, 256, (2, 12), device="cuda")
torch.cuda.synchronize()

for _ in range(2):
    loss = model(features, labels=labels).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print(f"loss {loss.item():.3f}")
