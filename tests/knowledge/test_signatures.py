"""What ops take, read from the dispatch table without torch."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, distribution
from typing import Any

import pytest

from audit.knowledge.dispatch import load_dispatch
from audit.knowledge.signatures import Parameter, overloads_of
from audit.schema import Named

#: What torch has as a number.
CONSTANTS = {Named("dtype", "int64"): 4, Named("memory_format", "contiguous_format"): 0}


def test_an_op_has_its_overloads_with_their_parameters() -> None:
    assert list(overloads_of("aten::add")) == ["aten::add.Scalar", "aten::add.Tensor", "aten::add.out"]
    *_, alpha = overloads_of("aten::add")["aten::add.Tensor"]
    assert alpha == Parameter("alpha", "Scalar", False, False, by_keyword=True, has_default=True, default=1)
    assert overloads_of("aten::no_such_op") == {}


def test_defaults_are_values() -> None:
    defaults = {
        parameter.name: parameter.default
        for op in ("aten::max_pool2d.default", "aten::scaled_dot_product_attention.default", "aten::mse_loss.default")
        for parameter in overloads_of(op.partition(".")[0])[op]
        if parameter.has_default
    }
    assert defaults == {
        "stride": (), "padding": (0, 0), "dilation": (1, 1), "ceil_mode": False, "attn_mask": None, "dropout_p": 0.0,
        "is_causal": False, "scale": None, "enable_gqa": False, "reduction": 1,
    }  # fmt: skip


def test_every_parameter_is_torchs_own() -> None:
    torch = torch_of_the_table()
    n_compared = 0
    for base in dict.fromkeys(op.partition(".")[0] for op in load_dispatch()):
        schemas = {schema.overload_name or "default": schema for schema in torch._C._jit_get_schemas_for_operator(base)}
        for op, parameters in overloads_of(base).items():
            for ours, theirs in zip(parameters, schemas[op.partition(".")[2]].arguments, strict=True):
                assert as_torch(ours) == (
                    theirs.name,
                    "List[" in str(theirs.type),
                    str(theirs.type).startswith("Optional["),
                    theirs.kwarg_only,
                    theirs.has_default_value(),
                ), op
                default = theirs.default_value
                if ours.has_default and not base.startswith("aten::_test_string"):
                    value = tuple(default) if isinstance(default, list) else default
                    assert CONSTANTS.get(ours.default, ours.default) == value, (op, ours)  # type: ignore[call-overload]
                n_compared += 1
    assert n_compared > 9000


def as_torch(parameter: Parameter) -> tuple[str, bool, bool, bool, bool]:
    return (
        parameter.name,
        parameter.is_list,
        parameter.is_optional,
        parameter.by_keyword,
        parameter.has_default,
    )


def torch_of_the_table() -> Any:
    """torch, where it is the release that the table was made from."""
    version = load_dispatch()["aten::addmm.default"].torch_version
    try:
        installed = distribution("torch").version.split("+")[0]
    except PackageNotFoundError:
        pytest.skip("needs torch to compare with")
    if installed != version:
        pytest.skip(f"the table was made from torch {version}, here is {installed}")
    import torch

    return torch
