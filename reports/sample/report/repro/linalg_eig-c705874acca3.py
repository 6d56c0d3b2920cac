#!/usr/bin/env python3
# aten::linalg_eig.default: falling back
#
# FBK301 went through the host: 358.0 KiB to the host in 113 copies, 243.3 KiB to the device in 83 copies, for operands of 64.0 KiB
# SPD401 takes 22.7 ms on the device and 8.01 ms on the CPU, 2.84 times that; it costs 14.7 ms over 1 call
# FBK320 2 alternatives tried; no help: rocSOLVER or cuSOLVER preferred for linear algebra, MAGMA preferred for linear algebra
#
# Found by rocm-audit 0.1.0 on NVIDIA H200 (sm_90), 2026-12-01T07:47:37+00:00,
# torch 2.11.0+cu130. Evidence: Stand-in, not measured on AMD.
# So the finding was not seen on an AMD GPU. This script asks one: torch calls it cuda there as well.
# Needs only torch. Exit code: 1 the finding recurs, 0 it does not, 2 this machine cannot tell.
# Operands 0 are synthesised from recorded statistics (seeded).


import argparse
import base64
import json
import os
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
import zlib

import torch


OP = 'aten::linalg_eig.default'
PHASE = 'forward'
FINDINGS = [
    ('FBK301', {'dtoh_bytes': 366623, 'htod_bytes': 249108, 'n_dtoh': 113, 'n_htod': 83, 'operand_bytes': 65536}),
    ('SPD401', {'device_us': 22719.135284423828, 'device_iqr_us': 398.8151550292969, 'reference_us': 8008.3919999935915, 'reference_iqr_us': 0.0, 'cost_ms': 14.710743284430237, 'n': 5}),
]
EVIDENCE = {'FBK301': [], 'SPD401': []}  # what tells the path, by code


# In elements; extent is the length of the storage. Operands with the same storage number share memory.
OPERANDS = [
    {'sizes': (128, 128), 'strides': (128, 1), 'dtype': 'float32', 'offset': 0, 'extent': 16384, 'storage': 0, 'host': False, 'conj': False, 'neg': False, 'requires_grad': False, 'stats': {'minimum': -3.608713388442993, 'maximum': 3.9195148944854736}},
]
GRADS = None  # no backward
STORED = {  # position: base64 of zlib of the elements from first to last
}


def arguments(t, device, dtype):
    """The arguments as the program gave them; t are the operands."""
    return [t[0]], {}


# --- the same inputs on every machine ----------------------------------------------------------------------------


def dtype_of(name):
    return getattr(torch, name)


def reach(spec):
    """Elements from the operand's first to its last."""
    if 0 in spec["sizes"]:
        return 0
    return 1 + sum((size - 1) * stride for size, stride in zip(spec["sizes"], spec["strides"]))


def values_of(position):
    """The operand's elements from first to last, 1-D: stored ones, or made from the recorded statistics."""
    spec = OPERANDS[position]
    dtype, n, stats = dtype_of(spec["dtype"]), reach(spec), spec["stats"]
    if position in STORED:
        raw = bytearray(zlib.decompress(base64.b64decode(STORED[position])))
        return torch.frombuffer(raw, dtype=dtype) if raw else torch.empty(0, dtype=dtype)
    source = torch.Generator().manual_seed(1000 + position)
    low, high = stats.get("minimum"), stats.get("maximum")
    if dtype == torch.bool:
        return torch.rand(n, generator=source) < stats.get("mean", 0.5)
    if not (dtype.is_floating_point or dtype.is_complex):
        if low is None or high is None:
            return torch.zeros(n, dtype=dtype)  # it may be an index, and one out of range can hang an AMD card
        return torch.randint(low, min(high, 2**63 - 2) + 1, (n,), generator=source).to(dtype)
    values = torch.randn(n, generator=source, dtype=torch.complex128 if dtype.is_complex else torch.float64)
    values = values * stats.get("std", 1.0) + stats.get("mean", 0.0)
    if dtype.is_floating_point:
        if low is not None and high is not None:
            values = values.clamp(low, high)
        values[torch.rand(n, generator=source) < stats.get("subnormal_fraction", 0.0)] = torch.finfo(dtype).tiny / 2
        values[torch.rand(n, generator=source) < stats.get("zero_fraction", 0.0)] = 0.0
        special = [x for x in (low, high) if x is not None]
        for name, value in (("n_nan", float("nan")), ("n_posinf", float("inf")), ("n_neginf", float("-inf"))):
            special += [value] * min(stats.get(name, 0), n)
        places = torch.randperm(n, generator=source)[: len(special)]
        values[places] = torch.tensor(special[: len(places)], dtype=values.dtype)
    return values.to(dtype)


