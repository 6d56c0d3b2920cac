"""Every threshold of every rule, by name, with where its value comes from. The report prints them."""

from __future__ import annotations

from dataclasses import dataclass, field, fields


@dataclass(frozen=True)
class Thresholds:
    """Ratios are plain numbers, fractions are of one, sizes are in bytes, times in microseconds."""

    allowed_ratio: float = field(
        default=8.0,
        metadata={
            "source": "torch._dynamo.utils.same() accepts 2 to 10 times the low precision run's own error against "
            "fp64, 8 for tensors of up to 500 elements; summation order and FMA grouping explain that much"
        },
    )
    allowed_ratio_same_dtype: float = field(
        default=16.0,
        metadata={"source": "twice allowed_ratio: without an fp64 form both sides carry an error, and these add up"},
    )
    allowed_roundings: float = field(
        default=4.0,
        metadata={
            "source": "variance of the typical error, in that of one rounding: cutting instead of rounding gives 4, "
            "sums of 4 parts in the output's own dtype 3.6; torch allows these by default "
            "(torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction)"
        },
    )
    sketch_slack: float = field(
        default=1.25,
        metadata={"source": "variance: what the model of rounding may miss (subnormals, ties, values of few bits)"},
    )
    sketch_chance: float = field(
        default=1e-9,
        metadata={
            "source": "chance of a false alarm in one output if its roundings are independent; docs/sensitivity.md"
        },
    )
    coarser_rms: float = field(
        default=5.0,
        metadata={
            "source": "times the CPU's rms error, which is that of one rounding; split reductions that round each part "
            "reach 2 to 3"
        },
    )
    typical_rounding: float = field(
        default=2.0,
        metadata={
            "source": "times one rounding, of most parts of an output: above, a library rounds more than once all over "
            "(Winograd in half precision: 4), and no part is told apart"
        },
    )
    scale_error_steps: float = field(
        default=0.75,
        metadata={
            "source": "of eps, by which a whole output may be too large or too small; cutting makes it 0.35 at most"
        },
    )
    misrounded_fraction: float = field(
        default=0.1,
        metadata={"source": "of the results of one operation that IEEE 754 defines; cutting makes it a half"},
    )
    drift_ratio: float = field(
        default=8.0,
        metadata={
            "source": "times the CPU's own accumulated error; allowed_ratio, for both are sums of as many roundings"
        },
    )
    drift_start_ratio: float = field(
        default=3.0,
        metadata={"source": "times the CPU's own accumulated error; healthy steps came to 2.5 (docs/drift.md)"},
    )
    random_chance: float = field(
        default=1e-9,
        metadata={
            "source": "chance of a false alarm in one output of right random numbers; a million such outputs give one "
            "in a thousand runs"
        },
    )
    host_copy_fraction: float = field(
        default=0.25,
        metadata={
            "source": "of the operand bytes; a CPU fallback moves whole operands, at least one of up to four of a size"
        },
    )
    scalar_copy_bytes: float = field(
        default=32.0,
        metadata={"source": "bytes a copy; four int64, more than item, nonzero or unique read back at once"},
    )
    slower_than_cpu_factor: float = field(
        default=2.0,
        metadata={"source": "times the CPU; the medians' inter-quartile ranges are taken off on both sides first"},
    )
    slow_floor_us: float = field(
        default=200.0,
        metadata={
            "source": "microseconds; several launches with a synchronisation take 10 to 100, whatever the op does"
        },
    )
    first_call_note_us: float = field(
        default=2e6,
        metadata={"source": "microseconds; loading a BLAS library takes about a second in a fresh process"},
    )
    first_call_slow_us: float = field(
        default=30e6,
        metadata={"source": "microseconds; MIOpen searches of 45 to 75 s a shape are reported (ROCm/TheRock#3077)"},
    )
    fixed_launches: float = field(
        default=2.0,
        metadata={
            "source": "times a launch as measured there, for each kernel that ran: a call may take it whatever it does"
        },
    )
    far_from_limit_us: float = field(
        default=50.0,
        metadata={"source": "microseconds a call; below, what a kernel takes to start and to end is much of its time"},
    )
    unmeasured_launch_us: float = field(
        default=10.0,
        metadata={"source": "microseconds of a launch where none was measured; 3.5 on an H200"},
    )
    datasheet_fraction: float = field(
        default=0.5,
        metadata={
            "source": "of the share of measured rates that is expected, where only datasheet peaks are known: an "
            "MI300X achieves 708 of 1307 bf16 TFLOPS (AMD)"
        },
    )
    wider_dtype_factor: float = field(
        default=1.5,
        metadata={"source": "times as fast the device's products are in the dtype of the program's others"},
    )
    stray_dtype_fraction: float = field(
        default=0.25,
        metadata={"source": "of the program's products; a dtype that more of them have was chosen"},
    )
    slower_than_baseline_factor: float = field(
        default=1.5,
        metadata={"source": "times an earlier run on the same device, beyond both runs' spread"},
    )
    slower_than_elsewhere_factor: float = field(
        default=2.5,
        metadata={
            "source": "times another device's, brought to this one's limits; libraries differ by two where all is well"
        },
    )
    same_error_fraction: float = field(
        default=0.5,
        metadata={"source": "of the cases that ran; more than half with one environment error is one root cause"},
    )

    def rows(self) -> tuple[tuple[str, str, str], ...]:
        """(name, value, source) for the report."""
        return tuple((f.name, f"{getattr(self, f.name):g}", f.metadata["source"]) for f in fields(self))


DEFAULT = Thresholds()
