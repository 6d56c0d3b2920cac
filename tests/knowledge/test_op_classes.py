"""What sort of work each op does, and the script that derives it."""

from __future__ import annotations

import io
import re
from collections import Counter
from importlib.metadata import PackageNotFoundError, distribution
from importlib.resources import files
from pathlib import Path

import pytest

from audit.knowledge.derive_classes import classify, parse, write
from audit.knowledge.derive_dispatch import YAML
from audit.knowledge.dispatch import load_dispatch
from audit.knowledge.op_classes import class_of

FUNCTIONS = """
- func: brighten(Tensor self, Scalar by) -> Tensor
  structured_delegate: brighten.out
  tags: [core, pointwise]

- func: brighten_(Tensor(a!) self, Scalar by) -> Tensor(a!)

- func: brighten_backward(Tensor grad) -> Tensor
  autogen: brighten_backward.out

- func: windowed(Tensor(a) self) -> Tensor(a)

- func: crush(Tensor self) -> Tensor
  tags: reduction  # a comment

- func: shake(Tensor self) -> Tensor
  tags: nondeterministic_seeded

- func: fused_layer_norm_of_brighten(Tensor self) -> Tensor
  tags: pointwise

- func: enigma(Tensor self) -> Tensor
"""


def test_a_name_tells_first_then_the_tags_then_those_of_the_op_that_it_is_a_variant_of():
    assert {op: (op_class, source.rpartition(", ")[2]) for op, op_class, source in classify(parse(FUNCTIONS))} == {
        "aten::brighten.default": ("elementwise", "tag pointwise"),
        "aten::brighten_.default": ("elementwise", "tag pointwise"),
        "aten::brighten_backward.default": ("elementwise", "tag pointwise"),
        "aten::brighten_backward.out": ("elementwise", "tag pointwise"),
        "aten::windowed.default": ("view", "alias annotation"),
        "aten::crush.default": ("reduction", "tag reduction"),
        "aten::shake.default": ("random", "tag nondeterministic_seeded"),
        "aten::fused_layer_norm_of_brighten.default": ("normalization", "from the op's documentation"),
        "aten::enigma.default": ("other", "nothing tells"),
    }


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        ("aten::mm.default", "gemm"), ("aten::convolution_backward.default", "convolution"),
        ("aten::_scaled_dot_product_flash_attention_backward.default", "attention"),
        ("aten::native_layer_norm.default", "normalization"), ("aten::_log_softmax_backward_data.default", "softmax"),
        ("aten::sum.dim_IntList", "reduction"), ("aten::max.default", "reduction"),
        ("aten::max.other", "elementwise"), ("aten::add_.Tensor", "elementwise"),
        ("aten::_to_copy.default", "copy"), ("aten::copy_.default", "copy"), ("aten::zeros_like.default", "copy"),
        ("aten::index_copy_.default", "scatter"), ("aten::embedding.default", "gather"), ("aten::topk.default", "sort"),
        ("aten::lstm.input", "recurrent"), ("aten::_fft_r2c.default", "fft"), ("aten::linalg_eig.default", "linalg"),
        ("aten::linalg_vector_norm.default", "reduction"), ("aten::_fused_adamw_.default", "optimizer"),
        ("aten::_foreach_add_.List", "optimizer"), ("aten::native_dropout.default", "random"),
        ("aten::nll_loss_forward.default", "loss"), ("aten::max_pool2d_with_indices.default", "pooling"),
        ("aten::detach.default", "view"), ("aten::empty_like.default", "view"), ("aten::is_pinned.default", "view"),
        # an overload of another torch, none at all, an op of another torch, another library's
        ("aten::sum.SymInt", "reduction"), ("aten::add", "elementwise"), ("aten::better_softmax_.fast", "softmax"),
        ("torchvision::nms.default", "other"), ("triton::poi_fused_add_0", "other"), ("", "other"),
    ],
)  # fmt: skip
def test_what_sort_of_work_an_op_does(op: str, expected: str):
    assert class_of(op) == expected


def test_nearly_every_op_has_a_class():
    classes = Counter(class_of(op) for op in load_dispatch())
    assert classes["other"] / classes.total() < 0.01


def test_every_op_that_the_zoo_page_names_has_a_class(checkout: Path):
    named = set(re.findall(r"`(aten::\w+(?:\.\w+)?)`", (checkout / "docs" / "zoo.md").read_text()))
    assert named
    assert {op for op in named if class_of(op) == "other"} == set()


def test_every_op_of_published_logs_has_a_class(checkout: Path):
    folder = checkout.parent / "shared" / "data" / "op_logs"
    if not folder.is_dir():
        pytest.skip("the published logs are not here: shared/data/op_logs beside the repository")
    text = "\n".join(path.read_text() for path in folder.rglob("*.txt"))
    ops = {name.replace("aten.", "aten::", 1) for name in re.findall(r"^Operator: (\S+)", text, re.MULTILINE)}
    assert len(ops) > 150
    assert {op for op in ops if class_of(op) == "other"} == set()


def test_the_shipped_table_is_what_the_script_derives_from_its_torch():
    try:
        torch = distribution("torch")
    except PackageNotFoundError:
        pytest.skip("needs torch to compare with")
    version = load_dispatch()["aten::addmm.default"].torch_version
    if torch.version.split("+")[0] != version:
        pytest.skip(f"the table was made from torch {version}, here is {torch.version}")
    target = io.StringIO()
    write(target, parse(Path(str(torch.locate_file(YAML))).read_text()))
    assert target.getvalue() == files("audit.knowledge").joinpath("op_classes.csv").read_text()
