"""The cases of one replay, shared by the lanes that take them."""

from __future__ import annotations

import re
import threading
from collections import deque
from collections.abc import Callable, Sequence

from audit.codec import tensors_of
from audit.schema import Case

#: How soon a lane that waits for another's case notices that it is enough.
_ENOUGH_INTERVAL_S = 0.2


class Work:
    """A queue of cases that are taken, then done or given back; safe to use from several threads.

    ``enough`` ends it early: nothing is taken once it says True. Cases with operands of more than ``large_bytes`` go
    out one at a time, since each needs several times its operands in host memory.
    """

    def __init__(self, cases: Sequence[Case], large_bytes: int, enough: Callable[[], bool]) -> None:
        self._waiting = deque(cases)
        self._large_bytes = large_bytes
        self._enough = enough
        self._n_out = 0
        self._n_large_out = 0
        self._changed = threading.Condition()

    def take(self, ahead: Case | None = None) -> Case | None:
        """The next case, ``ahead`` if the lane has one already; None when there is no more.

        Waits while other lanes may still give a case back.
        """
        if ahead is not None:
            if not self._enough():
                return ahead
            self.give_back(ahead)
        with self._changed:
            while not self._enough():
                if (case := self._pop()) is not None:
                    return case
                if self._n_out == 0 and not self._waiting:
                    return None
                self._changed.wait(_ENOUGH_INTERVAL_S)
            return None

    def take_small(self) -> Case | None:
        """The next case if it is at hand and small; never waits."""
        with self._changed:
            if self._enough() or not self._waiting or self._is_large(self._waiting[0]):
                return None
            return self._pop()

    def done(self, case: Case) -> None:
        with self._changed:
            self._came_back(case)

    def give_back(self, case: Case | None) -> None:
        """Puts a case that was taken in front of the others again."""
        if case is None:
            return
        with self._changed:
            self._waiting.appendleft(case)
            self._came_back(case)

    @property
    def is_left(self) -> bool:
        """Whether a case was never done."""
        with self._changed:
            return bool(self._waiting)

    def _pop(self) -> Case | None:
        """The first case that may go out now. A large one that has to wait lets smaller ones pass."""
        for case in self._waiting:
            large = self._is_large(case)
            if not large or not self._n_large_out:
                self._waiting.remove(case)
                self._n_out += 1
                self._n_large_out += large
                return case
        return None

    def _came_back(self, case: Case) -> None:
        self._n_out -= 1
        self._n_large_out -= self._is_large(case)
        self._changed.notify_all()

    def _is_large(self, case: Case) -> bool:
        return operand_bytes(case) > self._large_bytes


def operand_bytes(case: Case) -> int:
    """Bytes of the tensor arguments, each storage counted once; element sizes from the digits in the dtype's name."""
    storages: dict[tuple[int, bool], int] = {}
    for spec in tensors_of(case.args, case.kwargs, case.grads):
        digits = re.search(r"\d+", spec.dtype)
        nbytes = spec.extent * max(1, int(digits.group()) // 8 if digits else 1)
        number = spec.storage, spec.host
        storages[number] = max(storages.get(number, 0), nbytes)
    return sum(storages.values())
