"""Asks many admin sockets in one thread: no question is waited for, so that a silent socket holds up no other.

A thread for each socket would wake up twice for each answer, which costs more than the answer itself. Rounds begin
together, at multiples of their intervals, and answers that come soon after each other are read together.

What may still block is a look-up of a path: a client's socket may lie on a file system that hangs, which is chosen by
the client's user. Then its thread is left to that one socket, and the others are asked in a new one. Busy CPUs may hold
a thread up as long, so the socket returns to the others when it has not blocked for a while.
"""

from __future__ import annotations

import logging
import math
import os
import select
import time
from collections.abc import Callable, Generator
from threading import Lock
from typing import NamedTuple, Protocol

from pinchpoint.host.threads import NamedThread

__all__ = ["Asked", "Asker", "Awaited"]

LINGER_SECONDS = 0.003
"""Seconds for which further answers are waited for when one has come, so that they are read together."""
MAX_BLOCKED_SECONDS = 1.0
"""Seconds that a socket may block the thread before the others move to a new one."""
UNBLOCKED_SECONDS = 10.0
"""Seconds for which a socket must not block its own thread before it is asked together with the others again."""

log = logging.getLogger(__name__)


class Awaited(NamedTuple):
    """What a round waits for."""

    descriptor: int
    """It is readable when more has come."""
    deadline: float
    """The time at which the round goes on at the latest, in monotonic seconds."""


class Asked(Protocol):
    """A socket that is asked in rounds."""

    def round(self, now: float) -> Generator[Awaited, None, None]:
        """Ask once. Yields whatever is awaited, and goes on when it is there or its time is over; raises nothing.

        `now` is a monotonic time in seconds.
        """

    def pause(self) -> float:
        """Return the seconds between the beginnings of two rounds."""

    def hang_up(self) -> None:
        """Give up waiting for an answer. No round follows."""

    def hangs(self) -> None:
        """Note that the present round blocks in the kernel."""


