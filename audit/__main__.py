"""``python -m audit`` is ``rocm-audit``: for launchers such as torchrun."""

import sys

from audit.cli import main

sys.exit(main())
