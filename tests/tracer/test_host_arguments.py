"""Arguments that stay on the host beside a GPU are marked so in a trace that was made without one."""

from __future__ import annotations

import torch

from audit.schema import Source
from audit.tracer.recorder import Recorder


def test_lengths_of_packed_sequences_stay_on_the_host() -> None:
    recorder = Recorder(None)
    recorder.start()
    packed = torch.nn.utils.rnn.pack_padded_sequence(torch.randn(5, 3, 4), torch.tensor([5, 4, 2]))
    torch.nn.GRU(4, 6)(packed)
    recorder.stop()
    trace, _ = recorder.build(Source("script", "test"), {})
    hosts = {
        case.op: [arg.host for arg in case.args if hasattr(arg, "host")]
        for case in trace.cases
        if "pack" in case.op or "gru" in case.op
    }
    assert hosts == {
        "aten::_pack_padded_sequence.default": [False, True],
        "aten::gru.data": [False, True, False],
    }
