"""A model from a Hugging Face ``config.json``: random weights, inputs that fit the config, nothing downloaded.

The file may come from a stranger. Only classes of the installed transformers are made; code that the config points to
(``auto_map``), kernels and pretrained parts on a hub are left out or refused.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from audit import strict_json
from audit.errors import UsageError
from audit.targets import MAX_CONFIG_BYTES, InputShape

#: Entries that would fetch or run something that is not in the installed transformers, wherever they stand.
_LEFT_OUT = frozenset(
    "auto_map _name_or_path name_or_path custom_pipelines attn_implementation _attn_implementation "
    "_attn_implementation_internal experts_implementation _experts_implementation use_kernels quantization_config "
    "transformers_version".split()
)
#: Parts that transformers would fetch from a hub while it makes the model.
_FETCHED = ("use_pretrained_backbone", "backbone_checkpoint")
#: No published model has as many of anything but numbers; a hostile one would be built for ever.
_MAX_LAYERS = 10_000
_DEFAULT_SEQ = 512
_DEFAULT_SAMPLES = 16_000  # one second of speech


def define(path: Path, shape: InputShape, mode: str) -> dict[str, Any]:
    """``model`` and ``inputs`` of the config at ``path``. Raises UsageError."""
    os.environ["HF_HUB_OFFLINE"] = "1"  # read when transformers is imported
    try:
        import transformers
    except ImportError as error:
        raise UsageError(
            f"{path.name} is a Hugging Face config, and this Python has no transformers ({error}); install it",
            "no-transformers",
        ) from error
    content = _read(path)
    config = _config(path, content)
    model_class = _model_class(path, content, config)
    torch.manual_seed(0)
    dtype = None if shape.dtype is None else getattr(torch, shape.dtype)
    try:
        model = model_class._from_config(config, dtype=dtype or config.dtype or torch.float32)
    except Exception as error:  # whatever a class of transformers makes of a config that does not fit
        raise _bad(path, f"{model_class.__name__} cannot be made from it: {type(error).__name__}: {error}") from error
    assert isinstance(model, transformers.PreTrainedModel)
    inputs = Inputs(path, model, shape, train=mode == "train").all()
    if torch.cuda.is_available():
        model = torch.nn.Module.cuda(model)
        return {"model": model, "inputs": {name: _to_gpu(value) for name, value in inputs.items()}}
    return {"model": model, "inputs": inputs}


def _to_gpu(value: Any) -> Any:
    return value.to("cuda") if isinstance(value, torch.Tensor) else value


def _bad(path: Path, what: str) -> UsageError:
    return UsageError(f"{path}: {' '.join(what.split())}", "bad-config")


# --- the config ----------------------------------------------------------------------------------------------------


def _read(path: Path) -> Mapping[str, Any]:
    try:
        data = path.read_bytes()
        content = strict_json.loads(data, max_values=1 << 16) if len(data) <= MAX_CONFIG_BYTES else None
    except OSError as error:
        raise _bad(path, f"cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise _bad(path, f"is no JSON: {error}") from error
    if not isinstance(content, dict) or not isinstance(content.get("model_type"), str):
        raise _bad(path, "has no model_type, so it is no Hugging Face config")
    return content


def _config(path: Path, content: Mapping[str, Any]) -> Any:
    from transformers import CONFIG_MAPPING

    model_type = content["model_type"]
    if model_type not in CONFIG_MAPPING:
        import transformers

        remote = ", and the code that its auto_map names is not run" if "auto_map" in content else ""
        raise UsageError(
            f"{path}: transformers {transformers.__version__} has no model type {model_type!r}{remote}; "
            "install a version that has it, or write a script that makes the model",
            "unknown-architecture",
        )
    config_class = CONFIG_MAPPING[model_type]
    try:
        config = config_class.from_dict(_cleaned(path, dict(content)))
    except UsageError:
        raise
    except Exception as error:  # transformers' own checks raise classes of their own
        raise _bad(path, f"is no {config_class.__name__}: {type(error).__name__}: {error}") from error
    return config


def _cleaned(path: Path, content: Mapping[str, Any]) -> dict[str, Any]:
    """Without what fetches or runs something from elsewhere, at any depth. Raises UsageError."""
    cleaned: dict[str, Any] = {}
    for name, value in content.items():
        if name in _LEFT_OUT:
            continue
        if name in _FETCHED and value:
            raise _bad(path, f"{name} asks for weights from a hub; set it to false")
        if name.endswith("layers") and isinstance(value, int) and value > _MAX_LAYERS:
            raise _bad(path, f"{name} is {value}, more than {_MAX_LAYERS}")
        cleaned[name] = _cleaned(path, value) if isinstance(value, dict) else value
    return cleaned


def _model_class(path: Path, content: Mapping[str, Any], config: Any) -> Any:
    """The class that ``architectures`` names, else the one for language models, else the base model."""
    import transformers

    named = content.get("architectures")
    if named:
        name = named[0] if isinstance(named, list) else named
        found = getattr(transformers, name, None) if isinstance(name, str) and name.isidentifier() else None
        if not (inspect.isclass(found) and issubclass(found, transformers.PreTrainedModel)):
            raise UsageError(
                f"{path}: transformers {transformers.__version__} has no model class {name!r}; name one of its own in "
                "`architectures`, or take the entry out",
                "unknown-architecture",
            )
        if not isinstance(config, found.config_class or ()):
            raise _bad(path, f"{name} takes another config than one of model type {content['model_type']!r}")
        return found
    for mapping in (transformers.MODEL_FOR_CAUSAL_LM_MAPPING, transformers.MODEL_MAPPING):
        if type(config) in mapping:
            found = mapping[type(config)]
            return found[0] if isinstance(found, (list, tuple)) else found
    raise _bad(path, "names no `architectures`, and its model type has no model of its own")


# --- its inputs ----------------------------------------------------------------------------------------------------


class Inputs:
    """The keyword arguments of a forward call, by the parameters that ``forward`` has and what the config says."""

    def __init__(self, path: Path, model: Any, shape: InputShape, train: bool) -> None:
        self._path = path
        self._model = model
        self._config = model.config
        self._name = type(model).__name__
        self._parameters = inspect.signature(model.forward).parameters
        self._batch = shape.batch or 1
        self._seq = shape.seq
        self._train = train

    def all(self) -> dict[str, Any]:
        """Raises UsageError where no input can be made for this kind of model."""
        inputs: dict[str, Any] = {}
        main = self._model.main_input_name
        wanted = [main, *(name for name in ("input_ids", "pixel_values") if name in self._parameters)]
        if main == "input_ids" and getattr(self._config, "image_token_id", None) is not None:
            wanted = [main]  # a chat model with eyes: text alone, since images stand as so many tokens in it
        for name in dict.fromkeys(wanted):
            if name == "input_ids" and main not in ("input_ids", "pixel_values"):
                continue
            inputs[name] = self._one(name)
        if self._config.is_encoder_decoder and "decoder_input_ids" in self._parameters and main != "pixel_values":
            inputs["decoder_input_ids"] = self._tokens(self._decoder_seq(main))
        if self._train:
            inputs.update(self._labels(inputs))
            if "use_cache" in self._parameters:
                inputs["use_cache"] = False
            if "return_loss" in self._parameters:
                inputs["return_loss"] = True
        return inputs

    def _one(self, name: str) -> torch.Tensor:
        if name == "input_ids":
            return self._tokens(self._sequence())
        if name == "pixel_values":
            return self._image()
        if name == "input_features":
            mels = self._number("num_mel_bins", "feature_size", "input_feat_per_channel")
            frames = 2 * int(getattr(self._config, "max_source_positions", 0)) or self._seq or 1000
            return torch.randn(self._batch, mels, frames, dtype=self._dtype())
        if name == "input_values":
            if hasattr(self._config, "num_mel_bins") and hasattr(self._config, "max_length"):  # spectrogram transformer
                frames, mels = self._number("max_length"), self._number("num_mel_bins")
                return torch.randn(self._batch, frames, mels, dtype=self._dtype())
            return torch.randn(self._batch, self._seq or _DEFAULT_SAMPLES, dtype=self._dtype())
        raise UsageError(
            f"{self._path}: {self._name} takes {name!r}, and this version makes inputs for text, images and speech "
            "only; write a script that calls the model",
            "unsupported-target",
        )

    def _labels(self, inputs: Mapping[str, Any]) -> dict[str, torch.Tensor]:
        """What the head's own loss needs, by the name of its class."""
        batch, name = self._batch, self._name
        if "start_positions" in self._parameters:
            return {key: torch.zeros(batch, dtype=torch.long) for key in ("start_positions", "end_positions")}
        if "labels" not in self._parameters:
            return {}
        if name.endswith("ForTokenClassification"):
            return {"labels": torch.zeros_like(inputs["input_ids"])}
        if "Classification" in name:
            return {"labels": torch.zeros(batch, dtype=torch.long)}
        if name.endswith("ForCTC"):
            return {"labels": torch.ones(batch, 4, dtype=torch.long)}
        if "decoder_input_ids" in inputs:
            return {"labels": inputs["decoder_input_ids"]}
        return {"labels": inputs["input_ids"]} if "input_ids" in inputs else {}

    def _tokens(self, seq: int) -> torch.Tensor:
        config = self._config.get_text_config()
        n_tokens = int(getattr(config, "vocab_size", 0) or 0)
        if n_tokens < 1:
            raise _bad(self._path, f"has no vocab_size for the tokens of {self._name}")
        return torch.randint(0, n_tokens, (self._batch, seq))

    def _sequence(self) -> int:
        config = self._config.get_text_config()
        limit = next((n for n in (getattr(config, key, None) for key in _POSITIONS) if isinstance(n, int) and n > 0), 0)
        if self._seq and limit and self._seq > limit:
            raise UsageError(
                f"--seq {self._seq}: {self._path} has {limit} positions; give fewer, or a config with more",
                "bad-arguments",
            )
        return self._seq or min(limit or _DEFAULT_SEQ, _DEFAULT_SEQ)

    def _decoder_seq(self, main: str) -> int:
        limit = int(getattr(self._config, "max_target_positions", 0) or 0)
        return min(self._sequence() if main == "input_ids" else self._seq or _DEFAULT_SEQ, limit or _DEFAULT_SEQ)

    def _image(self) -> torch.Tensor:
        config = getattr(self._config, "vision_config", self._config)
        size = getattr(config, "image_size", None) or 224
        height, width = (size, size) if isinstance(size, int) else tuple(size)
        channels = int(getattr(config, "num_channels", 3) or 3)
        return torch.randn(self._batch, channels, int(height), int(width), dtype=self._dtype())

    def _number(self, *names: str) -> int:
        for name in names:
            value = getattr(self._config, name, None)
            if isinstance(value, int) and value > 0:
                return value
        raise _bad(self._path, f"has none of {', '.join(names)}, which {self._name} needs for its input")

    def _dtype(self) -> torch.dtype:
        dtypes: Iterator[torch.dtype] = (p.dtype for p in self._model.parameters() if p.is_floating_point())
        return next(dtypes)


_POSITIONS = ("max_position_embeddings", "n_positions", "seq_length", "max_seq_len")
