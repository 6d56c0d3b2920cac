"""What collectives pass among ranks, of one rank over gloo and by their arguments."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from audit.schema import Source
from audit.tracer.recorder import Recorder


@pytest.fixture
def one_rank(tmp_path: Path) -> Iterator[None]:
    if not dist.is_available() or not dist.is_gloo_available():
        pytest.skip("this torch has no gloo")
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/meeting", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.usefixtures("one_rank")
def test_a_trace_says_what_its_collectives_passed_and_among_how_many() -> None:
    x = torch.ones(8)
    recorder = Recorder(None).start()
    try:
        for _ in range(3):
            dist.all_reduce(x)
        dist.all_gather([torch.empty(8)], x)
        dist.barrier()
    finally:
        recorder.stop()
    trace, _ = recorder.build(Source("context", "test"), {})
    passed = {item.what: (item.n_calls, item.nbytes, item.n_ranks) for item in trace.not_audited}
    assert passed["c10d::allreduce_.default"] == (3, 96, 1)
    assert passed["c10d::allgather_.default"] == (1, 32, 1)
    assert passed["c10d::barrier.default"] == (1, 0, 0)


def test_a_gather_by_name_counts_what_it_gathers_and_a_wait_nothing() -> None:
    from audit.tracer.collectives import Message, message_of

    functional = torch.ops._c10d_functional
    x = torch.ones(8)
    assert message_of(functional.all_gather_into_tensor.default, (x, 4, "0"), {}) == Message(128, 4)
    assert message_of(functional.reduce_scatter_tensor.default, (x, "sum", 4, "0"), {}) == Message(32, 4)
    assert message_of(functional.all_reduce.default, (x, "sum", "no such group"), {}) == Message(32, 0)
    assert message_of(functional.wait_tensor.default, (x,), {}) is None
