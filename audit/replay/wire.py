"""JSON lines over a pair of pipes between the auditor and a child, with deadlines on the auditor's side."""

from __future__ import annotations

import json
import os
import select
import time
from typing import Any, TypeAlias

Message: TypeAlias = "dict[str, Any]"


class ChannelClosed(Exception):
    """The other side has closed its end: it is dead or dying."""


class DeadlinePassed(Exception):
    """Nothing (or not a whole message) came, or nothing could be sent, before the deadline."""


class Channel:
    """One end of a two-way message channel. Messages may be of any length; both descriptors become non-blocking."""

    def __init__(self, read_fd: int, write_fd: int) -> None:
        self._read_fd = read_fd
        self._write_fd = write_fd
        self._buffer = bytearray()
        self._messages: list[Message] = []
        os.set_blocking(read_fd, False)
        os.set_blocking(write_fd, False)

    def send(self, message: Message, deadline: float | None = None) -> None:
        """Sends one message; ``deadline`` is on the monotonic clock. Raises ChannelClosed or DeadlinePassed."""
        data = memoryview(json.dumps(message, separators=(",", ":")).encode() + b"\n")
        while data:
            try:
                data = data[os.write(self._write_fd, data) :]
            except BlockingIOError:
                if not select.select([], [self._write_fd], [], _seconds_left(deadline))[1]:
                    raise DeadlinePassed from None
            except OSError as error:
                raise ChannelClosed from error

    def receive(self, deadline: float | None = None) -> Message:
        """The next message. What has already arrived is returned even after ``deadline``."""
        while not self._messages:
            if not select.select([self._read_fd], [], [], _seconds_left(deadline))[0]:
                raise DeadlinePassed
            try:
                data = os.read(self._read_fd, 1 << 20)
            except BlockingIOError:
                continue
            except OSError as error:
                raise ChannelClosed from error
            if not data:
                raise ChannelClosed
            self._take(data)
        return self._messages.pop(0)

    def _take(self, data: bytes) -> None:
        self._buffer += data
        *lines, rest = self._buffer.split(b"\n")
        self._buffer = bytearray(rest)
        self._messages += [json.loads(line) for line in lines]

    def close(self) -> None:
        for descriptor in (self._read_fd, self._write_fd):
            os.close(descriptor)


def _seconds_left(deadline: float | None) -> float | None:
    return None if deadline is None else max(0.0, deadline - time.monotonic())
