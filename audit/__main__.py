"""Where the command begins: ``rocm-audit``, and ``python -m audit`` for launchers such as torchrun."""

import os
import signal
import sys


def start() -> int:
    """Runs the command line. Interrupted before it is loaded, the process ends by the signal and without words."""
    is_ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # else someone has it ignored: nohup
    if is_ours:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from audit.cli import main

    if is_ours:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    return main()


if __name__ == "__main__":
    # `python -m` looks for modules in the working folder first: a `queue.py` or `cuda.py` of the user's there would
    # take the place of one that torch imports. This package is imported by now and found without it.
    is_safe = getattr(sys.flags, "safe_path", False)
    if sys.path and not is_safe and os.path.realpath(sys.path[0]) == os.path.realpath("."):
        del sys.path[0]
    sys.exit(start())