class Asker:
    """The rounds of many sockets, in a thread that runs as long as there are any."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = Lock()
        self._loop: _Loop | None = None
        self._hung: list[_Loop] = []
        self._left: list[Asked] = []
        """Those of a thread that asks no more; they need a new one."""

    def add(self, asked: Asked) -> None:
        """Ask a socket from now on. Raises RuntimeError if the host refuses a thread, OSError for a descriptor."""
        with self._lock:
            if self._loop is None or not self._loop.add(asked):
                self._loop = self._start([asked])

    def remove(self, asked: Asked) -> None:
        """Ask a socket no more; a round that blocks ends later by itself."""
        with self._lock:
            if asked in self._left:
                self._left.remove(asked)
                asked.hang_up()
            for loop in (self._loop, *self._hung):
                if loop is not None:
                    loop.remove(asked)

    def watch(self) -> None:
        """Leave the thread to a socket that blocks it, and ask the others in a new one; to be called now and then.

        A socket that no longer blocks its thread returns to the others.
        """
        with self._lock:
            self._hung = [loop for loop in self._hung if not loop.ended]
            if self._loop is not None and (left := self._loop.leave()) is not None:
                blocking, self._left = left
                self._hung.append(self._loop)
                self._loop = None
                blocking.hangs()
            for asked in [asked for loop in self._hung for asked in loop.settled()]:
                if self._loop is None or not self._loop.add(asked):
                    self._left.append(asked)
            if self._left:
                try:
                    self._loop = self._start(self._left)
                except (RuntimeError, OSError) as error:
                    log.warning("%s: admin sockets are not asked", error)
                    for asked in self._left:
                        asked.hangs()
                else:
                    self._left = []

    def _start(self, asked: list[Asked]) -> _Loop:
        loop = _Loop(asked, self._clock)
        try:
            NamedThread(target=loop.run, name="ceph-asker", daemon=True).start()
        except RuntimeError:
            loop.close()
            raise
        return loop


class _Loop:
    """One thread, and the sockets that it asks."""

    def __init__(self, asked: list[Asked], clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = Lock()
        self._due = dict.fromkeys(asked, -math.inf)
        self._rounds: dict[Asked, tuple[Generator[Awaited, None, None], Awaited]] = {}
        """The rounds in progress and what they await."""
        self._removed: list[Asked] = []
        """What the thread has to hang up."""
        self._busy: tuple[Asked, float] | None = None
        self._blocked = -math.inf
        """When a socket was last found to block the thread."""
        self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self.ended = False

    def close(self) -> None:
        """Release the descriptor of a loop that does not run."""
        os.close(self._bell)

    def add(self, asked: Asked) -> bool:
        """Ask a socket too; return whether this is still possible."""
        with self._lock:
            if self.ended:
                return False
            self._due[asked] = -math.inf
            os.eventfd_write(self._bell, 1)
        return True

    def remove(self, asked: Asked) -> None:
        """Ask a socket no more."""
        with self._lock:
            if self._due.pop(asked, None) is not None and not self.ended:
                self._removed.append(asked)
                os.eventfd_write(self._bell, 1)

    def leave(self) -> tuple[Asked, list[Asked]] | None:
        """Keep only the socket that blocks the thread; return it and the others, None if no socket does."""
        with self._lock:
            if self._busy is None or (now := self._clock()) - self._busy[1] < MAX_BLOCKED_SECONDS:
                return None
            self._blocked = now
            blocking, _ = self._busy
            return blocking, self._let_go([asked for asked in self._due if asked is not blocking])

    def settled(self) -> list[Asked]:
        """Give up the sockets of a thread that has not been blocked for a while, which ends then."""
        with self._lock:
            if self.ended or self._busy is not None or self._clock() - self._blocked < UNBLOCKED_SECONDS:
                return []
            os.eventfd_write(self._bell, 1)
            return self._let_go([*self._due])

    def _let_go(self, sockets: list[Asked]) -> list[Asked]:
        for asked in sockets:
            del self._due[asked]
            if asked in self._rounds:
                self._rounds.pop(asked)[0].close()
        return sockets

    def run(self) -> None:
        """Ask until no socket is left."""
        while self._end_removed():
            try:
                self._begin()
                self._wait()
            except OSError as error:  # no memory, no descriptor
                log.warning("%s: admin sockets are asked a second later", error)
                time.sleep(1.0)
        self.close()

    def _begin(self) -> None:
        now = self._clock()
        with self._lock:
            due = [asked for asked, due in self._due.items() if now >= due and asked not in self._rounds]
        for asked in due:
            self._go_on(asked, asked.round(now), now)

    def _end_removed(self) -> bool:
        """Hang up what was removed; return whether anything is left."""
        with self._lock:
            removed, self._removed = self._removed, []
            rounds = [self._rounds.pop(asked)[0] for asked in removed if asked in self._rounds]
            self.ended = not self._due
        for each in rounds:
            each.close()
        for asked in removed:
            asked.hang_up()
        return not self.ended

    def _wait(self) -> None:
        """Wait until something is due or has come, and go on with all of it."""
        with self._lock:
            waiting = [(asked, rounds, awaited) for asked, (rounds, awaited) in self._rounds.items()]
            times = [due for asked, due in self._due.items() if asked not in self._rounds]
        readable = select.poll()
        readable.register(self._bell, select.POLLIN)
        for _, _, awaited in waiting:
            readable.register(awaited.descriptor, select.POLLIN)
            times.append(awaited.deadline)
        if times:
            readable.poll(math.ceil(1e3 * max(0.0, min(times) - self._clock())))
            time.sleep(LINGER_SECONDS if waiting else 0.0)
        ready = {descriptor for descriptor, _ in readable.poll(0)}
        if self._bell in ready:
            os.eventfd_read(self._bell)
        now = self._clock()
        for asked, rounds, awaited in waiting:
            if awaited.descriptor in ready or now >= awaited.deadline:
                self._go_on(asked, rounds, now)

    def _go_on(self, asked: Asked, rounds: Generator[Awaited, None, None], now: float) -> None:
        with self._lock:
            if asked not in self._due:
                return
            self._busy = asked, self._clock()
        awaited = next(rounds, None)
        with self._lock:
            if (after := self._clock()) - self._busy[1] >= MAX_BLOCKED_SECONDS:
                self._blocked = after
            self._busy = None
            if awaited is not None:
                self._rounds[asked] = rounds, awaited
                return
            self._rounds.pop(asked, None)
            if asked in self._due:
                self._due[asked] = next_round(now, asked.pause())


def next_round(now: float, pause: float) -> float:
    """Return when the round after one at `now` begins: at a multiple of its interval, so that others begin then too."""
    return (math.floor(now / pause + 0.5) + 1) * pause
