"""Passwords of HTTP's basic authentication (RFC 7617), against bcrypt hashes, at a bounded cost."""

from __future__ import annotations

import hmac
import secrets
import time
from base64 import b64decode
from collections.abc import Callable, Mapping
from enum import Enum, auto
from threading import Lock
from typing import TypeVar

import bcrypt

from pinchpoint.wire.token_bucket import TokenBucket

__all__ = ["Answer", "Passwords", "credentials"]

K = TypeVar("K")
V = TypeVar("V")

MAX_BCRYPT_BYTES = 72
"""bcrypt looks at no more bytes of a password."""
MAX_KNOWN_WRONG = 100
"""Wrong passwords that are remembered: a scraper with an old one costs one check. exporter-toolkit: 100 in all."""
MAX_WAITING = 16
"""Requests that may wait until their password is checked; checks happen one after the other."""
WRONG_CPU_SHARE = 0.05
"""CPUs that wrong passwords may use on average ..."""
WRONG_CPU_SECONDS = 1.0
"""... and the CPU seconds that they may use at once."""
RESERVED = 0.5
"""Share of these seconds that is kept for peers without a wrong password in the last `FORGIVE_SECONDS`."""
FORGIVE_SECONDS = 60.0
MAX_SUSPECTS = 1024
"""Peers that are remembered for a wrong password."""


class Answer(Enum):
    """Whether a password is right."""

    RIGHT = auto()
    WRONG = auto()
    UNCHECKED = auto()
    """Too many passwords are waiting or were wrong."""


def credentials(header: str) -> tuple[str, bytes] | None:
    """Return user and password of a header Authorization; None if it has none."""
    scheme, _, encoded = header.partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        user, colon, password = b64decode(encoded.strip(), validate=True).partition(b":")
        return (user.decode(), password) if colon else None
    except ValueError:  # not base64, not UTF-8
        return None


class Passwords:
    """Checks passwords; it remembers the right one of each user, and some wrong ones, by a keyed hash.

    A check takes as long for an unknown user as for a known one. `clock` is monotonic; `cpu` is the CPU time of this
    thread, and `matches` compares a password with a hash.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        cpu: Callable[[], float] = time.thread_time,
        matches: Callable[[bytes, bytes], bool] = bcrypt.checkpw,
    ) -> None:
        self.cpu_seconds = 0.0
        """CPU time of all checks so far."""
        self._clock = clock
        self._cpu = cpu
        self._matches = matches
        self._key = secrets.token_bytes(32)
        self._right: dict[str, bytes] = {}
        self._wrong: dict[bytes, None] = {}
        self._suspects: dict[str, float] = {}
        self._waiting = 0
        self._budget = TokenBucket(WRONG_CPU_SHARE, WRONG_CPU_SECONDS, clock)
        self._lock = Lock()
        self._turn = Lock()
        """Held while a password is checked."""

    def check(self, users: Mapping[str, str], user: str, password: bytes, peer: str) -> Answer:
        """Return whether a password is a user's, by the hashes of all users. `peer` sends it."""
        password = password[:MAX_BCRYPT_BYTES]
        known = user in users
        hashed = (users[user] if known else self._alike(user, users)).encode()
        digest = self._digest(user.encode(), hashed, password)
        with self._lock:
            answer = self._remembered(users, user, digest)
            if answer is None and (self._waiting >= MAX_WAITING or not self._affordable(peer)):
                answer = Answer.UNCHECKED
            if answer is not None:
                return answer
            self._waiting += 1
        try:
            with self._turn:
                return self._checked(users, user, password, peer, hashed, digest)
        finally:
            with self._lock:
                self._waiting -= 1

    def _checked(
        self, users: Mapping[str, str], user: str, password: bytes, peer: str, hashed: bytes, digest: bytes
    ) -> Answer:
        """Return the answer in this request's turn: others may have asked the same, or have spent what was left."""
        with self._lock:
            if (answer := self._remembered(users, user, digest)) is not None:
                return answer
            if not self._affordable(peer):
                return Answer.UNCHECKED
        before = self._cpu()
        right = self._is_right(password, hashed) and user in users
        spent = self._cpu() - before
        with self._lock:
            self.cpu_seconds += spent
            if right:
                self._right = {name: seen for name, seen in self._right.items() if name in users} | {user: digest}
                return Answer.RIGHT
            self._budget.debit(spent)
            _remember(self._wrong, digest, None, MAX_KNOWN_WRONG)
            self._suspects.pop(peer, None)
            _remember(self._suspects, peer, self._clock(), MAX_SUSPECTS)
            return Answer.WRONG

    def _is_right(self, password: bytes, hashed: bytes) -> bool:
        try:
            return self._matches(password, hashed)
        except ValueError:  # a NUL in it, with some versions of bcrypt
            return False

    def _remembered(self, users: Mapping[str, str], user: str, digest: bytes) -> Answer | None:
        # A user who was removed is checked against a hash that may be the same.
        if user in users and hmac.compare_digest(self._right.get(user, b""), digest):
            return Answer.RIGHT
        return Answer.WRONG if digest in self._wrong else None

    def _affordable(self, peer: str) -> bool:
        seen = self._suspects.get(peer)
        suspect = seen is not None and self._clock() - seen < FORGIVE_SECONDS
        return self._budget.level > (RESERVED * WRONG_CPU_SECONDS if suspect else 0.0)

    def _alike(self, user: str, users: Mapping[str, str]) -> str:
        """Return the hash of some user for an unknown one, always the same: so its check costs as much as a user's."""
        hashes = list(users.values())
        return hashes[int.from_bytes(self._digest(user.encode())[:8], "big") % len(hashes)]

    def _digest(self, *parts: bytes) -> bytes:
        """Return a hash that only this process can compute, since its key is in no other."""
        return hmac.digest(self._key, b"".join(len(part).to_bytes(4, "big") + part for part in parts), "sha256")


def _remember(known: dict[K, V], key: K, value: V, most: int) -> None:
    """Add an entry; the oldest ones give way."""
    known[key] = value
    while len(known) > most:
        del known[next(iter(known))]