def storages():
    """The bytes under the operands; operands with the same storage number share them. Stored values win."""
    filled = {}
    for position in sorted(range(len(OPERANDS)), key=lambda p: p in STORED):
        spec = OPERANDS[position]
        place, itemsize = (spec["storage"], spec["host"]), dtype_of(spec["dtype"]).itemsize
        if place not in filled:
            sharing = [s for s in OPERANDS if (s["storage"], s["host"]) == place]
            sizes = [max(s["extent"], s["offset"] + reach(s)) * dtype_of(s["dtype"]).itemsize for s in sharing]
            filled[place] = torch.zeros(max(sizes), dtype=torch.uint8)
        raw = values_of(position).contiguous().view(torch.uint8)
        start = spec["offset"] * itemsize
        filled[place][start : start + raw.numel()] = raw
    return filled


def operands_on(device, wide):
    """Fresh operands with the recorded sizes, strides and offsets; ``wide``: floats in double precision."""
    placed = {place: raw.clone() if place[1] else raw.to(device, copy=True) for place, raw in storages().items()}
    widened = {}
    if wide:
        for place, raw in placed.items():
            dtypes = {s["dtype"] for s in OPERANDS if (s["storage"], s["host"]) == place}
            if len(dtypes) > 1 and any(dtype_of(d).is_floating_point or dtype_of(d).is_complex for d in dtypes):
                raise TypeError("operands of several dtypes share a storage, which has no double precision form")
            dtype = dtype_of(dtypes.pop())
            widened[place] = elements(raw, dtype).to(wider(dtype))
    tensors = []
    for spec in OPERANDS:
        place = (spec["storage"], spec["host"])
        base = widened[place] if wide else elements(placed[place], dtype_of(spec["dtype"]))
        tensor = base.as_strided(spec["sizes"], spec["strides"], spec["offset"])
        tensor = tensor.conj() if spec["conj"] else tensor
        tensor = torch._neg_view(tensor) if spec["neg"] else tensor
        tensors.append(tensor.detach().requires_grad_() if spec["requires_grad"] and GRADS is not None else tensor)
    return tensors


