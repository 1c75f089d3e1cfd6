"""What one untrusted user can fill of what is shown: shares of a list, series, and new series.

Whoever is not trusted can choose names and start processes without end, and each name begins series. A series is the
user's whose mark its ``run`` or ``owner`` has: see `pinchpoint.user_labels`.
"""

from __future__ import annotations

import logging
import sys
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import lru_cache
from operator import itemgetter
from threading import Lock
from typing import TypeVar

from pinchpoint.metrics import KEEP_ENDED_SECONDS, USER_DROPPED_SERIES
from pinchpoint.model import Metric, Point
from pinchpoint.user_labels import user_of

__all__ = ["MAX_USER_THREADS", "SeriesQuota", "ThreadQuota", "shared_out"]

MAX_USER_SERIES = 200
"""Series of one untrusted user in one exposition."""
NEW_SERIES_PER_MINUTE = 20.0
"""New series that one untrusted user may begin; so many as are shown at once may be saved up."""
MAX_USER_THREADS = 2048
"""Threads of an untrusted user that are read, shared among its processes ..."""
MIN_THREADS = 16
"""... each of which has so many read at least."""
MAX_USERS = 32
"""Untrusted users whose series are shown."""
SERIES, RATE, USERS = "series", "rate", "users"
"""Why a series is dropped: too many of the user, too many new ones of the user, too many users."""

T = TypeVar("T")

log = logging.getLogger(__name__)


def shared_out(items: Iterable[tuple[int | None, T]], each: int, total: int) -> list[T]:
    """Return the items that fit: those of trusted users (None) first, then of each other user in turn the first ones.

    `items` are pairs of a user and an item, the best first. At most `each` belong to the trusted ones together or to
    one other user, and at most `total` to all.
    """
    shares: dict[int | None, list[T]] = {None: []}
    for user, item in items:
        if len(share := shares.setdefault(user, [])) < each:
            share.append(item)
    trusted = shares.pop(None)
    turns = sorted(((turn, item) for share in shares.values() for turn, item in enumerate(share)), key=itemgetter(0))
    return [*trusted, *(item for _, item in turns)][:total]


class ThreadQuota:
    """How many threads of a process are read: an untrusted user may have any number, named like any."""

    def __init__(self) -> None:
        self._processes: Counter[int | None] = Counter()

    def share(self, owners: Iterable[str]) -> None:
        """Share anew what each user has among the processes with these owners."""
        self._processes = Counter(map(user_of, owners))

    def threads(self, owner: str) -> int:
        """Return how many threads of a process with this owner are read."""
        user = user_of(owner)
        return sys.maxsize if user is None else max(MIN_THREADS, MAX_USER_THREADS // max(1, self._processes[user]))


class _Account:
    """The series of one user."""

    def __init__(self, now: float) -> None:
        self.shown: dict[Hashable, float] = {}
        """When each was last shown, in monotonic seconds."""
        self.tokens = float(MAX_USER_SERIES)
        self.filled = now


class SeriesQuota:
    """Leaves out the series with which an untrusted user exceeds the bounds above, and counts them.

    `trusts` says of a uid whether its user is trusted, and `clock` gives monotonic seconds. Of each user's series those
    of runs are kept first, then those of phases, then the others, each in the order of the points.
    """

    def __init__(self, trusts: Callable[[int], bool], clock: Callable[[], float]) -> None:
        self._trusts = trusts
        self._clock = clock
        self._lock = Lock()
        self._accounts: dict[int, _Account] = {}
        self._dropped = {SERIES: 0, RATE: 0, USERS: 0}
        self._told: set[int] = set()

    def admit(self, points: Sequence[Point]) -> list[Point]:
        """Return the points that fit, and how many did not so far, by reason."""
        with self._lock:
            now = self._clock()
            self._forget(now)
            numbers: dict[int, int] = {}
            owned = [(_rank(points[at].metric), at, user) for at, user in enumerate(map(self._user, points)) if user]
            left_out = {at for _, at, user in sorted(owned) if not self._fits(user, points[at], numbers, now)}
            kept = [point for at, point in enumerate(points) if at not in left_out]
            kept += [USER_DROPPED_SERIES.point(count, reason) for reason, count in self._dropped.items()]
        return kept

    def _user(self, point: Point) -> int | None:
        """Return the untrusted user that a series belongs to, None if there is none."""
        for place in _places(point.metric):
            if (user := user_of(point.labels[place])) is not None and not self._trusts(user):
                return user
        return None

    def _fits(self, user: int, point: Point, numbers: dict[int, int], now: float) -> bool:
        if (account := self._accounts.get(user)) is None:
            if len(self._accounts) >= MAX_USERS:
                return self._drop(user, USERS)
            account = self._accounts[user] = _Account(now)
        if numbers.get(user, 0) >= MAX_USER_SERIES:
            return self._drop(user, SERIES)
        series = point.metric.name, point.labels
        if series not in account.shown:
            if account.tokens < 1.0:
                return self._drop(user, RATE)
            account.tokens -= 1.0
        account.shown[series] = now
        numbers[user] = numbers.get(user, 0) + 1
        return True

    def _drop(self, user: int, reason: str) -> bool:
        self._dropped[reason] += 1
        if user not in self._told and len(self._told) < MAX_USERS:
            self._told.add(user)
            log.warning("uid %d exceeds the quota of an untrusted user (%s): series are left out", user, reason)
        return False

    def _forget(self, now: float) -> None:
        """Let time pass: quotas grow, and what has not been shown for a while is forgotten."""
        for user, account in list(self._accounts.items()):
            grown = account.tokens + (now - account.filled) * NEW_SERIES_PER_MINUTE / 60.0
            account.tokens, account.filled = min(float(MAX_USER_SERIES), grown), now
            account.shown = {key: seen for key, seen in account.shown.items() if now - seen < KEEP_ENDED_SECONDS}
            if not account.shown and account.tokens >= MAX_USER_SERIES:
                del self._accounts[user]


@lru_cache(1024)
def _rank(metric: Metric) -> int:
    """Return how early a metric's series are kept."""
    return 1 if "phase" in metric.labels else 0 if "run" in metric.labels else 2


@lru_cache(1024)
def _places(metric: Metric) -> tuple[int, ...]:
    """Return where the labels of a metric are that may have a user's mark."""
    return tuple(place for place, name in enumerate(metric.labels) if name in ("run", "owner"))
