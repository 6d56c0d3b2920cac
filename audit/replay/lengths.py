"""Roles of lengths and offsets, which must add up to what they divide: bags, packed and jagged sequences, CTC."""

from __future__ import annotations

from collections.abc import Callable

import torch

from audit.replay.indices import Limit, axis_of, within
from audit.replay.operand import Operand, Role
from audit.replay.stream import Stream
from audit.schema import TensorSpec

# --- what is divided ---------------------------------------------------------------------------------------------


def packed_rows(operand: Operand) -> int:
    """Rows of packed queries or keys, [..., total, heads, width]."""
    sizes = operand.sizes_of("key" if operand.name.endswith("_k") else "query")
    return sizes[-3] if len(sizes) >= 3 else 1


def longest_row(operand: Operand) -> int:
    """The longest of the packed sequences, as the call says; any length where it does not."""
    side = operand.name[-1]
    return operand.integer(f"max_{side}") or operand.integer(f"max_seqlen_{side}") or packed_rows(operand)


def grouped_size(operand: Operand) -> int:
    """What the groups of a grouped product divide: rows of the left, columns of the right, or the inner dimension."""
    left, right = operand.sizes_of("self"), operand.sizes_of("mat2")
    return right[-1] if len(left) == 3 else left[-1] if len(right) == 2 else left[0]


# --- lengths and offsets -------------------------------------------------------------------------------------------


def offsets(total: Limit, ends: Callable[[Operand], bool] = lambda operand: False) -> Role:
    """Rising numbers from 0: where each of several parts of ``total`` elements begins, and with ``ends`` the total."""

    def make(operand: Operand, stream: Stream) -> torch.Tensor:
        n_parts = max(operand.n - int(ends(operand)), 1)
        made = torch.arange(operand.n) * total(operand) // n_parts
        return made.reshape(operand.sizes)

    return make


def bag_of_each(operand: Operand, stream: Stream) -> torch.Tensor:
    """For each index the bag that it belongs to, in bags of about equal size; ``grad`` has a row a bag."""
    n_bags = (*operand.sizes_of("grad"), 1)[0]
    edges = torch.arange(n_bags + 1) * operand.n // max(n_bags, 1)  # as offsets and lengths_of divide
    return torch.arange(n_bags).repeat_interleave(edges.diff()).reshape(operand.sizes)


def part_ends(total: Limit) -> Role:
    """Where each of several parts ends; the last one with the total."""
    return lambda operand, stream: (torch.arange(1, operand.n + 1) * total(operand) // max(operand.n, 1)).reshape(
        operand.sizes
    )


def lengths_of(total: Limit) -> Role:
    """Lengths along the last dimension that add up to ``total``; small ones where there is no total."""

    def make(operand: Operand, stream: Stream) -> torch.Tensor:
        whole, n = total(operand), operand.sizes[-1] if operand.sizes else 1
        if whole <= 0:
            return within(operand, 0, 3, stream)
        edges = torch.arange(n + 1) * whole // max(n, 1)
        return edges.diff().reshape((*operand.sizes[-1:],))

    return make


def sequence_lengths(operand: Operand, stream: Stream) -> torch.Tensor:
    """Lengths of padded sequences, longest first; the longest fills the padded length."""
    sizes = operand.sizes_of("input")
    longest = sizes[1 if operand.flag("batch_first") else 0] if len(sizes) > 1 else 1
    shortest = max(1, min(int(operand.values.minimum or (longest + 1) // 2), longest))
    steps = torch.arange(operand.n) * (longest - shortest) // max(operand.n - 1, 1)
    return longest - steps


def batch_sizes(operand: Operand, stream: Stream) -> torch.Tensor:
    """How many packed sequences are left at each step: falling, and together all rows of ``data``."""
    n_steps, n_rows = operand.n, (*operand.sizes_of("data"), 1)[0]
    state = operand.arguments.get("hx")
    state = state[0] if isinstance(state, tuple) else state
    n_sequences = state.sizes[-2] if isinstance(state, TensorSpec) else -(-n_rows // max(n_steps, 1))
    n_others = max(n_sequences - 1, 0)
    edges = torch.arange(n_others + 1) * (n_rows - n_steps) // max(n_others, 1)
    lengths = torch.cat((torch.tensor([n_steps]), edges.diff()))  # the first sequence takes all steps
    return (lengths[:, None] > torch.arange(n_steps)).sum(0)


def jagged_offsets(total: Limit, longest: Limit) -> Role:
    """Rising from 0 to the total in parts of about equal length, none above ``longest``."""

    def make(operand: Operand, stream: Stream) -> torch.Tensor:
        n_parts = max(operand.n - 1, 1)
        most = longest(operand) * n_parts
        return torch.arange(operand.n) * (min(total(operand), most) if total(operand) > 0 else most) // n_parts

    return make


def dense_length(operand: Operand) -> int:
    """The padded length of the jagged dimension: of ``dense`` [batch, length, ...], or the one given."""
    sizes = operand.sizes_of("dense")
    return sizes[1] if len(sizes) > 1 else axis_of(operand, "max_lengths", 0)


# --- CTC -------------------------------------------------------------------------------------------------------


def ctc_targets(operand: Operand, stream: Stream) -> torch.Tensor:
    """Labels other than the blank, no two alike beside each other (a repeat needs a longer input)."""
    n_labels, blank = operand.sizes_of("log_probs")[-1], operand.integer("blank")
    others = torch.tensor([label for label in range(n_labels) if label != blank] or [blank])
    start = int(stream.integers(1, 0, len(others) - 1))
    return others[(start + torch.arange(operand.n)) % len(others)].reshape(operand.sizes)


def ctc_input_lengths(operand: Operand, stream: Stream) -> torch.Tensor:
    """All of the time steps, or as many as recorded."""
    n_steps = operand.sizes_of("log_probs")[0]
    low = max(1, min(int(operand.values.minimum), n_steps)) if operand.values.minimum is not None else n_steps
    high = max(low, min(int(operand.values.maximum), n_steps)) if operand.values.maximum is not None else n_steps
    return stream.integers(operand.n, low, high).reshape(operand.sizes)


def ctc_target_lengths(operand: Operand, stream: Stream) -> torch.Tensor:
    """Together all targets where these are concatenated, else at most a row of them; never above half the input."""
    targets = operand.sizes_of("targets")
    if len(targets) == 1:
        edges = torch.arange(operand.n + 1) * targets[0] // max(operand.n, 1)
        return edges.diff().reshape(operand.sizes)
    most = max(1, min(targets[-1], operand.sizes_of("log_probs")[0] // 2))
    return within(operand, 1, most, stream)
