"""Training steps of real architectures with random weights on a healthy device: how far from the noise they go."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from audit.drift_records import Drift, DriftEnd, DriftStep
from audit.replay.drift.player import play
from audit.replay.engine import ReplaySettings
from audit.rules.drift import judge_drift
from audit.rules.thresholds import DEFAULT
from audit.schema import DeviceInfo
from audit.targets import InputShape, find_target
from audit.tracer.launch import tape_in_child

PROGRAM = """
import torch, transformers
torch.manual_seed(0)
config = transformers.AutoConfig.for_model({kind!r}, **{fields!r})
model = transformers.{cls}(config)
tokens = torch.randint(0, 100, (2, 16))
inputs = {inputs}
optimizer = torch.optim.AdamW(model.parameters())
"""
_SMALL = {"vocab_size": 128, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 3}
_HEADS = {"num_attention_heads": 4}
MODELS: Mapping[str, tuple[str, dict[str, Any], str]] = {
    "llama": (
        "LlamaForCausalLM",
        {**_SMALL, **_HEADS, "num_key_value_heads": 2},
        '{"input_ids": tokens, "labels": tokens}',
    ),
    "bert": ("BertForMaskedLM", {**_SMALL, **_HEADS}, '{"input_ids": tokens, "labels": tokens}'),
    "gpt2": (
        "GPT2LMHeadModel",
        {"vocab_size": 128, "n_embd": 64, "n_layer": 3, "n_head": 4},
        '{"input_ids": tokens, "labels": tokens}',
    ),
    "vit": (
        "ViTForImageClassification",
        {
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_hidden_layers": 3,
            "image_size": 32,
            "patch_size": 8,
            **_HEADS,
        },
        '{"pixel_values": torch.randn(2, 3, 32, 32), "labels": torch.tensor([0, 1])}',
    ),
    "t5": (
        "T5ForConditionalGeneration",
        {
            "vocab_size": 128,
            "d_model": 64,
            "d_ff": 128,
            "d_kv": 16,
            "num_layers": 2,
            "num_heads": 4,
            "decoder_start_token_id": 0,
        },
        '{"input_ids": tokens, "labels": tokens}',
    ),
    "resnet": (
        "ResNetForImageClassification",
        {"embedding_size": 16, "hidden_sizes": [16, 32], "depths": [1, 1], "layer_type": "basic"},
        '{"pixel_values": torch.randn(2, 3, 32, 32), "labels": torch.tensor([0, 1])}',
    ),
}


@pytest.fixture
def played(tmp_path: Path) -> Callable[[str], Drift]:
    def run(kind: str) -> Drift:
        cls, fields, inputs = MODELS[kind]
        program = tmp_path / "model.py"
        program.write_text(PROGRAM.format(kind=kind, cls=cls, fields=fields, inputs=inputs))
        gpu = DeviceInfo("none", "AMD Instinct MI300X", "gfx942")
        tape_in_child(find_target(str(program), False, ()), tmp_path, 1 << 32, "train", gpu, InputShape())
        records = list(play(ReplaySettings(device="sim"), tmp_path))
        end = records[-1]
        assert isinstance(end, DriftEnd)
        return Drift(tuple(record for record in records if isinstance(record, DriftStep)), end)

    return run


@pytest.mark.evidence
@pytest.mark.parametrize("kind", MODELS)
def test_a_training_step_of_a_healthy_device_has_no_finding(played: Callable[[str], Drift], kind: str) -> None:
    pytest.importorskip("transformers")
    drift = played(kind)
    judged = judge_drift(drift, DEFAULT)
    assert judged is not None
    print(kind, judged.sentence)  # for docs/drift.md
    assert judged.findings == ()
    assert drift.end is not None
    assert drift.end.n_steps == drift.end.n_calls > 100
