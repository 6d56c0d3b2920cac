"""Many run files, made of the sample run by repeating its cases and varying stack, date, numbers and findings.

For measurements of the dashboard itself, not of a device: the runs say nothing of any.
"""

from __future__ import annotations

import datetime
import itertools
import json
import random
from pathlib import Path
from typing import Any

from tests.dashboard.made_runs import EVIDENCE, H200, MI250X, MI300X, SIM, sample

#: Four GPUs with three releases each, as a year of nightly audits of three models has them.
DEVICES = (MI300X, MI250X, H200, SIM)
RELEASES = (("2.11.0", "7.1", "12.6"), ("2.12.1", "7.2", "12.8"), ("2.13.0", "7.2", "12.8"))
SOURCES = ("llama_train.py", "bert_train.py", "vit_infer.py")
#: So many cases in a thousand differ from run to run.
MOVING = 10


def write_many(folder: Path, n_runs: int, n_cases: int, first: int = 0) -> None:
    """``n_runs`` runs of ``n_cases`` cases, from number ``first``; the same number gives the same run."""
    cases, measurements = _repeated(n_cases)
    case_lines = {source: "".join(_line({"case": case}) for case in cases) for source in SOURCES}
    lines = [_line({"measurement": measurement}) for measurement in measurements]
    for number in range(first, first + n_runs):
        rng = random.Random(number)
        measured = list(lines)
        for index in rng.sample(range(n_cases), n_cases * MOVING // 1000):
            measured[index] = _line({"measurement": _moved(measurements[index], rng)})
        source = SOURCES[number % len(SOURCES)]
        header = _header(number, source, n_cases)
        run = folder / f"machine-{number % 7}" / f"run-{number:05}"
        run.mkdir(parents=True, exist_ok=True)
        text = _line({"header": header}) + case_lines[source] + "".join(measured) + _line({"end": {"complete": True}})
        (run / "run.jsonl").write_text(text, encoding="utf-8")


def _line(record: dict[str, Any]) -> str:
    return json.dumps(record, separators=(",", ":")) + "\n"


def _repeated(n_cases: int) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The measured cases of the sample over and over, each with a key and a size of its own."""
    measured = {record["measurement"]["key"]: record["measurement"] for record in sample() if "measurement" in record}
    originals = [record["case"] for record in sample() if record.get("case", {}).get("key") in measured]
    cases, measurements = [], []
    for number, original in enumerate(itertools.islice(itertools.cycle(originals), n_cases)):
        case = json.loads(json.dumps(original))
        case["key"] = f"{case['key'][:-4]}{number:04x}"
        case["n_calls"] = 1 + number // len(originals)
        for arg in case["args"]:
            if isinstance(arg, dict) and "tensor" in arg and arg["tensor"]["sizes"]:
                arg["tensor"]["sizes"][0] += number // len(originals)
        cases.append(case)
        measurements.append({**measured[original["key"]], "key": case["key"]})
    return cases, measurements


def _moved(measurement: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    if rng.random() < 0.5:
        raised = {"kind": "raised", "error_type": "RuntimeError", "message": f"HIP error: fault {rng.randrange(50)}"}
        return {**measurement, "comparisons": [], "device": raised}
    changed = dict(measurement)
    if "device_time" in changed:
        changed["device_time"] = {**changed["device_time"], "median_us": round(rng.lognormvariate(4, 1), 3)}
    return changed


def _header(number: int, source: str, n_cases: int) -> dict[str, Any]:
    device = DEVICES[number % len(DEVICES)]
    torch, rocm, cuda = RELEASES[number // len(DEVICES) % len(RELEASES)]
    made = datetime.datetime(2026, 1, 2, tzinfo=datetime.timezone.utc) + datetime.timedelta(hours=4 * number)
    environment = {"python": "3.11.7", "os": "Linux", "torch": f"{torch}+cpu"}
    if device["backend"] == "hip":
        environment |= {"torch": f"{torch}+rocm{rocm}", "rocm": f"{rocm}.1", "amdgpu": f"6.{10 + number // 500}"}
    elif device["backend"] == "cuda":
        environment |= {"torch": f"{torch}+cu{cuda.replace('.', '')}", "cuda": cuda}
    return {
        **sample()[0]["header"],
        "evidence": EVIDENCE[device["backend"]],
        "device": device,
        "environment": environment,
        "source": {"kind": "script", "name": source, "n_steps": 2},
        "created": made.isoformat(),
        "n_cases": n_cases,
        "preflight": [],
    }
