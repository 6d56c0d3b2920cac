"""Speech and other sequences: recurrent layers, packed sequences, CTC, the encoder's fast path, jagged rows."""

from __future__ import annotations

import torch
import transformers
from torch import nn

from tests.zoo.program import device, train


def _whisper() -> transformers.WhisperForConditionalGeneration:
    config = transformers.WhisperConfig(
        vocab_size=128, d_model=32, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2,
        decoder_attention_heads=2, encoder_ffn_dim=64, decoder_ffn_dim=64, max_source_positions=20,
        max_target_positions=16, num_mel_bins=8, pad_token_id=0, bos_token_id=1, eos_token_id=2,
        decoder_start_token_id=1,
    )  # fmt: skip
    return transformers.WhisperForConditionalGeneration(config).to(device())


def whisper_transcription() -> list[torch.Tensor]:
    model = _whisper().eval()
    model.generation_config.forced_decoder_ids = None
    features = torch.randn(1, 8, 40, device=device())
    return [model.generate(features, max_new_tokens=4, do_sample=False)]


def wav2vec2_ctc_training() -> list[torch.Tensor]:
    config = transformers.Wav2Vec2Config(
        vocab_size=12, hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64,
        conv_dim=(16, 16), conv_stride=(5, 2), conv_kernel=(10, 3), num_feat_extract_layers=2,
        num_conv_pos_embeddings=8, num_conv_pos_embedding_groups=2, mask_time_length=2, feat_extract_norm="group",
    )  # fmt: skip
    model = transformers.Wav2Vec2ForCTC(config).to(device())
    sound = torch.randn(2, 400, device=device())
    labels = torch.randint(1, 12, (2, 4), device=device())
    return train(model, lambda: model(sound, labels=labels).loss)


def lstm_packed_unsorted_projected() -> list[torch.Tensor]:
    lstm = nn.LSTM(8, 16, proj_size=6, batch_first=True).to(device())
    packed = nn.utils.rnn.pack_padded_sequence(
        torch.randn(3, 9, 8, device=device()), torch.tensor([4, 9, 6]), batch_first=True, enforce_sorted=False
    )
    return train(lstm, lambda: lstm(packed)[1][0].square().sum())


def recurrent_cells() -> list[torch.Tensor]:
    cells = nn.ModuleList([nn.LSTMCell(6, 8), nn.GRUCell(8, 8), nn.RNNCell(8, 8, nonlinearity="relu")]).to(device())
    rnn = nn.RNN(8, 8, nonlinearity="tanh").to(device())
    sequence = torch.randn(4, 3, 6, device=device())
    model = nn.ModuleList([*cells, rnn])

    def forward() -> torch.Tensor:
        state = (torch.zeros(3, 8, device=device()), torch.zeros(3, 8, device=device()))
        hidden = torch.zeros(3, 8, device=device())
        seen = []
        for x in sequence:
            state = cells[0](x, state)
            hidden = cells[1](state[0], hidden)
            seen.append(cells[2](hidden, state[1]))
        return rnn(torch.stack(seen))[0].square().mean()

    return train(model, forward)


def _encoder() -> nn.TransformerEncoder:
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
    return nn.TransformerEncoder(layer, 2).to(device()).eval()


def encoder_fast_path_padded() -> list[torch.Tensor]:
    """With a padding mask the fast path runs on nested tensors."""
    model, x = _encoder(), torch.randn(2, 10, 32, device=device())
    padding = torch.zeros(2, 10, dtype=torch.bool, device=device())
    padding[1, 6:] = True
    with torch.inference_mode():
        return [model(x, src_key_padding_mask=padding).clone()]


def nested_jagged_training() -> list[torch.Tensor]:
    model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4)).to(device())
    rows = [torch.randn(n, 8, device=device()) for n in (3, 5, 2)]

    def forward() -> torch.Tensor:
        jagged = torch.nested.nested_tensor(rows, layout=torch.jagged)
        return model(jagged).values().square().mean()

    return train(model, forward)


def nested_jagged_attention() -> list[torch.Tensor]:
    projections = nn.ModuleList([nn.Linear(16, 16) for _ in range(3)]).to(device())
    rows = [torch.randn(n, 16, device=device()) for n in (3, 5, 2)]

    def forward() -> torch.Tensor:
        jagged = torch.nested.nested_tensor(rows, layout=torch.jagged)
        q, k, v = (projection(jagged).unflatten(-1, [2, 8]).transpose(1, 2) for projection in projections)
        attended = nn.functional.scaled_dot_product_attention(q, k, v)
        return attended.transpose(1, 2).values().square().mean()

    return train(projections, forward)
