"""The global settings of torch that choose kernels: read for the ops that they steer, and set again for a replay."""

from __future__ import annotations

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from audit.device.steering import in_force, steered
from audit.kernel_settings import SETTINGS

ATTENTION = "aten::scaled_dot_product_attention.default"
#: A value that is not the default, for each setting.
OTHER = {item.name: not item.default if isinstance(item.default, bool) else "tf32" for item in SETTINGS} | {
    "torch.backends.cudnn.conv.fp32_precision": "ieee",
    "torch.backends.cudnn.rnn.fp32_precision": "ieee",
}
AN_OP = {
    "sdp": ATTENTION,
    "matmul": "aten::addmm.default",
    "cudnn": "aten::convolution.default",
    "rnn": "aten::lstm.input",
    "deterministic": "aten::add.Tensor",
}


def test_nothing_is_in_force_by_default():
    assert [in_force(op) for op in AN_OP.values()] == [()] * len(AN_OP)


@pytest.mark.parametrize("name", OTHER)
def test_every_setting_is_set_read_and_put_back(name):
    op = AN_OP["rnn" if ".rnn." in name else next(kind for kind in AN_OP if kind in name)]
    with steered(((name, OTHER[name]),)) as unknown:
        assert unknown == ()
        assert (name, OTHER[name]) in in_force(op)
    assert in_force(op) == ()


def test_a_setting_belongs_to_the_ops_that_it_steers():
    with sdpa_kernel(SDPBackend.MATH):
        assert in_force(ATTENTION) == (
            ("torch.backends.cuda.enable_flash_sdp", False),
            ("torch.backends.cuda.enable_mem_efficient_sdp", False),
            ("torch.backends.cuda.enable_cudnn_sdp", False),
        )
        assert in_force("aten::mm.default") == ()


def test_the_older_names_of_tf32_are_understood(fresh_python):
    """In a process of its own: torch remembers which of its two interfaces was used, and refuses to mix them."""
    answer = fresh_python("""
        import torch
        from audit.device.steering import in_force
        torch.set_float32_matmul_precision("high")
        torch.backends.cudnn.allow_tf32 = False
        print(in_force("aten::mm.default"), in_force("aten::convolution.default"))
    """)
    assert answer == (
        "(('torch.backends.cuda.matmul.fp32_precision', 'tf32'),) "
        "(('torch.backends.cudnn.conv.fp32_precision', 'ieee'),)"
    )


def test_what_the_table_does_not_know_is_never_set():
    settings = (("torch.backends.cudnn.enabled", "False"), ("torch.load", True), ("torch.backends.nnpack.x", True))
    with steered(settings) as unknown:
        assert unknown == tuple(name for name, _ in settings)
        assert torch.backends.cudnn.enabled is True
