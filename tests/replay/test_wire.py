"""The channel between the auditor and a child: whole messages of any length, deadlines, and a dead other side."""

from __future__ import annotations

import os
import threading
import time

import pytest

from audit.replay.wire import Channel, ChannelClosed, DeadlinePassed


@pytest.fixture
def ends():
    """Two channels that talk to each other."""
    a_read, b_write = os.pipe()
    b_read, a_write = os.pipe()
    made = [Channel(a_read, a_write), Channel(b_read, b_write)]
    yield made
    for channel in made:
        try:
            channel.close()
        except OSError:
            continue  # closed by the test


def soon(seconds: float = 5.0) -> float:
    return time.monotonic() + seconds


def test_messages_arrive_whole_and_in_order(ends):
    a, b = ends
    a.send({"n": 1})
    a.send({"text": "line\nbreak", "nested": {"list": [1, None, True]}})
    assert b.receive(soon()) == {"n": 1}
    assert b.receive(soon()) == {"text": "line\nbreak", "nested": {"list": [1, None, True]}}


def test_a_message_longer_than_the_pipe_arrives_whole(ends):
    a, b = ends
    message = {"text": "x" * 3_000_000}
    received = []
    reader = threading.Thread(target=lambda: received.append(b.receive(soon(20))))
    reader.start()
    a.send(message, soon(20))
    reader.join()
    assert received == [message]


def test_silence_ends_at_the_deadline(ends):
    start = time.monotonic()
    with pytest.raises(DeadlinePassed):
        ends[0].receive(start + 0.1)
    assert 0.1 <= time.monotonic() - start < 2.0


def test_half_a_message_is_no_message(ends):
    a, b = ends
    os.write(a._write_fd, b'{"n": ')
    with pytest.raises(DeadlinePassed):
        b.receive(soon(0.1))
    os.write(a._write_fd, b"2}\n")
    assert b.receive(soon()) == {"n": 2}


def test_what_has_arrived_is_read_after_the_deadline_too(ends):
    a, b = ends
    a.send({"n": 1})
    assert b.receive(time.monotonic() - 1.0) == {"n": 1}


def test_nobody_reading_ends_a_send_at_the_deadline(ends):
    with pytest.raises(DeadlinePassed):
        ends[0].send({"text": "x" * 3_000_000}, soon(0.1))


def test_a_dead_other_side_is_noticed_when_reading_and_writing(ends):
    a, b = ends
    b.send({"last": "words"})
    b.close()
    assert a.receive(soon()) == {"last": "words"}
    with pytest.raises(ChannelClosed):
        a.receive(soon())
    with pytest.raises(ChannelClosed):
        a.send({"n": 1})
