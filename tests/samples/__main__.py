"""``make samples``: the pages in ``reports/sample`` anew from the runs that lie there."""

from __future__ import annotations

import sys

from tests.samples.made import SAMPLE, make

if __name__ == "__main__":
    make(SAMPLE)
    print(f"{SAMPLE / 'report' / 'report.html'}\n{SAMPLE / 'site' / 'index.html'}", file=sys.stderr)
