"""``python -m audit`` is ``rocm-audit``: for launchers such as torchrun."""

import os
import sys

# `python -m` looks for modules in the working folder first: a `queue.py` or `cuda.py` of the user's there would take
# the place of one that torch imports. This package is imported by now and found without it.
if sys.path and not getattr(sys.flags, "safe_path", False) and os.path.realpath(sys.path[0]) == os.path.realpath("."):
    del sys.path[0]

from audit.cli import main

sys.exit(main())
