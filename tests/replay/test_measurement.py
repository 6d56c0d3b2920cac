"""Healthy cases of every kind in one audit of the simulated device: what is compared, with what, and how far off."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from audit.schema import Named, Values

EPS32, EPS16 = 2.0**-23, 2.0**-7

FAULTS = """
import torch

def inside_backward(call):
    result = call.run(*call.args)
    node = torch._C._current_autograd_node()
    call.stderr(f"{call.phase} {node is not None} {torch._C._current_graph_task_id() != -1}")
    return result

def off_by_a_lot(call):
    return call.run(*call.args) + 1e-3

FAULTS = {"aten::mm.default": inside_backward, "aten::sinh.default": off_by_a_lot}
"""


@pytest.fixture(scope="module")
def cases(build):
    def t(sizes, dtype="float32", storage=0, **given):
        return build.tensor(sizes, dtype, storage, **given)

    chance = Values(minimum=0.0, maximum=1.0, mean=0.5, std=0.2)
    image, filters = t([2, 3, 8, 8], requires_grad=True), t([4, 3, 3, 3], storage=1)
    channel = [t([3], storage=n, requires_grad=n < 3) for n in range(1, 5)]
    qkv = [t([1, 2, 6, 8], storage=n, requires_grad=True) for n in range(3)]
    half = [t([1, 2, 6, 8], "bfloat16", storage=n) for n in range(3)]
    step = Values(minimum=1.0, maximum=1.0, mean=1.0, std=0.0)
    lists = tuple((t([5], storage=n),) for n in range(4))
    adam = {
        "lr": 0.01,
        "beta1": 0.9,
        "beta2": 0.999,
        "weight_decay": 0.0,
        "eps": 1e-8,
        "amsgrad": False,
        "maximize": False,
    }
    return {
        "mm": build.case("aten::mm.default", t([6, 5]), t([5, 4], storage=1)),
        "mm backward": build.case("aten::mm.default", t([6, 5]), t([5, 4], storage=1), phase="backward"),
        "half": build.case("aten::bmm.default", t([2, 6, 5], "bfloat16"), t([2, 5, 4], "bfloat16", storage=1)),
        "add_": build.case("aten::add_.Tensor", t([3, 4]), t([4], storage=1)),
        "batch norm": build.case(
            "aten::batch_norm.default", image, *channel, True, 0.1, 1e-5, True, grads=(t([2, 3, 8, 8], storage=9),)
        ),
        "attention": build.case(
            "aten::scaled_dot_product_attention.default", *qkv, grads=(t([1, 2, 6, 8], storage=9),)
        ),
        "convolution": build.case(
            "aten::convolution.default", image, filters, None, (1, 1), (1, 1), (1, 1), False, (0, 0), 1
        ),
        "flash": build.case("aten::_scaled_dot_product_flash_attention.default", *half),
        "adam": build.case(
            "aten::_fused_adam_.default",
            *lists,
            (),
            (t([], storage=5),),
            **adam,
            values={2: Values(minimum=-1.0, maximum=1.0), 3: chance, 4: step},
        ),
        "sum": build.case("aten::sum.dim_IntList", t([6, 5], "bfloat16"), (1,), False, dtype=Named("dtype", "float32")),
        "topk": build.case("aten::topk.default", t([4, 9]), 3),
        "gt": build.case("aten::gt.Scalar", t([4, 9]), 0.5),
        "bernoulli": build.case("aten::bernoulli.default", t([4, 9]), values={0: chance}),
        "empty": build.case("aten::empty.memory_format", (64,), dtype=Named("dtype", "float32")),
        "item": build.case("aten::_local_scalar_dense.default", t([])),
        "split": build.case("aten::split.Tensor", t([6, 2]), 2),
        "sinh": build.case("aten::sinh.default", t([100])),
        "unsqueeze_": build.case("aten::unsqueeze_.default", t([3]), 0),
        "resize_": build.case("aten::resize_.default", t([0]), (4,)),
        "add.out": build.case("aten::add.out", t([3]), t([3], storage=1), out=t([0], storage=2)),
        "narrow sum": build.case("aten::sum.dim_IntList", t([1, 6], strides=[20, 1]), (1,)),
    }


@pytest.fixture(scope="module")
def run(cases, fault_file, replay):
    return replay(list(cases.values()), device=fault_file(FAULTS))


@pytest.fixture
def compared(run, cases):
    def of(name: str):
        measured = run.of(cases[name])
        assert measured.device.kind == "ok", measured.device.message
        return {comparison.name: comparison for comparison in measured.comparisons}

    return of


def test_all_cases_ran_and_left_the_device_healthy(run, cases):
    assert [(name, run.of(case).device.kind) for name, case in cases.items()] == [(name, "ok") for name in cases]
    assert {run.of(case).canary for case in cases.values()} == {"passed"}


def test_a_gemm_is_compared_with_fp64_and_its_noise_is_of_the_size_of_rounding(compared):
    output = compared("mm")["output"]
    assert (output.standard, output.reference, output.n_elements, output.eps) == ("numeric", "fp64", 24, EPS32)
    assert 0 < output.cpu_max_abs_error <= output.noise < 50 * EPS32
    assert output.worst_ratio < 4


def test_noise_of_a_half_precision_gemm_follows_its_inputs_rounding(compared):
    output = compared("half")["output"]
    assert output.eps == EPS16
    assert EPS16 / 4 < output.noise < 10 * EPS16
    assert output.worst_ratio < 2


def test_a_case_of_the_backward_phase_runs_inside_a_backward(run, cases):
    lines = run.of(cases["mm backward"]).device.stderr.splitlines()
    assert set(lines) == {"backward True True"}
    assert len(lines) >= 4, "two compared runs, an observed and a timed one"
    assert set(run.of(cases["mm"]).device.stderr.splitlines()) == {"forward False False"}


def test_an_argument_written_in_place_is_the_output(compared):
    assert list(compared("add_")) == ["self (mutated)"]
    assert compared("add_")["self (mutated)"].worst_ratio < 4


def test_an_op_may_resize_what_it_writes(compared):
    assert compared("resize_")["self (mutated)"].standard == "metadata"
    out = compared("add.out")["out (mutated)"]
    assert (out.n_elements, out.n_different, out.n_unwritten) == (3, 0, 0)


def test_a_composite_is_compared_with_gradients_and_running_statistics(compared):
    names = ["output", "gradient of operand 0", "gradient of operand 1", "gradient of operand 2"]
    found = compared("batch norm")
    assert list(found) == [*names, "running_mean (mutated)", "running_var (mutated)"]
    assert all(c.standard == "numeric" and c.reference == "fp64" and c.worst_ratio < 8 for c in found.values())


def test_attention_gives_its_gradients_and_the_op_that_was_chosen(run, cases, compared):
    assert len(compared("attention")) == 4
    assert all(c.worst_ratio < 8 for c in compared("attention").values())
    chosen = run.of(cases["attention"]).path.chosen_ops
    assert any("_attention" in op and "backward" in op for op in chosen)


def test_a_convolution_goes_through_miopen_on_the_simulated_device(run, cases, compared):
    assert "aten::miopen_convolution.default" in run.of(cases["convolution"]).path.chosen_ops
    assert compared("convolution")["output"].worst_ratio < 8


def test_an_op_without_a_cpu_kernel_is_compared_with_its_equivalent(run, cases, compared):
    measured = run.of(cases["flash"])
    assert (measured.reference.kind, measured.reference_time) == ("ok", None)
    assert "no CPU kernel" in measured.reference.message
    output = compared("flash")["output"]
    assert (output.reference, output.expected.dtype) == ("fp64", "bfloat16")
    assert output.worst_ratio < 4
    assert compared("flash")["rng_state"].standard == "metadata"


def test_a_fused_optimizer_is_compared_by_what_it_changed(compared):
    found = compared("adam")
    assert {"self[0] (mutated)", "exp_avgs[0] (mutated)", "exp_avg_sqs[0] (mutated)"} <= set(found)
    assert all(c.worst_ratio < 8 for c in found.values())


def test_a_dtype_argument_is_widened_for_the_reference(compared):
    output = compared("sum")["output"]
    assert (output.reference, output.expected.dtype, output.eps) == ("fp64", "float32", EPS32)


def test_selection_and_comparison_are_exact(compared):
    assert [(c.standard, c.n_different) for c in compared("topk").values()] == [("exact", 0), ("exact", 0)]
    assert (compared("gt")["output"].standard, compared("gt")["output"].expected.dtype) == ("exact", "bool")


def test_random_and_uninitialised_outputs_are_compared_by_shape_alone(compared):
    for name in ("bernoulli", "empty"):
        output = compared(name)["output"]
        assert (output.standard, output.n_unwritten, output.n_not_repeated) == ("metadata", 0, 0)
        assert output.why


def test_a_number_and_a_list_are_outputs_too(compared):
    assert compared("item")["output"].n_elements == 1
    assert list(compared("split")) == ["output[0]", "output[1]", "output[2]"]


def test_a_real_error_stands_out_from_the_noise(compared):
    output = compared("sinh")["output"]
    assert output.max_abs_error == pytest.approx(1e-3, rel=1e-2)
    assert output.worst_ratio > 100
    assert output.ratio_counts[0] == 100


def test_times_are_medians_with_their_count(run, cases):
    timing = run.of(cases["mm"]).device_time
    assert timing.n >= 1
    assert timing.median_us > 0
    assert timing.first_us > 0
    assert run.of(cases["mm"]).reference_time.n >= 1


def test_an_op_that_reshapes_its_argument_is_not_timed(run, cases):
    measured = run.of(cases["unsqueeze_"])
    assert measured.device_time is None
    assert any(note.startswith("not timed") for note in measured.notes)


def test_running_the_audit_twice_gives_the_same_numbers(run, cases, fault_file, replay):
    chosen = [cases["mm"], cases["half"]]
    again = replay(chosen, device=fault_file(FAULTS))
    for case in chosen:
        assert again.of(case).comparisons == run.of(case).comparisons


def test_torch_is_where_the_stated_eps_come_from():
    assert (torch.finfo(torch.float32).eps, torch.finfo(torch.bfloat16).eps) == (EPS32, EPS16)


def test_a_call_is_replayed_under_the_settings_that_it_was_recorded_under(build, replay, simulated_device):
    operands = [build.tensor([1, 2, 4, 8], "bfloat16", storage=n) for n in range(3)]
    free = build.case("aten::scaled_dot_product_attention.default", *operands)
    names = ("torch.backends.cuda.enable_flash_sdp", "torch.backends.cuda.enable_mem_efficient_sdp", "torch.no.such")
    forced = dataclasses.replace(free, key="forced", settings=tuple((name, False) for name in names))
    run = replay([free, forced, dataclasses.replace(free, key="after")], device="sim")
    chosen = {key: run.of(case).path.chosen_ops for key, case in (("free", free), ("forced", forced))}
    assert "aten::_scaled_dot_product_flash_attention.default" in chosen["free"]
    assert "aten::_scaled_dot_product_attention_math.default" in chosen["forced"]
    assert run.of(forced).notes == ("this torch has no torch.no.such; replayed without it",)
    assert run.events[-1].path.chosen_ops == chosen["free"]
