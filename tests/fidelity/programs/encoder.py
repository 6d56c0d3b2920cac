"""An nn.TransformerEncoder: the fast path with and without padding in eval mode, then a training step."""

import torch
from torch import nn

torch.manual_seed(0)
layer = nn.TransformerEncoderLayer(128, 2, 256, dropout=0.1, batch_first=True, activation="gelu")
model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).to("cuda").eval()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x = torch.randn(2, 32, 128, device="cuda")
padding = torch.zeros(2, 32, dtype=torch.bool, device="cuda")
padding[1, 20:] = True
torch.cuda.synchronize()

with torch.no_grad():
    y = model(x)
    y = y + model(x, src_key_padding_mask=padding)
with torch.inference_mode():
    z = model(x.clone())
model.train()
for _ in range(2):
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print(f"loss {loss.item():.3f}")
