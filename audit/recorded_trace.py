"""How a target becomes a trace: a program is run, a recording is read, a file is copied, a run's own is found again."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from audit.errors import UsageError
from audit.imported_run import is_finished
from audit.opset import read_opset, write_opset
from audit.opset.ranks import copy_or_merge, rank_files, rank_path
from audit.output_file import check_output_file
from audit.privacy.name_map import new_map_path
from audit.privacy.private_trace import made_private
from audit.run_folder import CASES_FILE
from audit.schema import DeviceInfo, Trace
from audit.store import read_run

if TYPE_CHECKING:
    from audit.progress import Progress
    from audit.run_options import RunOptions
    from audit.targets import Target


def trace_only(options: RunOptions) -> tuple[Trace, Path]:
    """Records the target; the trace and the file it is in (one a rank under a launcher)."""
    path = rank_path(options.output)
    check_output_file(path, options.force)  # known before the program runs for minutes
    if is_finished(options.target):
        raise UsageError(
            f"{options.target.name} was measured already; `rocm-audit run` judges it as it is",
            "bad-arguments",
        )
    if options.target.kind == "opset" and not options.private:
        raise UsageError(
            f"{options.target.name} is a trace already; replay it with `rocm-audit run`, or make a private copy of it "
            "with --private",
            "bad-arguments",
        )
    names = _names_of(options, path)
    if options.target.kind == "opset":
        return _copy(options.target.path, path, names), path
    trace_target(options.target, path, options, names)
    return read_opset(path), path


def obtain_trace(options: RunOptions, progress: Progress) -> Trace:
    """The cases of the target, as ``cases.audit`` in the run folder."""
    cases_file = options.output / CASES_FILE
    if options.resume:
        return _trace_of_run(options, cases_file)
    names = _names_of(options, options.output.resolve())
    if options.target.kind == "opset":
        return _copy(options.target.path, cases_file, names)
    progress.phase(f"{'reading' if options.target.importer else 'tracing'} {options.target.name}")
    trace_target(options.target, cases_file, options, names)
    return read_opset(cases_file)


def _names_of(options: RunOptions, output: Path) -> Path | None:
    """Where the map of a private trace's names goes: beside what may be given away. Raises UsageError."""
    return new_map_path(output, options.force) if options.private else None


def _copy(path: Path, target: Path, names: Path | None) -> Trace:
    """An opset, or the ranks that stand for it, at another place; with ``names`` its private form."""
    if names is None:
        return copy_or_merge(path, target)
    from audit.tracer.private_copy import copy_private

    with tempfile.TemporaryDirectory(prefix="rocm-audit-") as scratch:
        whole = Path(scratch, "whole.audit")
        copy_or_merge(path, whole)
        return copy_private(whole, target, names)


def _trace_of_run(options: RunOptions, cases_file: Path) -> Trace:
    """The trace that the run in the folder began with. Raises UsageError where the target is another one."""
    trace = read_opset(cases_file)
    target, source = options.target, trace.source
    keys = {case.key for case in trace.cases}
    if source.private:
        is_other = False  # its names cannot be compared; the run beside it is, below
    elif target.kind != "opset":
        is_other = (target.kind == "module", target.name) != (source.kind == "module", source.name)
    else:
        files = [target.path] if target.path.exists() else rank_files(target.path)
        is_other = {case.key for file in files for case in read_opset(file).cases} != keys
    run = read_run(options.output)
    if is_other or run.header.n_cases != len(keys) or not keys.issuperset(case.key for case in run.cases):
        raise UsageError(
            f"the run in {options.output} is one of {run.header.source.name}, or {cases_file.name} there is not its "
            f"trace; start one of {target.name} in another folder",
            "other-program",
        )
    return trace


def trace_target(target: Target, output: Path, options: RunOptions, names: Path | None) -> None:
    """Runs the program in a process of its own, which writes ``output``, and ``names`` where the trace is private.

    Raises what that process reports. What another tool recorded is read instead.
    """
    if target.importer is not None:
        trace = target.importer.read(target.path)
        assert isinstance(trace, Trace), "a finished run is no trace: see `run`"
        write_opset(output, trace if names is None else made_private(trace, names), None)
        return
    from audit.tracer.launch import trace_in_child

    gpu = pretended_gpu(options.gpu)
    trace_in_child(
        target, output, options.n_steps, options.mode, options.values_bytes, gpu, options.fake, options.shape, names
    )


def pretended_gpu(arch: str) -> DeviceInfo:
    """The device to predict for, with the knowledge base's facts. Raises UsageError for an arch it does not know."""
    from audit.knowledge.gpus import gpus_of, load_gpus

    products = gpus_of(arch)
    if not products:
        known = ", ".join(sorted({gpu.arch for gpu in load_gpus() if gpu.vendor == "AMD"}))
        raise UsageError(f"--gpu {arch}: not in the knowledge base; known are {known}", "unknown-gpu")
    gpu = max(products, key=lambda product: product.compute_units or 0)  # the full part, not a cut-down sibling
    facts = {
        "wavefront": gpu.wavefront,
        "compute_units": gpu.compute_units,
        "total_memory_bytes": None if gpu.memory_gib is None else int(gpu.memory_gib * (1 << 30)),
    }
    return DeviceInfo(
        "none", f"AMD {gpu.product}", arch, {name: str(value) for name, value in facts.items() if value is not None}
    )
