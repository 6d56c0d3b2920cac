"""A speech recogniser, bidirectional LSTM with CTC loss, as a file with `get_model`, `get_inputs` and `loss`.

At real size on a GPU: -- --hidden 1024 --layers 4 --features 80 --frames 1000 --batch 32
"""

import argparse

import torch
from torch import nn
from torch.nn import functional

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--hidden", type=int, default=32)
parser.add_argument("--layers", type=int, default=2)
parser.add_argument("--features", type=int, default=20)
parser.add_argument("--frames", type=int, default=40)
parser.add_argument("--batch", type=int, default=3)
parser.add_argument("--symbols", type=int, default=29)
parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
args = parser.parse_args()


class Recogniser(nn.Module):
    """Features (batch, frames, features) to log-probabilities (frames, batch, symbols)."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(args.features, args.hidden, args.layers, batch_first=True, bidirectional=True, dropout=0.1)
        self.head = nn.Linear(2 * args.hidden, args.symbols)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        hidden, _ = self.lstm(features)
        return functional.log_softmax(self.head(hidden), dim=-1).transpose(0, 1)


def get_model() -> nn.Module:
    torch.manual_seed(0)
    return Recogniser().to(args.device)


def get_inputs() -> tuple[torch.Tensor]:
    return (torch.randn(args.batch, args.frames, args.features, device=args.device),)


def loss(log_probabilities: torch.Tensor) -> torch.Tensor:
    """CTC loss against random transcripts of at most a quarter of the frames."""
    frames, batch, symbols = log_probabilities.shape
    targets = torch.randint(1, symbols, (batch, frames // 4), device=log_probabilities.device)
    frame_counts = torch.full((batch,), frames)
    target_counts = torch.randint(1, frames // 4 + 1, (batch,))
    return functional.ctc_loss(log_probabilities, targets, frame_counts, target_counts)


if __name__ == "__main__":
    value = loss(get_model()(*get_inputs()))
    value.backward()
    print(f"loss {value.item():.4f}")
