"""One child process as the auditor sees it: started, spoken to within deadlines, and ended for certain."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from audit.replay.wire import Channel, ChannelClosed, DeadlinePassed, Message

#: How long a killed process may take to disappear before it is given up (a process stuck in a driver never does).
KILL_LIMIT_S = 10.0
#: How much of a dead child's stderr is kept.
STDERR_TAIL_BYTES = 8192
#: A child's stderr file is emptied when it grows beyond this during one case.
STDERR_LIMIT_BYTES = 16 << 20
_WATCH_INTERVAL_S = 0.5


@dataclass(frozen=True)
class Exit:
    """How a child ended: by ``signal``, with ``exit_code``, or not at all (``unkillable``)."""

    signal: int | None = None
    exit_code: int | None = None
    unkillable: bool = False
    oom_killed: bool = False


class Stopped(Exception):
    """The audit ends; whoever waits for a child is to give up."""


class Child:
    """A worker process with a channel to it. ``preceding`` names the cases that it has run.

    ``variables`` are added to its environment. Once ``stop`` is set, ``receive`` raises Stopped.
    """

    def __init__(
        self,
        role: str,
        stderr_path: Path,
        folder: Path,
        stop: threading.Event,
        variables: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.stderr_path = stderr_path
        self.preceding: list[str] = []
        self._stop = stop
        self._stderr_before = b""
        self._n_oom_kills = _oom_kills()
        to_child, from_parent = os.pipe()
        to_parent, from_child = os.pipe()
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "audit.replay.worker",
                role,
                str(to_child),
                str(from_child),
                str(os.getpid()),
                stderr_path,
            ],
            pass_fds=(to_child, from_child),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=folder,  # not the user's folder: a queue.py there must not shadow a module of the worker's
            env={**_environment(), **variables},
        )
        os.close(to_child)
        os.close(from_child)
        self._channel: Channel | None = Channel(to_parent, from_parent)

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, message: Message, limit_s: float) -> None:
        """Sends within ``limit_s`` seconds. Raises ChannelClosed or DeadlinePassed."""
        self._stderr_before = b""
        self._open_channel().send(message, time.monotonic() + limit_s)

    def receive(self, limit_s: float) -> Message:
        """The next message within ``limit_s`` seconds. Raises ChannelClosed, DeadlinePassed or Stopped."""
        deadline = time.monotonic() + limit_s
        while True:
            if self._stop.is_set():
                raise Stopped
            now = time.monotonic()
            try:
                return self._open_channel().receive(min(deadline, now + _WATCH_INTERVAL_S))
            except DeadlinePassed:
                if now >= deadline:
                    raise
            self._bound_stderr()

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def _bound_stderr(self) -> None:
        """An op that writes without end must not fill the disk; the child appends, so it goes on at the start."""
        with contextlib.suppress(OSError):
            if self.stderr_path.stat().st_size > STDERR_LIMIT_BYTES:
                self._stderr_before = self._read_stderr()
                os.truncate(self.stderr_path, 0)

    def _open_channel(self) -> Channel:
        if self._channel is None:
            raise ChannelClosed
        return self._channel

    def end(self) -> Exit:
        """Waits a moment for a process that is dying by itself, then kills it; never waits for ever."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(1.0)
        return self.kill()

    def kill(self) -> Exit:
        """SIGKILL, and a bounded wait for its end."""
        self._process.kill()
        try:
            self._process.wait(KILL_LIMIT_S)
        except subprocess.TimeoutExpired:
            return Exit(unkillable=True)
        finally:
            if self._channel is not None:
                self._channel.close()
            self._channel = None
        return self._exit()

    def _exit(self) -> Exit:
        code = self._process.returncode
        if code is not None and code < 0:
            killed = -code == signal.SIGKILL and _oom_kills() > self._n_oom_kills
            return Exit(signal=-code, oom_killed=killed)
        return Exit(exit_code=code)

    def stderr_tail(self) -> str:
        """The last 8 KiB that the child wrote to fd 2 during its current case."""
        tail = (self._stderr_before + self._read_stderr())[-STDERR_TAIL_BYTES:]
        return tail.decode(errors="replace").strip()

    def _read_stderr(self) -> bytes:
        """The end of the stderr file as it is now; nothing where there is none."""
        try:
            with self.stderr_path.open("rb") as file:
                file.seek(0, os.SEEK_END)
                file.seek(max(0, file.tell() - STDERR_TAIL_BYTES))
                return file.read()
        except OSError:
            return b""


def _environment() -> dict[str, str]:
    """The auditor's environment with this package importable; entries of PYTHONPATH made absolute (see ``cwd``)."""
    inherited = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    folders = [str(Path(__file__).resolve().parents[2]), *(os.path.abspath(entry) for entry in inherited)]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(folders)}


def _oom_kills() -> int:
    """How often the kernel has killed for want of memory so far (cgroup v2, else the whole machine's count)."""
    for path, name in (("/sys/fs/cgroup/memory.events", "oom_kill"), ("/proc/vmstat", "oom_kill")):
        try:
            for line in Path(path).read_text().splitlines():
                if line.split()[:1] == [name]:
                    return int(line.split()[1])
        except (OSError, ValueError, IndexError):
            continue
    return 0
