"""Programs with more than one thread or process: data loaders, thread pools."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tests.zoo.program import device, train


def dataloader_workers() -> list[torch.Tensor]:
    data = TensorDataset(torch.randn(16, 8), torch.randint(0, 3, (16,)))
    generator = torch.Generator().manual_seed(5)
    loader = DataLoader(data, batch_size=8, shuffle=True, num_workers=2, generator=generator)
    model = nn.Linear(8, 3).to(device())
    results: list[torch.Tensor] = []
    for x, y in loader:
        x, y = x.to(device()), y.to(device())
        results += train(model, lambda x=x, y=y: nn.functional.cross_entropy(model(x), y))
    return results


def threads() -> list[torch.Tensor]:
    model, batches = nn.Linear(8, 3).to(device()), [torch.randn(4, 8, device=device()) for _ in range(4)]

    def work(x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            return model(x).softmax(-1)

    with ThreadPoolExecutor(2) as pool:
        parts = list(pool.map(work, batches))
    return [torch.cat(parts), *train(model, lambda: model(batches[0]).square().mean())]
