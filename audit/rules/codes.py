"""Every rule code with its title. Codes are permanent: one is never renamed, reused or removed from this table."""

from __future__ import annotations

from collections.abc import Mapping

CODES: Mapping[str, str] = {
    # support
    "SUP101": "The op raised",
    "SUP102": "The op crashed its process",
    "SUP103": "The op hung",
    "SUP104": "The op was started and never finished",
    "SUP105": "The op breaks what runs after it",
    "SUP110": "The GPU is not in the torch build",
    "SUP111": "HSA_OVERRIDE_GFX_VERSION hides the GPU",
    "SUP112": "Different GPUs are visible together",
    "SUP113": "ROCm and torch do not match",
    "SUP114": "A first kernel does not run",
    "SUP115": "One error stops most of the cases",
    "SUP119": "Another preflight check",
    "SUP120": "Predicted: a kernel is known",
    "SUP121": "Predicted: another vendor's op",
    "SUP122": "Predicted: not for this dtype on this GPU",
    "SUP123": "Predicted: no GPU kernel is registered",
    "SUP124": "Predicted: a public report is near",
    # numbers
    "NUM201": "The error is beyond the allowance",
    "NUM202": "NaN in other places",
    "NUM203": "Inf in other places",
    "NUM204": "Exact outputs differ",
    "NUM205": "Shape or dtype is wrong",
    "NUM206": "The stride differs",
    "NUM207": "Elements were never written",
    "NUM208": "The result is not repeatable",
    "NUM209": "Memory outside the operands was written",
    "NUM210": "An input was damaged by the copy",
    "NUM211": "Values were not compared",
    # fallbacks
    "FBK301": "Data went through the host",
    "FBK302": "A fallback op was chosen",
    "FBK303": "A naive kernel ran",
    "FBK304": "A message tells of a fallback",
    "FBK305": "A lesser BLAS was used",
    "FBK306": "The path was not fully seen",
    "FBK320": "An alternative was tried",
    "FBK311": "Predicted: attention without a fused kernel",
    "FBK312": "Predicted: convolution without MIOpen",
    "FBK313": "Predicted: RNN without MIOpen",
    "FBK314": "Predicted: a lesser BLAS",
    # speed
    "SPD401": "Slower than the CPU",
    "SPD402": "The first call takes long",
    # about the audit
    "INC901": "The input is invalid",
    "INC902": "There is no reference",
    "INC903": "Memory ran out",
    "INC904": "The device was lost",
    "INC905": "The time budget left it out",
    "INC906": "A fault of the audit",
    "INC907": "The reference crashed or hung",
    "INC908": "A failure did not come back",
    "INC909": "Nothing could be compared",
    "INC910": "Nothing is known",
    "INC911": "The audit stopped before it",
    "INC912": "The trace holds an op of one device",
    "INC913": "Nothing was replayed",
}
