"""Trains a speech recogniser: 1-D convolution, GRU, CTC loss with lengths on the host and on the device."""

import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)
conv, gru, head = nn.Conv1d(16, 32, 5, 2, 2), nn.GRU(32, 32, bidirectional=True), nn.Linear(64, 12)
model = nn.ModuleList([conv, gru, head]).cuda().train()
optimizer = torch.optim.Adadelta(model.parameters())
sound = torch.randn(3, 16, 64, device="cuda")
labels = torch.randint(1, 12, (3, 8), device="cuda")
torch.cuda.synchronize()

for step in range(2):
    features = F.relu(conv(sound)).permute(2, 0, 1)
    log_probs = head(gru(features)[0]).log_softmax(-1)
    place = "cpu" if step == 0 else "cuda"
    lengths = torch.tensor([32, 30, 24], device=place), torch.tensor([8, 7, 5], device=place)
    loss = F.ctc_loss(log_probs, labels, *lengths, zero_infinity=True)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print(f"loss {loss.item():.3f}")
