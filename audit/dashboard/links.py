"""Where everything of a site lies, relative to its root, and the slugs that make it so: stable, and never a stranger's.

A slug has a few letters of the name for people, and a digest of the whole name that tells it from all others.
"""

from __future__ import annotations

import hashlib
import re

#: The letters of a slug that come from a name; the digest behind them keeps it from being one of Windows' devices.
_READABLE = 48
INDEX, MATRIX, LEFT_OUT = "index.html", "matrix.html", "left-out.html"
#: Beside its page: addresses in it lead from there.
HISTORY_FEED = "history.xml"
CELLS_CSV, CELLS_JSON = "downloads/cells.csv", "downloads/cells.json"
RUNS_CSV, RUNS_JSON = "downloads/runs.csv", "downloads/runs.json"


def slug(name: str, *identity: str, digits: int = 8) -> str:
    """``addmm-default-5f0c6d1a``: lower-case letters, digits and hyphens; the digest is over name and ``identity``."""
    readable = re.sub(r"[^a-z0-9]+", "-", name.lower())[:_READABLE].strip("-")
    content = "\0".join((name, *identity)).encode("utf-8", "surrogatepass")
    return f"{readable or 'x'}-{hashlib.sha256(content).hexdigest()[:digits]}"


def op_slug(op: str) -> str:
    """``aten::addmm.default`` -> ``addmm-default-5f0c6d1a``."""
    return slug(op.removeprefix("aten::"), op)


def op_page(op: str) -> str:
    """Of an op's slug, as all of these."""
    return f"ops/{op}.html"


def run_page(run: str) -> str:
    return f"runs/{run}.html"


def run_summary(run: str) -> str:
    """The run's ``summary.json``, packed: a page of links to it stays a page, and 2,000 of them some 50 MB."""
    return f"runs/{run}.summary.json.gz"


def model_page(model: str) -> str:
    return f"models/{model}.html"


def gpu_page(gpu: str) -> str:
    return f"gpus/{gpu}.html"


def run_badge(run: str) -> str:
    return f"badges/run-{run}.svg"


def model_badge(model: str, gpu: str) -> str:
    """The newest run of a model on a GPU: the address stays while runs come and go."""
    return f"badges/model-{model}-{gpu}.svg"


def gpu_badge(gpu: str) -> str:
    return f"badges/gpu-{gpu}.svg"
