"""Trains a small ViT under bf16 autocast, then classifies in inference mode."""

import torch
from transformers import ViTConfig, ViTForImageClassification

torch.manual_seed(0)
config = ViTConfig(
    image_size=64, patch_size=16, hidden_size=128, num_hidden_layers=2, num_attention_heads=2, intermediate_size=256,
    num_labels=10,
)  # fmt: skip
model = ViTForImageClassification(config).cuda().train()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
images, labels = torch.randn(4, 3, 64, 64, device="cuda"), torch.randint(0, 10, (4,), device="cuda")
torch.cuda.synchronize()

for _ in range(2):
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = model(images, labels=labels).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
model.eval()
with torch.inference_mode():
    print(f"class {model(images).logits[0].argmax().item()}")