def elements(raw, dtype):
    return raw[: raw.numel() // dtype.itemsize * dtype.itemsize].view(dtype)


def wider(dtype):
    if dtype.is_complex:
        return torch.complex128
    return torch.float64 if dtype.is_floating_point else dtype


# --- the call ----------------------------------------------------------------------------------------------------


def resolve():
    """The operator. Raises AttributeError where this process does not know it."""
    namespace, _, rest = OP.partition("::")
    name, _, overload = rest.partition(".")
    return getattr(getattr(getattr(torch.ops, namespace), name), overload or "default")


def call(device, wide=False, inputs=None):
    """Runs the op once; gives its outputs, changed arguments and gradients as {name: tensor}."""
    op = resolve()
    tensors = operands_on(device, wide) if inputs is None else inputs
    args, kwargs = arguments(tensors, torch.device(device), lambda name: wider(dtype_of(name)) if wide else dtype_of(name))
    if GRADS is None:
        with torch.no_grad():
            result = in_phase(lambda: op(*args, **kwargs))
        return {**flatten(op, result), **written(op, args, kwargs)}
    outputs = flatten(op, op(*args, **kwargs))
    pairs = [(o, tensors[g]) for o, g in zip(outputs.values(), GRADS) if g is not None and o.requires_grad]
    leaves = [(position, t) for position, t in enumerate(tensors) if t.requires_grad]
    if pairs and leaves:
        wanted = [t for _, t in leaves]
        grads = torch.autograd.grad([o for o, _ in pairs], wanted, [g for _, g in pairs], allow_unused=True)
        outputs.update({f"gradient of operand {p}": g for (p, _), g in zip(leaves, grads) if g is not None})
    return {name: tensor.detach() for name, tensor in {**outputs, **written(op, args, kwargs)}.items()}


def in_phase(function):
    """ROCm picks other kernels inside autograd's backward, so a backward op is run in one."""
    if PHASE != "backward":
        return function()
    results = []

    class InBackward(torch.autograd.Function):
        @staticmethod
        def forward(ctx, anchor):
            return anchor.clone()

        @staticmethod
        def backward(ctx, grad):
            results.append(function())
            return grad

    with torch.enable_grad():
        InBackward.apply(torch.zeros((), requires_grad=True)).backward()
    return results[0]


def flatten(op, result):
    """Outputs by their names in the schema; those of a list are numbered."""
    returns = op._schema.returns
    values = list(result) if isinstance(result, tuple) and len(returns) != 1 else [result]
    named = {}
    for index, value in enumerate(values):
        name = returns[index].name if index < len(returns) else ""
        name = name or ("output" if len(returns) == 1 else f"output {index}")
        if isinstance(value, (list, tuple)):
            named.update({f"{name}[{i}]": item for i, item in enumerate(value) if isinstance(item, torch.Tensor)})
        elif isinstance(value, torch.Tensor):
            named[name] = value
        elif isinstance(value, (bool, int, float, complex)):
            named[name] = torch.tensor(value)
    return named


def written(op, args, kwargs):
    """The arguments that the op changes, by their names: those its schema tells of, and those a finding is about."""
    given = dict(zip((a.name for a in op._schema.arguments), args), **kwargs)
    at_fault = {data.get("output") for _, data in FINDINGS}
    changed = {}
    for argument in op._schema.arguments:
        told = argument.alias_info is not None and argument.alias_info.is_write
        value = given.get(argument.name)
        for index, item in enumerate(value if isinstance(value, list) else [value]):
            label = f"{argument.name}[{index}] (mutated)" if isinstance(value, list) else f"{argument.name} (mutated)"
            if isinstance(item, torch.Tensor) and (told or label in at_fault):
                changed[label] = item
    return changed


def synchronize(device):
    if device.startswith("cuda"):
        torch.cuda.synchronize()


def on_host(outputs):
    return {name: tensor.detach().cpu() for name, tensor in outputs.items()}


# --- does the finding recur? -------------------------------------------------------------------------------------

FIRST_CALL_S = []
CHECKS = {}  # the first letters of a rule code -> check(code, data, device, reference, actual), True, False or None


def attempt(device):
    """Exit code of one attempt, in this process: the device may kill it."""
    reference = None
    try:
        resolve()
    except AttributeError:
        print(f"This torch knows no operator {OP}; import the library that defines it at the top of this script.")
        return 2
    try:
        reference = on_host(call("cpu"))
    except NotImplementedError as error:
        print(f"The CPU has no kernel for this, so there is no reference: {error}")
    except Exception as error:
        print(f"The CPU raises {type(error).__name__}: {error}\nThe inputs are not valid; the device was not touched.")
        return 2
    try:
        start = time.perf_counter()
        actual = call(device)
        synchronize(device)
        FIRST_CALL_S.append(time.perf_counter() - start)
        actual = on_host(actual)
        canary = torch.full((64, 64), 0.5, device=device) @ torch.full((64, 64), 2.0, device=device)
        if canary.cpu().ne(64).any():
            print("The device gives wrong answers after this op: recurs.")
            return 1
    except Exception as error:
        print(f"The device raised {type(error).__name__}: {error}")
        return 1
    verdicts = []
    for code, data in FINDINGS:
        check = CHECKS.get(code[:3])
        recurs = check(code, data, device, reference, actual) if check else False
        print(f"{code}: {'cannot be told here' if recurs is None else 'recurs' if recurs else 'does not recur'}")
        verdicts.append(recurs)
    return 1 if True in verdicts else 2 if None in verdicts else 0


def guarded(device, limit_s):
    """Exit code of an attempt in a child process that may crash or hang."""
    child = subprocess.Popen([sys.executable, os.path.abspath(__file__), "--attempt", "--device", device])
    try:
        code = child.wait(limit_s)
    except subprocess.TimeoutExpired:
        print(f"No end after {limit_s:g} s: hung.", flush=True)
        child.kill()
        try:
            child.wait(10)
        except subprocess.TimeoutExpired:
            print(f"Process {child.pid} cannot be killed; the device may need a reset.")
        return 1 if any(code in ("SUP103", "SUP104") for code, _ in FINDINGS) else 2
    if code not in (0, 1, 2):
        print(f"The process died with {'signal ' + str(-code) if code < 0 else 'exit code ' + str(code)}.")
        return 1
    return code


def main():
    parser = argparse.ArgumentParser(description=f"Does the finding on {OP} recur? Exit 1: yes, 0: no, 2: cannot tell.")
    parser.add_argument("--device", default="cuda", help="cuda (also the name of an AMD GPU in torch) or cpu")
    parser.add_argument("--timeout", type=float, default=600.0, help="seconds after which it has hung (default 600)")
    parser.add_argument("--attempt", action="store_true", help="run in this process, for a debugger")
    options = parser.parse_args()
    if options.device.startswith("cuda") and not torch.cuda.is_available():
        print("This torch sees no GPU: cannot tell.")
        return 2
    if not options.attempt:
        return guarded(options.device, options.timeout)
    try:
        return attempt(options.device)
    except Exception:
        traceback.print_exc()
        print("The script itself failed: cannot tell.")
        return 2


# --- the path taken ----------------------------------------------------------------------------------------------


def check_path(code, data, device, reference, actual):
    """Whether the evidence of the finding shows again: host copies, ops, kernels or messages by their text."""
    ops, kernels, copied, messages = watch(device)
    print(f"ops: {', '.join(sorted(ops)) or 'none seen'}\nkernels: {', '.join(sorted(kernels)) or 'none seen'}")
    print(f"host copies: {copied} bytes; messages: {messages.strip() or 'none'}")
    if not kernels and device.startswith("cuda"):
        return None  # a profiler that sees no kernel at all has seen nothing
    if code == "FBK301":
        return copied > max(64, 0.25 * sum(raw.numel() for raw in storages().values()))
    wanted = EVIDENCE.get(code, [])
    if not wanted:
        return None
    return any(text in place for text in wanted for place in (*ops, *kernels, messages))


def watch(device):
    """(ops, kernels, bytes copied between host and device, warnings and stderr) of one call after a warm-up."""
    from torch.profiler import ProfilerActivity, profile

    activities = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if device.startswith("cuda") else [])
    torch.set_warn_always(True)
    with tempfile.TemporaryFile() as log, warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        kept = os.dup(2)
        os.dup2(log.fileno(), 2)
        try:
            call(device)
            inputs = operands_on(device, wide=False)
            synchronize(device)
            with profile(activities=activities) as profiler:
                call(device, inputs=inputs)
                synchronize(device)
        finally:
            os.dup2(kept, 2)
        log.seek(0)
        messages = log.read().decode("utf-8", "replace") + "\n".join(str(w.message) for w in warned)
    on_device = [e for e in profiler.events() if e.device_type != torch.autograd.DeviceType.CPU]
    ops = {e.name for e in profiler.events() if e.device_type == torch.autograd.DeviceType.CPU}
    return ops, {e.name for e in on_device}, host_bytes(profiler), messages


