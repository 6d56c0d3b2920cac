"""Global settings of torch by which a program chooses among kernels, and which a replay therefore has to repeat.

Data only, without torch: the tracer reads them, the replay sets them, repro scripts spell them out. They are part of a
case only where they differ from torch's default, and only for the ops that they steer. Sources: the pages
``torch.backends``, ``torch.nn.attention`` and "Numerical accuracy" of PyTorch's documentation (2.9 to 2.13).
"""

from __future__ import annotations

from dataclasses import dataclass

_ATTENTION = r"aten::scaled_dot_product_attention\b"
_MATMUL = r"aten::(mm|bmm|addmm|addbmm|baddbmm|addmv|addr|mv|dot|vdot|_addmm_activation|_grouped_mm|linear\w*)\b"
_CONVOLUTION = r"aten::(convolution|_convolution|conv_transpose|slow_conv|_slow_conv)\w*\b"
_RECURRENT = r"aten::(lstm|gru|rnn_tanh|rnn_relu)\b"
_LIBRARY = rf"{_CONVOLUTION}|{_RECURRENT}|aten::(batch_norm|ctc_loss|grid_sampler)\b"


@dataclass(frozen=True)
class KernelSetting:
    """One setting, by what a program writes to change it: an attribute, or a function where ``is_call``.

    ``ops`` is a regular expression for the qualified ops that it steers.
    """

    name: str
    default: bool | str
    ops: str
    is_call: bool = False

    def statement(self, value: bool | str) -> str:
        """The line of Python that sets it."""
        return f"{self.name}({value!r})" if self.is_call else f"{self.name} = {value!r}"


SETTINGS: tuple[KernelSetting, ...] = (
    KernelSetting("torch.backends.cuda.enable_flash_sdp", True, _ATTENTION, is_call=True),
    KernelSetting("torch.backends.cuda.enable_mem_efficient_sdp", True, _ATTENTION, is_call=True),
    KernelSetting("torch.backends.cuda.enable_math_sdp", True, _ATTENTION, is_call=True),
    KernelSetting("torch.backends.cuda.enable_cudnn_sdp", True, _ATTENTION, is_call=True),
    KernelSetting("torch.backends.cuda.matmul.fp32_precision", "ieee", rf"{_MATMUL}|{_ATTENTION}"),
    KernelSetting("torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction", True, _MATMUL),
    KernelSetting("torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction", True, _MATMUL),
    KernelSetting("torch.backends.cudnn.enabled", True, _LIBRARY),  # MIOpen on ROCm
    KernelSetting("torch.backends.cudnn.benchmark", False, _CONVOLUTION),
    KernelSetting("torch.backends.cudnn.deterministic", False, _LIBRARY),
    KernelSetting("torch.backends.cudnn.conv.fp32_precision", "tf32", _CONVOLUTION),
    KernelSetting("torch.backends.cudnn.rnn.fp32_precision", "tf32", _RECURRENT),
    KernelSetting("torch.use_deterministic_algorithms", False, r".*", is_call=True),
)

#: Which library torch prefers where it can choose. Only tried as alternatives and never part of a case: what torch
#: prefers by itself depends on the device, so that no value tells whether the program chose.
LIBRARY_CHOICES: tuple[KernelSetting, ...] = (
    KernelSetting("torch.backends.cuda.preferred_blas_library", "default", rf"{_MATMUL}|aten::matmul\b", is_call=True),
    KernelSetting(
        "torch.backends.cuda.preferred_linalg_library", "default", r"aten::_?(linalg|cholesky|lu_)", is_call=True
    ),
    KernelSetting("torch.backends.cuda.preferred_rocm_fa_library", "default", _ATTENTION, is_call=True),
)


def setting(name: str) -> KernelSetting | None:
    """The setting of that name, None for one that this version does not know."""
    return next((item for item in (*SETTINGS, *LIBRARY_CHOICES) if item.name == name), None)
