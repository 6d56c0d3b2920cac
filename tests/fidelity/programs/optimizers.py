"""Steps a small network with every optimizer in its default form, and with fused, capturable and averaged ones."""

import torch
from torch import nn

torch.manual_seed(0)
kinds = [
    ("SGD", {"lr": 0.1, "momentum": 0.9}), ("Adam", {}), ("AdamW", {}), ("NAdam", {}), ("RAdam", {}), ("Adagrad", {}),
    ("RMSprop", {}), ("Adadelta", {}), ("Adamax", {}), ("Rprop", {}), ("ASGD", {}), ("AdamW", {"fused": True}),
    ("Adam", {"fused": True, "amsgrad": True}), ("SGD", {"lr": 0.1, "fused": True}), ("AdamW", {"capturable": True}),
    ("AdamW", {"lr": torch.tensor(0.01), "fused": True}), ("Adam", {"foreach": False}),
]  # fmt: skip
models = [nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 4)).to("cuda") for _ in kinds]
averaged = torch.optim.swa_utils.AveragedModel(models[0])
x = torch.randn(8, 16, device="cuda")
torch.cuda.synchronize()

for model, (kind, options) in zip(models, kinds, strict=True):
    optimizer = getattr(torch.optim, kind)(model.parameters(), **options)
    for _ in range(2):
        model(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
for _ in range(2):
    averaged.update_parameters(models[0])
