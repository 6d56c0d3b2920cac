#!/usr/bin/env python3
# aten::hardsigmoid.default: divergent
#
# NUM201 output is off by 3e-08 from fp64 where 7.1e-15 is allowed, 16 x (noise 2.2e-16 + eps 2.2e-16 x |expected|); at [1858, 3261]: got 1.00000003, expected 1; 8388607 of 8388608 elements are beyond: all over it (over 99 %)
# FBK320 1 alternative tried; no help: deterministic mode
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


OP = 'aten::hardsigmoid.default'
PHASE = 'forward'
FINDINGS = [
    ('NUM201', {'output': 'output', 'reference': 'fp64', 'error': 2.9802322387695312e-08, 'allowed': 7.105427357601002e-15, 'allowed_ratio': 16.0, 'worst_ratio': 67108864.0, 'n_beyond': 8388607, 'n_elements': 8388608, 'max_abs_error': 2.9802322387695312e-08, 'rms_error': 1.5354675398204386e-08, 'cpu_max_abs_error': 0.0, 'cpu_rms_error': 0.0, 'noise': 2.220446049250313e-16, 'eps': 2.220446049250313e-16, 'worst_place': '[1858, 3261]', 'places': 'all over it (over 99 %)', 'one_run_of_memory': 'no', 'n_placed': 8388607, 'ulp': '0 ULP: 1; 2^27 to 2^28: 8,388,607'}),
]


