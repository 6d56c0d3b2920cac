"""Whatever stands in a trace, it becomes a run that can be judged and reported, or one sentence."""

from __future__ import annotations

import copy
import dataclasses
import json
import random
from pathlib import Path
from typing import Any

from audit.errors import UsageError
from audit.importers.kineto import read_recording
from audit.report import markdown, spreadsheet, summary, terminal
from audit.rules.judge import judge
from audit.rules.side_by_side import side_by_side
from audit.run_records import Run
from audit.store import RunWriter, read_run
from tests.importers.recorded import MI300X, MM, kernel, launch, op

ODD: tuple[Any, ...] = (
    None, True, 0, -1, 1.5, 1e308, 1 << 63, -(1 << 70), "", "x" * 300, "=1+1", "nan", "[1,2", "a::b.c", "c10d::x",
    "\u202e<script>", "\ud800", [], {}, [[]], [1 << 62] * 3, ["float"], "CopyDeviceToHost",
)  # fmt: skip


def whole_trace() -> dict[str, Any]:
    events: list[dict[str, Any]] = [{**op("ProfilerStep#1", 0, 500, 1), "cat": "user_annotation"}]
    for n in range(4):
        events += [
            op("aten::linear", 10 + 40 * n, 30, 10 + n, **MM), op("aten::mm", 12 + 40 * n, 20, 20 + n, **MM),
            launch(14 + 40 * n, 100 + n), kernel(f"gemm {n % 2}", 20 + 40 * n, 5, 100 + n, 20 + n if n else 0),
        ]  # fmt: skip
    events += [launch(300, 200, "hipGraphLaunch"), kernel("of a graph", 310, 2, 200), kernel("of nobody", 1, 2, 9)]
    return {"deviceProperties": [MI300X], "hip_runtime_version": 60443483, "traceEvents": events}


def mutated(content: Any, rng: random.Random) -> Any:
    """One place anywhere inside is left out, or is something odd."""
    content = copy.deepcopy(content)
    place: Any = content
    while True:
        key = rng.choice(list(place)) if isinstance(place, dict) else rng.randrange(len(place))
        inside = place[key]
        if isinstance(inside, (dict, list)) and inside and rng.random() < 0.85:
            place = inside
            continue
        if isinstance(place, dict) and rng.random() < 0.2:
            del place[key]
        else:
            place[key] = copy.deepcopy(rng.choice(ODD))
        return content


def stored(run: Run, path: Path) -> Run:
    assert run.end is not None
    with RunWriter.create(path, run.header, run.cases) as writer:
        writer.all_measured(run.measurements.values())
        writer.end(run.end)
    return read_run(path)


def nanoseconds(run: Run) -> int:
    kernels = [kernel for m in run.measurements.values() for kernel in m.path.kernels]
    kernels += [kernel for item in run.header.not_audited for kernel in item.kernels]
    return sum(round(kernel.us * 1000) for kernel in kernels)


def test_a_mutated_trace_becomes_a_run_or_one_sentence(tmp_path: Path) -> None:
    rng, other = random.Random(4), None
    sentences: list[str] = []
    n_read = 0
    for _ in range(80):
        content = whole_trace()
        for _ in range(rng.randint(1, 4)):
            content = mutated(content, rng)
        path = tmp_path / "t.json"
        path.write_bytes(json.dumps(content).encode())
        try:
            run = read_recording(path)
        except UsageError as error:
            sentences.append(str(error))
            continue
        back = stored(run, tmp_path / "run.jsonl")
        assert nanoseconds(back) == nanoseconds(run)
        judgement = judge(back)
        if other is not None:
            judgement = dataclasses.replace(judgement, beside=side_by_side(back, other))
        for reporter in (spreadsheet, summary, markdown):
            assert reporter.render(judgement)
        assert "supported   of" not in terminal.render_terminal(judgement)
        other, n_read = back, n_read + 1
    assert n_read > 50
    assert max(map(len, sentences)) < 600
