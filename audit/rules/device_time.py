"""Where the device time of a run went: by library, by what the kernels did, and to kernels that no case stands for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from audit.knowledge.kernels import classify_kernel
from audit.rules.arguments import n_calls_seen
from audit.run_records import Run
from audit.schema import Kernel


@dataclass(frozen=True)
class Share:
    """Kernels of one library and one sort: their device time in microseconds, over all calls, and their launches."""

    library: str
    category: str
    us: float
    count: int


def device_time_by_library(run: Run) -> list[Share]:
    """Largest first; all kernels of the run, whether a case stands for them or not. Empty where none was timed."""
    found: dict[tuple[str, str], tuple[float, int]] = {}
    for kernel in (*_kernels_of_cases(run), *_kernels_of_no_case(run)):
        known = classify_kernel(kernel.name)
        key = (known.family, known.category)
        us, count = found.get(key, (0.0, 0))
        found[key] = (us + kernel.us, count + kernel.count)
    shares = [Share(library, category, us, count) for (library, category), (us, count) in found.items() if us > 0]
    return sorted(shares, key=lambda share: (-share.us, share.library, share.category))


def _kernels_of_cases(run: Run) -> Iterator[Kernel]:
    """Of all calls: a replay has seen one of them, a recording each."""
    for case in run.cases:
        measurement = run.measurements.get(case.key)
        if measurement is not None:
            time = measurement.device_time
            all_seen = time is not None and time.total_us is not None
            times = 1.0 if all_seen else case.n_calls / n_calls_seen(measurement)
            for kernel in measurement.path.kernels:
                yield Kernel(kernel.name, kernel.us * times, round(kernel.count * times))


def _kernels_of_no_case(run: Run) -> Iterable[Kernel]:
    return (kernel for item in run.header.not_audited for kernel in item.kernels)