# In elements; extent is the length of the storage. Operands with the same storage number share memory.
OPERANDS = [
    {'sizes': (2048, 4096), 'strides': (4096, 1), 'dtype': 'float64', 'offset': 0, 'extent': 8388608, 'storage': 0, 'host': False, 'conj': False, 'neg': False, 'requires_grad': False, 'stats': {'minimum': -3.515625, 'maximum': 3.140625, 'mean': 0.034960413413500646, 'std': 0.5890230084911579}},
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


# --- numbers -----------------------------------------------------------------------------------------------------


def check_numbers(code, data, device, reference, actual):
    """One finding about values, by its rule code; None where there is nothing to compare with."""
    name = data.get("output")
    if code == "NUM207" or code == "NUM208":
        return changes_with_memory(device, name)
    if code == "NUM209":
        return writes_outside(device)
    if code == "NUM210":
        return any(not torch.equal(raw, raw.to(device).cpu()) for raw in storages().values())
    if reference is None:
        return None
    found, expected = output_of(actual, name), output_of(reference, name)
    if found is not None and expected is not None:
        return differs(code, data, name, found, expected)
    if found is None and expected is None:
        print(f"{name} is no output of this call by itself, and this script does not know how it is made")
        return None
    print(f"{name} is given by {'the CPU' if found is None else 'the device'} only")
    return True


PRODUCTS = {}  # name: [(outputs, function of them)], of what is compared in place of outputs


def output_of(outputs, name):
    """An output, or what is made of several in double precision and rounded once; None where there is none."""
    if name in outputs:
        return outputs[name].detach()
    for given, made in PRODUCTS.get(name, ()):
        if all(other in outputs for other in given):
            wide = [outputs[other].detach().to(wider(outputs[other].dtype)) for other in given]
            return made(*wide).resolve_conj().to(outputs[given[0]].dtype).contiguous()
    return None


def differs(code, data, name, actual, expected):
    if actual.shape != expected.shape or actual.dtype != expected.dtype:
        print(f"{name} is {actual.dtype}{list(actual.shape)}, expected {expected.dtype}{list(expected.shape)}")
        return True
    if code == "NUM205":
        return False
    if code == "NUM214":
        return another_law(name, actual, expected)
    if code == "NUM202":
        return bool((nan(actual) != nan(expected)).any())
    if code == "NUM203":
        return bool((actual.isinf() != expected.isinf()).any())
    if code == "NUM204" or not (actual.dtype.is_floating_point or actual.dtype.is_complex):
        wrong = (actual != expected) & ~(nan(actual) & nan(expected))
        print(f"{name}: {int(wrong.sum())} of {wrong.numel()} elements are not bit for bit the CPU's")
        return bool(wrong.any())
    if code == "NUM213":
        return coarser(data, name, actual, expected)
    return beyond_allowance(data, name, actual, expected)


def nan(tensor):
    return tensor.isnan() if tensor.dtype.is_floating_point or tensor.dtype.is_complex else torch.zeros_like(tensor, dtype=torch.bool)


def beyond_allowance(data, name, actual, same):
    """|actual - fp64| > allowed * (noise + eps * |fp64|). noise: the CPU's own error in the same dtype, or what moving
    each input by one rounding step changes, whichever is larger."""
    allowed = data.get("allowed_ratio", 8.0)
    noise = 0.0
    try:
        exact = output_of(call("cpu", wide=True), name)
        moved = output_of(call("cpu", wide=True, inputs=nudged()), name)
        noise = max(largest(same.to(exact.dtype) - exact), largest(moved - exact))
        if name in PRODUCTS:  # where its terms cancel a rounding step of the largest is left
            noise = max(noise, largest(exact) * torch.finfo(actual.dtype).eps)
    except Exception as error:
        print(f"No double precision reference ({error}); the CPU run in the same dtype stands in.")
        exact = same
    error = (actual.to(exact.dtype) - exact).abs()
    floor = noise + torch.finfo(actual.dtype).eps * exact.abs()
    ratio = torch.where(error > 0, error / floor, torch.zeros_like(error))
    ratio = ratio[actual.isfinite() & same.isfinite()]
    worst = float(ratio.max()) if ratio.numel() else 0.0
    print(f"{name}: largest error {largest(actual.to(exact.dtype) - exact):.3g}, {worst:.3g} times its floor; allowed {allowed:g}")
    return worst > allowed or beyond_at(data, error, exact, torch.finfo(actual.dtype).eps * allowed, allowed)


def beyond_at(data, error, exact, allowed_eps, allowed):
    """The place that the finding names, by the noise that was measured for it: that of others may be larger."""
    place = tuple(json.loads(data.get("worst_place", "null")) or ())
    if "worst_place" not in data or len(place) != error.dim() or any(i >= n for i, n in zip(place, error.shape)):
        return False
    there, limit = float(error[place]), allowed * data["noise"] + allowed_eps * float(exact[place].abs())
    print(f"  at {list(place)}: {there:.3g}, allowed {limit:.3g} by the noise of that place")
    return there > limit


def coarser(data, name, actual, same):
    """Root mean square errors of the device and of the CPU, both against double precision."""
    exact = output_of(call("cpu", wide=True), name)
    device_rms, cpu_rms = (float((t.to(exact.dtype) - exact).square().mean().sqrt()) for t in (actual, same))
    print(f"{name}: rms error {device_rms:.3g}, the CPU's {cpu_rms:.3g}; allowed {data.get('allowed', 5.0):g} times that")
    return device_rms > data.get("allowed", 5.0) * cpu_rms


def another_law(name, actual, expected):
    """Kolmogorov-Smirnov of two samples: the device's numbers against as many of the CPU's. It finds most other laws and no
    correlation, so that nothing found tells nothing."""
    a, b = (t.to(torch.float64).flatten().sort().values for t in (actual, expected))
    points = torch.cat([a, b])
    shares = [torch.searchsorted(x, points, right=True) / max(x.numel(), 1) for x in (a, b)]
    distance, limit = largest(shares[0] - shares[1]), 3.3 * (2 / max(a.numel(), 1)) ** 0.5
    print(f"{name}: largest distance of the two distribution functions {distance:.3g}, beyond {limit:.3g} once in 10^9")
    return True if distance > limit else None


def largest(difference):
    difference = difference.abs()
    finite = difference[difference.isfinite()]
    return float(finite.max()) if finite.numel() else 0.0


def nudged():
    """The inputs in double precision, each moved by one rounding step of its own dtype, up or down."""
    source, moved = torch.Generator().manual_seed(7), []
    for spec, tensor in zip(OPERANDS, operands_on("cpu", wide=True)):
        if tensor.dtype == torch.float64:
            sign = torch.randint(0, 2, tensor.shape, generator=source) * 2 - 1
            step = 1 + sign * torch.finfo(dtype_of(spec["dtype"])).eps / 2
            tensor = (tensor.detach() * step).requires_grad_(tensor.requires_grad)
        moved.append(tensor)
    return moved


def changes_with_memory(device, name):
    """Whether two runs on the same input, over differently filled fresh memory, give different bits."""
    runs = []
    for byte in (0x00, 0x5A):
        inputs = operands_on(device, wide=False)
        sizes = [t.numel() * t.element_size() for t in on_host(call(device)).values()]
        blocks = [torch.full((max(n, 1),), byte, dtype=torch.uint8, device=device) for n in sizes for _ in range(3)]
        synchronize(device)
        del blocks  # the allocator hands these out next
        torch.manual_seed(0)  # random numbers are those of their seed
        outputs = on_host(call(device, inputs=inputs))
        runs.append(outputs[name] if name in outputs else torch.cat([bits(t) for t in outputs.values()]))
    n = int((bits(runs[0]) != bits(runs[1])).sum())
    print(f"{name or 'outputs'}: {n} bytes differ between two runs over differently filled memory")
    return n > 0


def bits(tensor):
    return tensor.contiguous().reshape(-1).view(torch.uint8)


def writes_outside(device):
    """Whether bytes beside an operand change: each storage is put between two bands of a known byte."""
    band, guards = 4096, []
    original = globals()["elements"]

    def in_the_middle(raw, dtype):
        buffer = torch.full((raw.numel() + 2 * band,), 0xA5, dtype=torch.uint8, device=raw.device)
        buffer[band : band + raw.numel()] = raw
        guards.append(buffer)
        inner = torch.empty(0, dtype=torch.uint8, device=raw.device)
        return original(inner.set_(buffer.untyped_storage(), band, raw.shape), dtype)

    globals()["elements"] = in_the_middle
    try:
        call(device)
        synchronize(device)
    finally:
        globals()["elements"] = original
    return any(bool((g[:band] != 0xA5).any() or (g[-band:] != 0xA5).any()) for g in guards)


CHECKS["NUM"] = check_numbers


if __name__ == "__main__":
    sys.exit(main())
