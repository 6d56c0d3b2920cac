"""Reports that a run of single ops on the simulated device cannot show, and why."""

from __future__ import annotations

from tests.detection.fault import Unseen

_TIME = "the symptom is time alone, and times of the simulated device mean nothing; on a GPU it is judged by {rule}"
_CUSTOM = "an op of another library: listed as not audited, since its code is not in the trace"

UNSEEN = (
    Unseen("A28", "zero_ captured in a HIP graph", "wrong only inside a captured graph; each op is replayed eagerly"),
    Unseen("A32", "paged attention over more than 2^32 elements (aiter)", _CUSTOM),
    Unseen("B02", "fp6 weights (torchao::quant_llm_linear)", _CUSTOM),
    Unseen("C07", "a Triton attention kernel of the user", "launched past the dispatcher: listed as not audited"),
    Unseen("D03", "hang at one of many synchronisations, now and then",
           "depends on a lost interrupt and on no argument; where it strikes it is SUP103"),
    Unseen("E02", "bf16 convolution slower than fp16", _TIME.format(rule="SPD401 and by the rates of the other cases")),
    Unseen("E03", "scatter_add_ of 74,544 equal indices", _TIME.format(rule="SPD401; the real indices are replayed")),
    Unseen("E07", "a kernel compiled for each length", _TIME.format(rule="SPD402, the first call apart")),
    Unseen("E09", "flash-attn's own backward 4.4 to 7.4 times slower", _CUSTOM),
    Unseen("G01", "bitsandbytes, block size 64 on wave32", _CUSTOM),
    Unseen("G02", "bitsandbytes refuses block size 64",
           "raised in Python before any op is called: the trace ends early and says where and why"),
    Unseen("G03", "an extension that does not build", "nothing runs that could be traced"),
    Unseen("G05", "CuPy's own sparse kernel", "not a PyTorch op"),
    Unseen("G07", "aiter's paged logits beyond 2,048 tokens", _CUSTOM),
)  # fmt: skip