def host_bytes(profiler):
    """Bytes of the copies between host and device in the profile's own trace."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "trace.json")
        profiler.export_chrome_trace(path)
        with open(path, encoding="utf-8") as file:
            events = json.load(file)["traceEvents"]
    copies = [e for e in events if e.get("cat") == "gpu_memcpy" and ("DtoH" in e["name"] or "HtoD" in e["name"])]
    return sum(int(e.get("args", {}).get("bytes", 0)) for e in copies)


CHECKS["FBK"] = check_path


# --- speed -------------------------------------------------------------------------------------------------------


LAUNCH_US = 20.0  # what a call may take whatever it does


def check_speed(code, data, device, reference, actual):
    """Whether the call is slow again, by the limit of its rule; None where nothing here can tell."""
    if code == "SPD402":
        print(f"first call in this process: {FIRST_CALL_S[0]:.2f} s")
        return FIRST_CALL_S[0] > data.get("limit_us", 30e6) / 1e6
    on_device = median_us(device)
    limit_us = slow_from_us(code, data, device, reference)
    if limit_us is None:
        print(f"median of a call: {on_device:.1f} us; the finding is about more than this call, so no time can tell")
        return None
    print(f"median of a call: {on_device:.1f} us, slow from {limit_us:.1f} us")
    return on_device > limit_us


def slow_from_us(code, data, device, reference):
    """Against the CPU here, against the limit of the device that was audited, or against another one's time."""
    if code == "SPD401" and reference is not None:
        return data.get("slower_than_cpu_factor", 2.0) * median_us("cpu")
    if code == "SPD403" and data.get("ideal_us") and data.get("expected_fraction"):
        return LAUNCH_US + data["ideal_us"] / data["expected_fraction"]
    if code == "SPD405" and data.get("there_us"):
        is_same = device.startswith("cuda") and torch.cuda.get_device_name() == data.get("there")
        return LAUNCH_US + (1.5 if is_same else 2.5) * data["there_us"] * data.get("scale", 1.0)
    return None


def median_us(device, budget_s=5.0):
    """Median of up to 50 calls, copies of the inputs not counted; a GPU's by its own events."""
    call(device)
    times, end = [], time.monotonic() + budget_s
    while len(times) < 3 or (len(times) < 50 and time.monotonic() < end):
        inputs = operands_on(device, wide=False)
        synchronize(device)
        times.append(call_us(device, inputs))
    return sorted(times)[len(times) // 2]


def call_us(device, inputs):
    if device.startswith("cuda"):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        call(device, inputs=inputs)
        end.record()
        torch.cuda.synchronize()
        return start.elapsed_time(end) * 1e3
    started = time.perf_counter()
    call(device, inputs=inputs)
    return (time.perf_counter() - started) * 1e6


CHECKS["SPD"] = check_speed


if __name__ == "__main__":
    sys.exit(main())
