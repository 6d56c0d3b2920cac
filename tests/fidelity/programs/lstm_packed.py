"""Trains a bidirectional LSTM and a GRU on packed sequences of different lengths."""

import torch
from torch import nn

torch.manual_seed(0)
embedding, lstm = nn.Embedding(64, 32, padding_idx=0), nn.LSTM(32, 32, 2, dropout=0.2, bidirectional=True)
gru, head = nn.GRU(64, 32, batch_first=True), nn.Linear(32, 8)
model = nn.ModuleList([embedding, lstm, gru, head]).to("cuda").train()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
tokens = torch.randint(1, 64, (20, 4), device="cuda")
lengths = torch.tensor([20, 15, 9, 4])
labels = torch.randint(0, 8, (4,), device="cuda")
torch.cuda.synchronize()

for _ in range(2):
    packed = nn.utils.rnn.pack_padded_sequence(embedding(tokens), lengths)
    padded, _ = nn.utils.rnn.pad_packed_sequence(lstm(packed)[0])
    _, last = gru(padded.transpose(0, 1))
    loss = nn.functional.cross_entropy(head(last[-1]), labels)
    loss.backward()
    nn.utils.clip_grad_value_(model.parameters(), 0.5)
    optimizer.step()
    optimizer.zero_grad()
print(f"loss {loss.item():.3f}")
