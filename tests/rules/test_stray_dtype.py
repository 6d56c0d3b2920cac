"""SPD404: a float64 product among faster ones."""

from __future__ import annotations

from dataclasses import replace

import pytest

from audit.rules.judge import judge
from audit.run_records import UNCHANGED, Alternative, Change, Run, Trial
from audit.schema import Ceilings, Rate, TensorSpec, Timing

CEILINGS = Ceilings(
    Rate(4000.0, 1.0, 9),
    {"float64": Rate(60.0, 1.0, 9), "float32": Rate(50.0, 1.0, 9), "bfloat16": Rate(600.0, 1.0, 9)},
    Rate(4.0, 0.1, 9),
)


def _findings(build, n_wide=1, n_usual=3, usual="bfloat16", us=1000.0, backend="hip", ceilings=CEILINGS):
    def product(dtype, key, n_calls):
        spec = TensorSpec((2048, 2048), (2048, 1), dtype)
        return build.case("aten::mm.default", spec, spec, key=key, n_calls=n_calls)

    cases = (product("float64", "wide", n_wide), product(usual, "usual", n_usual))
    header = build.header(backend, ceilings=ceilings, n_cases=2)
    measured = {key: build.measurement(key=key, device_time=Timing(us, 1.0, 20)) for key in ("wide", "usual")}
    judgement = judge(Run(header, cases, measured))
    return [(v.key, f) for v in judgement.verdicts for f in v.findings if f.code == "SPD404"]


def test_a_forgotten_float64_product_is_slow_with_what_it_costs(build):
    [(key, finding)] = _findings(build)
    assert (key, finding.status) == ("wide", "slow")
    assert finding.message == (
        "multiplies in float64, the program's other products are in bfloat16, in which this device is 10 times as "
        "fast; 1 ms a call, up to 900 µs over 1 call would be saved"
    )
    assert finding.data["cost_ms"] == pytest.approx(0.9)


@pytest.mark.parametrize(
    "changed",
    [
        {"n_wide": 4},  # chosen
        {"usual": "float32"},  # no faster on this device
        {"us": 8.0},  # bound by its launch
        {"backend": "sim"},
        {"ceilings": None, "backend": "cuda", "usual": "float16", "n_usual": 0 + 1, "n_wide": 1},
    ],
    ids=["a program of float64", "no faster dtype", "tiny", "simulated", "half of the products"],
)
def test_what_is_no_forgotten_cast(build, changed):
    assert _findings(build, **changed) == []


def test_a_device_of_unknown_rates_is_not_judged(build):
    unknown = replace(CEILINGS, gemm_tflops={})
    assert _findings(build, ceilings=unknown, backend="cuda", usual="float8_e4m3fn") == []


def test_an_alternative_is_held_to_the_rules_of_the_run_too(build):
    """Run again as it was, a float64 product is as slow as before."""
    spec = TensorSpec((2048, 2048), (2048, 1), "float64")
    wide = build.case("aten::mm.default", spec, spec, key="wide")
    usual = replace(spec, dtype="bfloat16")
    cases = (wide, build.case("aten::mm.default", usual, usual, key="usual", n_calls=3))
    measured = {key: build.measurement(key=key, device_time=Timing(1000.0, 1.0, 20)) for key in ("wide", "usual")}
    again = Alternative(Trial("wide", UNCHANGED, "nothing changed", Change()), measured["wide"])
    run = Run(build.header("hip", ceilings=CEILINGS, n_cases=2), cases, measured, alternatives={"wide": (again,)})
    verdict = judge(run).verdicts[0]
    assert (verdict.status, [(tried.effect, tried.status) for tried in verdict.tried]) == (
        "slow",
        [("as before", "slow")],
    )
