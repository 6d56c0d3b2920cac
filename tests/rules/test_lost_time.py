"""What a step loses to the limits of its device, and who loses it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from audit.rules.judge import judge
from audit.rules.lost_time import lost_by_library, lost_by_module, lost_by_op, step_of
from audit.run_records import Run
from audit.schema import Ceilings, Kernel, NotAudited, Path, Rate, Source, TensorSpec, Timing

#: 4,000 GB/s and 100 TFLOPS; a launch takes 4 us.
CEILINGS = Ceilings(Rate(4000.0, 1.0, 9), {"float32": Rate(100.0, 1.0, 9)}, Rate(4.0, 0.1, 9))
SPEC = TensorSpec((4096, 4096), (4096, 1), "float32")
#: The least time of exp (64 MiB read from memory, what is written fits the cache) and of mm (137.4 GFLOP).
EXP_US, MM_US = 16.777216, 1374.389535


@pytest.fixture(scope="module")
def judged(build):
    """Two steps: an exp in each of two layers, a product recomputed once, a copy from the host at the beginning."""
    out = build.fact(4096, 4096)

    def measured(key, us, kernel, **timing):
        path = Path(True, True, kernels=(Kernel(kernel, us, 1),))
        output = build.comparison(expected=out, actual=out)
        return build.measurement(output, key=key, device_time=Timing(us, 1.0, 20, lead_us=200.0, **timing), path=path)

    exp = "aten::exp.default"
    cases = (
        build.case(exp, SPEC, key="exp-0", n_calls=2, modules=("net.layers.0.act",)),
        build.case(exp, SPEC, TensorSpec((1,), (1,), "float32"), key="exp-1", n_calls=2, modules=("net.layers.1.act",)),
        build.case("aten::mm.default", SPEC, SPEC, key="mm-0", n_calls=4, n_recomputed=2, phase="backward"),
        build.case("aten::sort.default", SPEC, key="sort-0", n_calls=2, phase="optimizer"),
        build.case(
            "aten::_to_copy.default", TensorSpec((4096, 4096), (4096, 1), "float32", host=True), key="to-0", n_calls=1
        ),
    )
    measurements = (
        measured("exp-0", 40.0, "void at::native::vectorized_elementwise_kernel<4>", host_us=10.0),
        measured("exp-1", 50.0, "void at::native::vectorized_elementwise_kernel<4>", host_us=10.0),
        measured("mm-0", 1500.0, "Cijk_Alik_Bljk_SB_MT64x64", host_us=20.0),
        measured("sort-0", 100.0, "void at::native::radixSort", host_us=30.0),
        measured("to-0", 9000.0, "MEMORY_COPY_HOST_TO_DEVICE", host_us=9000.0),
    )
    header = build.header("hip", ceilings=CEILINGS, source=Source("script", "m.py", n_steps=2))
    run = Run(header, cases, {m.key: m for m in measurements})
    return run, judge(run).verdicts


def test_a_step_is_the_mean_of_the_recorded_ones_without_the_copies_from_the_host(judged):
    step = step_of(*judged)
    assert step is not None
    assert (step.n_steps, step.us) == (2, 40.0 + 50.0 + 2 * 1500.0 + 100.0)
    sorting = 100 - EXP_US  # the least that it reads is what exp reads
    assert step.lost_us == pytest.approx((40 - EXP_US) + (50 - EXP_US) + 2 * (1500 - MM_US) + sorting)
    assert step.host_us == 10.0 + 10.0 + 2 * 20.0 + 30.0
    assert not step.is_bound_by_host


def test_what_is_not_in_a_step_is_told_beside_it(judged):
    step = step_of(*judged)
    assert step is not None
    assert (step.bus_us, step.no_case_us, step.n_untimed) == (4500.0, 0.0, 0)
    run, _ = judged
    orphans = NotAudited("kernels", "orphaned", n_seen=2, kernels=(Kernel("k", 600.0, 2),))
    run = replace(run, header=replace(run.header, not_audited=(orphans,)))
    less = replace(run, measurements={key: m for key, m in run.measurements.items() if key != "sort-0"})
    step = step_of(less, judge(less).verdicts)
    assert step is not None
    assert (step.us, step.no_case_us, step.n_untimed) == (3090.0, 300.0, 1)


def test_the_time_between_the_events_around_a_view_is_no_time_of_the_device(judged, build):
    run, _ = judged
    view = build.case("aten::view.default", SPEC, key="view-0", n_calls=1000)
    seen = build.measurement(key="view-0", device_time=Timing(1.3, 0.1, 20, host_us=2.0))
    run = replace(run, cases=(*run.cases, view), measurements={**run.measurements, "view-0": seen})
    step = step_of(run, judge(run).verdicts)
    assert step is not None
    assert (step.us, step.host_us) == (3190.0, 90.0 + 500 * 2.0)


def test_utilisation_counts_recomputed_arithmetic_once(judged):
    step = step_of(*judged)
    assert step is not None
    assert step.flops == 2.0 * 4096**3
    assert step.utilisation == pytest.approx(MM_US / 3190.0)


def test_utilisation_is_of_the_rates_that_the_limits_are_made_of(judged):
    """A product of the run that is faster than the calibration raises both, so that no step uses more than all."""
    run, _ = judged
    product = run.measurements["mm-0"]
    fast = replace(product, device_time=Timing(1000.0, 1.0, 20, lead_us=200.0))
    run = replace(run, measurements={**run.measurements, "mm-0": fast})
    step = step_of(run, judge(run).verdicts)
    assert step is not None
    assert step.utilisation == pytest.approx(1000.0 / 2190.0)


def test_ops_modules_and_libraries_are_ranked_by_what_they_lose(judged):
    assert [(group.name, group.n_calls) for group in lost_by_op(*judged)] == [
        ("aten::mm", 2),
        ("aten::sort", 1),
        ("aten::exp", 2),
    ]
    by_module = [(group.name, round(group.lost_us, 2)) for group in lost_by_module(*judged)]
    assert by_module == [("(outside of modules)", 251.22), ("(optimizer)", 83.22), ("net.layers.*.act", 56.45)]
    assert [group.name for group in lost_by_library(*judged)] == ["rocBLAS", "PyTorch native"]


def test_nothing_that_was_timed_is_no_step(judged):
    run, verdicts = judged
    assert step_of(run, ()) is None
    assert step_of(run, [v for v in verdicts if v.key == "to-0"]) is None


def test_time_without_a_floor_is_told_apart_and_loses_nothing(build):
    """Without a measured launch, an op of unknown work has no floor."""
    case = build.case("aten::linalg_eig.default", TensorSpec((0,), (1,), "float32"), key="eig-0")
    measured = build.measurement(key="eig-0", device_time=Timing(700.0, 1.0, 20))
    run = Run(build.header("hip"), (case,), {"eig-0": measured})
    [group] = lost_by_op(run, judge(run).verdicts)
    assert (group.us, group.lost_us, group.without_floor_us) == (700.0, 0.0, 700.0)
