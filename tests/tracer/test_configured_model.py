"""A Hugging Face ``config.json`` as a target: models of every kind, and nothing from elsewhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from audit.cli import main
from audit.errors import UsageError
from audit.opset import read_opset
from audit.targets import InputShape, find_target
from audit.tracer import configured_model
from audit.tracer.program import Program, run_program
from audit.tracer.recorder import Recorder
from audit.tracer.shapes_only import ShapesOnly

LLAMA = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 32, "intermediate_size": 64,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100,
    "max_position_embeddings": 64, "torch_dtype": "bfloat16",
}  # fmt: skip
SMALL = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}


def written(folder: Path, content: Any) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps(content))
    return path


def faked(path: Path, mode: str, shape: InputShape) -> tuple[Recorder, str | None]:
    shapes = ShapesOnly()
    recorder = Recorder(None, shapes)
    with shapes.tracing():
        source = run_program(Program(str(path), kind="config", mode=mode, shape=shape), recorder)
    return recorder, source.error


@pytest.mark.parametrize(
    ("config", "inputs"),
    [
        (LLAMA, {"input_ids": (3, 16)}),
        ({"model_type": "bert", **SMALL}, {"input_ids": (3, 16)}),
        ({"model_type": "bert", "architectures": ["BertForSequenceClassification"], **SMALL}, {"input_ids": (3, 16)}),
        ({"model_type": "distilbert", "architectures": ["DistilBertForQuestionAnswering"], "dim": 32, "n_layers": 1,
          "hidden_dim": 64, "n_heads": 2}, {"input_ids": (3, 16)}),
        ({"model_type": "t5", "architectures": ["T5ForConditionalGeneration"], "d_model": 32, "d_kv": 8, "d_ff": 64,
          "num_layers": 1, "num_heads": 4}, {"input_ids": (3, 16), "decoder_input_ids": (3, 16)}),
        ({"model_type": "vit", "architectures": ["ViTForImageClassification"], "image_size": 32, **SMALL},
         {"pixel_values": (3, 3, 32, 32)}),
        ({"model_type": "whisper", "architectures": ["WhisperForConditionalGeneration"], "d_model": 32,
          "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2, "decoder_attention_heads": 2,
          "max_source_positions": 50}, {"input_features": (3, 80, 100), "decoder_input_ids": (3, 16)}),
        ({"model_type": "wav2vec2", "architectures": ["Wav2Vec2ForCTC"], **SMALL}, {"input_values": (3, 4000)}),
        ({"model_type": "clip", "architectures": ["CLIPModel"], "text_config": {"num_hidden_layers": 1},
          "vision_config": {"num_hidden_layers": 1}}, {"input_ids": (3, 16), "pixel_values": (3, 3, 224, 224)}),
    ],
)  # fmt: skip
def test_text_image_and_speech_models_get_inputs_and_train(
    config: dict[str, Any], inputs: dict[str, tuple[int, ...]], tmp_path: Path
) -> None:
    path = written(tmp_path, config)
    shape = InputShape(batch=3, seq=4000 if config["model_type"] == "wav2vec2" else 16)
    with ShapesOnly().tracing():
        made = configured_model.define(path, shape, "infer")["inputs"]
    assert {name: tuple(value.shape) for name, value in made.items()} == inputs
    recorder, error = faked(path, "train", shape)
    assert error is None
    assert recorder.n_recorded > 30


def test_the_dtype_is_the_configs_own_or_the_one_asked_for(tmp_path: Path) -> None:
    path = written(tmp_path, LLAMA)
    assert configured_model.define(path, InputShape(), "infer")["model"].dtype is torch.bfloat16
    assert configured_model.define(path, InputShape(dtype="float32"), "infer")["model"].dtype is torch.float32


def test_one_command_traces_a_config_and_names_the_file_after_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "llama-3").mkdir()
    written(tmp_path / "llama-3", LLAMA)
    monkeypatch.chdir(tmp_path)
    assert main(["trace", "llama-3", "--fake", "--seq", "24", "--mode", "train"]) == 0
    trace = read_opset(tmp_path / "llama-3.audit")
    assert (trace.source.kind, trace.source.mode) == ("config", "train")
    (attention,) = [case for case in trace.cases if "attention" in case.op]
    assert attention.n_calls == 2
    assert any("shapes only" in note for note in trace.notes)


@pytest.mark.parametrize(
    ("content", "slug"),
    [
        ({"hidden_size": 3}, "bad-config"),
        ([1], "bad-config"),
        ({"model_type": "nobody-has-this"}, "unknown-architecture"),
        ({**LLAMA, "architectures": ["Trainer"]}, "unknown-architecture"),
        ({**LLAMA, "architectures": ["../../evil"]}, "unknown-architecture"),
        ({**LLAMA, "architectures": ["BertForMaskedLM"]}, "bad-config"),
        ({**LLAMA, "num_hidden_layers": 10**9}, "bad-config"),
        ({**LLAMA, "num_attention_heads": "many"}, "bad-config"),
        ({**LLAMA, "hidden_act": "no_such_function"}, "bad-config"),
        ({"model_type": "detr", "use_pretrained_backbone": True}, "bad-config"),
    ],
)
def test_a_config_that_cannot_be_made_says_why(content: Any, slug: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as raised:
        configured_model.define(written(tmp_path, content), InputShape(), "infer")
    assert raised.value.slug == slug
    assert "config.json" in str(raised.value)


def test_code_and_kernels_from_elsewhere_are_never_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "modeling_evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    hostile = {
        **LLAMA, "auto_map": {"AutoConfig": "modeling_evil.Config", "AutoModelForCausalLM": "modeling_evil.Model"},
        "_attn_implementation": "kernels-community/evil", "attn_implementation": "evil/kernel",
        "quantization_config": {"quant_method": "evil"}, "_name_or_path": "evil/model",
    }  # fmt: skip
    model = configured_model.define(written(tmp_path, hostile), InputShape(), "infer")["model"]
    assert type(model).__name__ == "LlamaForCausalLM"
    assert model.config._attn_implementation == "sdpa"
    with pytest.raises(UsageError, match="is not run"):
        configured_model.define(written(tmp_path, {**hostile, "model_type": "evil"}), InputShape(), "infer")
    assert not (tmp_path / "ran").exists()


def test_more_tokens_than_positions_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="64 positions"):
        configured_model.define(written(tmp_path, LLAMA), InputShape(seq=65), "infer")


@pytest.mark.parametrize(
    ("content", "arguments", "slug"),
    [
        (b"{", ["config.json"], "bad-config"),
        (b'{"a": []}', ["t.json"], "unsupported-target"),
        (b'{"traceEvents": []}', ["t.json"], "bad-arguments"),
        (b"x = 1", ["t.py", "--batch", "2"], "bad-arguments"),
        (b"{}", ["config.json", "--", "--lr", "1"], "bad-arguments"),
    ],
)
def test_bad_targets_are_told_apart_on_the_command_line(
    content: bytes, arguments: list[str], slug: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    (tmp_path / arguments[0]).write_bytes(content)
    assert main(["trace", *arguments]) == 2
    assert f"[{slug}]" in capfd.readouterr().err


def test_a_json_file_with_another_name_is_a_config_where_it_names_a_model_type(tmp_path: Path) -> None:
    (tmp_path / "mine.json").write_text(json.dumps(LLAMA))
    target = find_target(str(tmp_path / "mine.json"), False, ())
    assert (target.kind, target.stem) == ("config", "mine")
