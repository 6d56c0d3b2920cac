"""Real architectures with random weights, small: each function runs one training step or one inference.

The step returns everything that a user could look at: outputs, loss, gradients, updated weights.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
import transformers
from torch import nn

Step = Callable[[], list[torch.Tensor]]


def _train(model: nn.Module, forward: Callable[[], torch.Tensor], lr: float = 1e-3) -> list[torch.Tensor]:
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    loss = forward()
    loss.backward()
    grads = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    optimizer.step()
    return [loss.detach(), *grads, *(p.detach().clone() for p in model.parameters())]


def bert() -> list[torch.Tensor]:
    config = transformers.BertConfig(
        vocab_size=128, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64
    )
    model = transformers.BertForMaskedLM(config)
    tokens = torch.randint(0, 128, (2, 12))
    mask = torch.ones_like(tokens)
    mask[1, 8:] = 0
    return _train(model, lambda: model(tokens, attention_mask=mask, labels=tokens).loss)


def _llama() -> transformers.LlamaForCausalLM:
    config = transformers.LlamaConfig(
        vocab_size=128,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=64,
    )
    return transformers.LlamaForCausalLM(config)


def llama() -> list[torch.Tensor]:
    model = _llama()
    tokens = torch.randint(0, 128, (2, 16))
    return _train(model, lambda: model(tokens, labels=tokens).loss)


def llama_generation() -> list[torch.Tensor]:
    model = _llama().eval()
    tokens = torch.randint(3, 128, (1, 6))
    return [model.generate(tokens, max_new_tokens=4, do_sample=True, pad_token_id=0)]


def _vit() -> transformers.ViTForImageClassification:
    config = transformers.ViTConfig(
        image_size=32, patch_size=8, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64
    )
    return transformers.ViTForImageClassification(config)


def vit() -> list[torch.Tensor]:
    model = _vit()
    pixels = torch.randn(2, 3, 32, 32)
    return _train(model, lambda: model(pixels, labels=torch.tensor([0, 1])).loss)


def vit_inference() -> list[torch.Tensor]:
    model = _vit().eval()
    with torch.inference_mode():
        return [model(torch.randn(2, 3, 32, 32)).logits.clone()]


def whisper() -> list[torch.Tensor]:
    config = transformers.WhisperConfig(
        vocab_size=128, d_model=32, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2,
        decoder_attention_heads=2, encoder_ffn_dim=64, decoder_ffn_dim=64, max_source_positions=20,
        max_target_positions=16, num_mel_bins=8, pad_token_id=0, bos_token_id=1, eos_token_id=2,
        decoder_start_token_id=1,
    )  # fmt: skip
    model = transformers.WhisperForConditionalGeneration(config)
    features, labels = torch.randn(2, 8, 40), torch.randint(3, 128, (2, 6))
    return _train(model, lambda: model(features, labels=labels).loss)


def t5() -> list[torch.Tensor]:
    config = transformers.T5Config(
        vocab_size=128,
        d_model=32,
        d_kv=16,
        d_ff=64,
        num_layers=2,
        num_heads=2,
        decoder_start_token_id=0,
        pad_token_id=0,
    )
    model = transformers.T5ForConditionalGeneration(config)
    tokens = torch.randint(3, 128, (2, 10))
    return _train(model, lambda: model(input_ids=tokens, labels=tokens).loss)


class _Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.conv = nn.Conv2d(8, 8, 3, padding=1, bias=False)
        self.head = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu_(self.norm(self.stem(x)))
        y = torch.relu_(self.norm(self.conv(y)) + y)
        return self.head(nn.functional.adaptive_avg_pool2d(y, 1).flatten(1))


def cnn_channels_last_autocast() -> list[torch.Tensor]:
    model = _Residual().to(memory_format=torch.channels_last)
    images = torch.randn(4, 3, 16, 16).to(memory_format=torch.channels_last)
    scaler = torch.amp.GradScaler("cpu")

    def forward() -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return nn.functional.cross_entropy(model(images), torch.arange(4))

    loss = forward()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    return [loss.detach(), *(p.detach().clone() for p in model.parameters()), model.norm.running_mean.clone()]


def lstm_ctc() -> list[torch.Tensor]:
    lstm, head = nn.LSTM(8, 16, num_layers=2, dropout=0.2, bidirectional=True, batch_first=True), nn.Linear(32, 6)
    model = nn.ModuleList([lstm, head])
    sound, labels = torch.randn(2, 20, 8), torch.randint(1, 6, (2, 5))

    def forward() -> torch.Tensor:
        log_probs = head(lstm(sound)[0]).log_softmax(-1).transpose(0, 1)
        return nn.functional.ctc_loss(log_probs, labels, torch.full((2,), 20), torch.full((2,), 5))

    return _train(model, forward)


def gru_packed() -> list[torch.Tensor]:
    gru = nn.GRU(8, 16)
    packed = nn.utils.rnn.pack_padded_sequence(torch.randn(10, 3, 8), torch.tensor([10, 7, 4]))
    return _train(gru, lambda: gru(packed)[0].data.pow(2).mean())


def encoder_fast_path() -> list[torch.Tensor]:
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 4, 64, batch_first=True), 2).eval()
    with torch.no_grad():
        return [model(torch.randn(2, 10, 32))]


ARCHITECTURES: tuple[Step, ...] = (
    bert, llama, llama_generation, vit, vit_inference, whisper, t5, cnn_channels_last_autocast, lstm_ctc, gru_packed,
    encoder_fast_path,
)  # fmt: skip


def seeded(step: Step) -> Iterator[torch.Tensor]:
    """Runs a step from a fixed seed; yields what it returned, then the RNG state."""
    torch.manual_seed(0)
    yield from step()
    yield torch.get_rng_state()
