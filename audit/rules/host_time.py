"""Whether the host keeps ahead of the device: the time to issue all calls of a run against the time that they take."""

from __future__ import annotations

from audit.rules.wording import duration
from audit.schema import Run


def host_sentence(run: Run) -> str:
    """In a sentence, of the calls whose host time was measured; empty where none was.

    It is the least that the host needs: the program's own Python and autograd's bookkeeping come on top.
    """
    if run.header.device.backend not in ("hip", "cuda"):
        return ""
    host_us = device_us = 0.0
    for case in run.cases:
        measurement = run.measurements.get(case.key)
        time = measurement.device_time if measurement is not None else None
        if time is not None and time.host_us is not None:
            host_us += time.host_us * case.n_calls
            device_us += time.median_us * case.n_calls
    if not host_us:
        return ""
    issued = f"Issuing the timed calls one by one takes the host {duration(host_us)}, without the program's own Python"
    if host_us > device_us:
        return f"{issued}; the device is done with them in {duration(device_us)}: it waits for the host."
    return f"{issued}; the device takes {duration(device_us)} for them."
