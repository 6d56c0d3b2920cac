"""Programs of two ranks over gloo: ``torchrun --nproc-per-node=2 -m tests.zoo.distributed NAME FOLDER``.

Each rank writes a digest of all that it computed to ``FOLDER/rankN.txt``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

from tests.zoo.program import digest, train


def _network() -> nn.Sequential:
    return nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 3))


def _loss(model: nn.Module) -> Callable[[], torch.Tensor]:
    x, y = torch.randn(4, 8) + dist.get_rank(), torch.randint(0, 3, (4,))
    return lambda: nn.functional.cross_entropy(model(x), y)


def ddp_training() -> list[torch.Tensor]:
    model = nn.parallel.DistributedDataParallel(_network())
    return train(model, _loss(model), n=2)


def fsdp2_training() -> list[torch.Tensor]:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import DTensor

    model, mesh = _network(), init_device_mesh("cpu", (2,))
    for layer in (model[0], model[3]):
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    results = train(model, _loss(model), n=2)
    return [result.to_local() if isinstance(result, DTensor) else result for result in results]


def tensor_parallel_inference() -> list[torch.Tensor]:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 3))
    parallelize_module(model, init_device_mesh("cpu", (2,)), {"0": ColwiseParallel(), "2": RowwiseParallel()})
    torch.manual_seed(1)
    with torch.no_grad():
        return [model(torch.randn(4, 8))]


PROGRAMS: tuple[Callable[[], list[torch.Tensor]], ...] = (ddp_training, fsdp2_training, tensor_parallel_inference)


def main(name: str, folder: Path) -> None:
    [program] = [program for program in PROGRAMS if program.__name__ == name]
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    try:
        (folder / f"rank{dist.get_rank()}.txt").write_text(digest([*program(), torch.get_rng_state()]))
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
