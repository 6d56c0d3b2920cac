"""Graph networks, sparse tensors and embedding bags."""

from __future__ import annotations

import torch
from torch import nn

from tests.zoo.program import device, gradients, state, train


def _edges(n_nodes: int = 12, n_edges: int = 30) -> torch.Tensor:
    return torch.randint(0, n_nodes, (2, n_edges), device=device())


def graph_network_training() -> list[torch.Tensor]:
    from torch_geometric.nn import GATConv, GCNConv, SAGEConv, global_mean_pool

    layers = nn.ModuleList([GCNConv(6, 16), GATConv(16, 8, heads=2), SAGEConv(16, 8, aggr="max"), nn.Linear(8, 3)])
    model, edges = layers.to(device()), _edges()
    x = torch.randn(12, 6, device=device())
    batch = torch.arange(12, device=device()) // 6
    labels = torch.tensor([0, 2], device=device())

    def forward() -> torch.Tensor:
        hidden = x
        for layer in layers[:3]:
            hidden = torch.relu(layer(hidden, edges))
        return nn.functional.cross_entropy(layers[3](global_mean_pool(hidden, batch)), labels)

    return train(model, forward)


def graph_scatter_training() -> list[torch.Tensor]:
    """Message passing by hand: gather, scatter_add, scatter_reduce, index_add, softmax over edges."""
    message, update = nn.Linear(12, 16), nn.GRUCell(16, 6)
    model, (source, target) = nn.ModuleList([message, update]).to(device()), _edges()
    x = torch.randn(12, 6, device=device())

    def forward() -> torch.Tensor:
        sent = torch.relu(message(torch.cat([x[source], x[target]], -1)))
        score = sent.mean(-1)
        peak = torch.full((12,), -1e9, device=device()).scatter_reduce(0, target, score.detach(), "amax")
        weight = (score - peak[target]).exp()
        total = torch.zeros(12, device=device()).scatter_add(0, target, weight)
        arrived = torch.zeros(12, 16, device=device()).index_add(0, target, sent * (weight / total[target])[:, None])
        degree = torch.bincount(target, minlength=12).clamp(min=1)
        return update(arrived / degree[:, None], x).square().mean()

    return train(model, forward)


def sparse_adjacency_training() -> list[torch.Tensor]:
    linear, (row, column) = nn.Linear(6, 4).to(device()), _edges()
    adjacency = torch.sparse_coo_tensor(torch.stack([row, column]), torch.ones(30, device=device()), (12, 12))
    normal = adjacency.coalesce()
    csr = normal.to_sparse_csr()
    x = torch.randn(12, 6, device=device())

    def forward() -> torch.Tensor:
        return (torch.sparse.mm(normal, linear(x)).relu() + csr @ linear(x)).square().mean()

    return train(linear, forward)


def embedding_bags_training() -> list[torch.Tensor]:
    bags = nn.ModuleList([nn.EmbeddingBag(20, 8, mode=mode) for mode in ("sum", "mean", "max")]).to(device())
    ids = torch.randint(0, 20, (15,), device=device())
    offsets = torch.tensor([0, 4, 4, 9], device=device())
    weights = torch.rand(15, device=device())

    def forward() -> torch.Tensor:
        summed = bags[0](ids, offsets, per_sample_weights=weights)
        return (summed + bags[1](ids, offsets) + bags[2](ids.view(5, 3)[:4])).square().mean()

    return train(bags, forward)


def sparse_embedding_training() -> list[torch.Tensor]:
    """Gradients of a sparse embedding are sparse tensors, and so is what SparseAdam works on."""
    embedding, bag = nn.Embedding(20, 8, sparse=True), nn.EmbeddingBag(20, 8, mode="sum", sparse=True)
    model = nn.ModuleList([embedding, bag]).to(device())
    ids = torch.randint(0, 20, (4, 3), device=device())
    optimizer = torch.optim.SparseAdam(list(model.parameters()), lr=1e-2)
    loss = (embedding(ids).sum(1) * bag(ids)).sum()
    loss.backward()
    dense = [grad.to_dense() for grad in gradients(model)]
    optimizer.step()
    return [loss.detach(), *dense, *state(model)]
