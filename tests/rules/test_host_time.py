"""The host's time to issue a step against the device's."""

from __future__ import annotations

from audit.rules.host_time import host_sentence
from audit.schema import Timing


def _sentence(build, host_us, device_us, backend="hip"):
    time = Timing(device_us, 0.1, 50, host_us=host_us, lead_us=150.0, waits=False)
    measurement = build.measurement(device_time=time)
    return host_sentence(build.judgement((build.case(n_calls=1000),), (measurement,), backend).run)


def test_a_step_of_short_kernels_is_held_up_by_the_host(build):
    assert _sentence(build, 12.0, 4.0) == (
        "Issuing the timed calls one by one takes the host 12 ms, without the program's own Python; the device is done "
        "with them in 4 ms: it waits for the host."
    )


def test_a_step_of_long_kernels_is_not(build):
    assert _sentence(build, 12.0, 400.0) == (
        "Issuing the timed calls one by one takes the host 12 ms, without the program's own Python; the device takes "
        "400 ms for them."
    )


def test_nothing_is_said_where_no_host_time_was_measured(build):
    assert _sentence(build, None, 4.0) == ""
    assert _sentence(build, 12.0, 4.0, backend="sim") == ""
