"""A site of runs through the whole pipeline: a Llama step with planted faults, two releases, three devices."""

from __future__ import annotations

import datetime
import gzip
from pathlib import Path

from audit.dashboard.build import build
from tests.dashboard.made_runs import H200, MI250X, MI300X, ROCM_71, ROCM_72, SAMPLE, healthy_keys, write_run


def sample_site(runs: Path, site: Path) -> Path:
    """Writes the runs into one folder and the site into the other; the site."""
    (runs / "llama").mkdir()
    (runs / "llama" / "run.jsonl").write_bytes(gzip.decompress(SAMPLE.read_bytes()))
    keys = healthy_keys(9)
    write_run(runs / "a", environment=ROCM_71, keys=keys, wrong=keys[:1], created="2026-11-01T10:00:00+00:00")
    write_run(runs / "b", device=MI300X, environment=ROCM_72, keys=keys, raising=keys[1:3])
    write_run(runs / "c", device=MI250X, environment=ROCM_72, keys=keys, wrong=keys[4:6], left_out=keys[6:7])
    write_run(runs / "d", device=H200, environment={"torch": "2.13.0+cu130", "cuda": "13.0"}, keys=keys)
    (runs / "broken").mkdir()
    (runs / "broken" / "run.jsonl").write_text("{}\n")
    now = datetime.datetime(2026, 12, 1, 12, tzinfo=datetime.timezone.utc)
    build([runs], site, None, "0.1.0", now, lambda done, total: None)
    return site
