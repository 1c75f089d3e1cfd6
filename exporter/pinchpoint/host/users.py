"""Users of the host: who is trusted, and whose processes and files count as one user's."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from pinchpoint.host.procfs import decode, parse_real_uid, read_bytes
from pinchpoint.user_labels import user_mark

__all__ = [
    "NOBODY",
    "ROOT",
    "Subordinates",
    "Users",
    "ceph_uids",
    "named_uids",
    "own_users",
    "parse_passwd",
    "parse_subuid",
    "process_user",
    "read_subuid",
]

ROOT = 0
NOBODY = 65534
"""The user of what has none that can be seen, as in the kernel (overflowuid, kernel/sys.c)."""
CEPH = "ceph"
"""The user that Ceph's packages create."""
CEPH_UID_IN_IMAGES = 167
"""Its uid in Ceph's own container images (CEPH_USER_ID in ceph.spec.in)."""
MAX_UID_DIGITS = 10
"""Digits of the largest uid (uid_t, 32 bits)."""
MAX_RANGES = 4096
"""Maximum number of ranges of subordinate uids that are read."""
READ_INTERVAL_SECONDS = 60.0
"""Seconds after which subordinate uids are read again: a user may have got some."""


class Subordinates(NamedTuple):
    """A range of uids that a user may give to processes of a container."""

    user: int
    first: int
    size: int


class Users:
    """Who is trusted: root, and `trusted`. The subordinate uids of a user are that user.

    Those of a trusted user belong to containers whose users nobody knows: their range is one untrusted user, called by
    its first uid. `subordinates` reads the ranges, and `clock` gives monotonic seconds.
    """

    def __init__(
        self,
        trusted: Iterable[int] = (),
        subordinates: Callable[[], Sequence[Subordinates]] = tuple,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._trusted = frozenset((ROOT, *trusted))
        self._read = subordinates
        self._clock = clock
        self._ranges: Sequence[Subordinates] = ()
        self._read_at = float("-inf")

    def user(self, uid: int) -> int:
        """Return the user that a uid belongs to: itself, unless it is another user's subordinate uid."""
        if (now := self._clock()) - self._read_at >= READ_INTERVAL_SECONDS:
            self._read_at, self._ranges = now, self._read()
        for user, first, size in self._ranges:
            if 0 <= uid - first < size:
                return first if user in self._trusted else user
        return uid

    def account(self, uid: int) -> int | None:
        """Return the user in whose quotas a uid counts, None for those of all trusted users."""
        user = self.user(uid)
        return None if user in self._trusted else user

    def trusts(self, uid: int) -> bool:
        """Return whether a user is trusted."""
        return self.account(uid) is None

    def mark(self, uid: int) -> str:
        """Return what names that this user chose end with in labels; nothing if the user is trusted."""
        user = self.account(uid)
        return "" if user is None else user_mark(user)


def own_users() -> Users:
    """Return users of whom root and the one of this process are trusted."""
    return Users((os.geteuid(),))


def process_user(procfs: Path, pid: int) -> int:
    """Return the uid of whoever started a process: its real one. `NOBODY` if that cannot be seen."""
    try:
        return parse_real_uid(read_bytes(f"{procfs}/{pid}/status"))
    except (OSError, ValueError):
        return NOBODY


def ceph_uids(rootfs: Path) -> frozenset[int]:
    """Return the uids that Ceph daemons have on a host besides root's: in packages, and in containers.

    The one of containers does not count where the host gave it to another user.
    """
    users = _uids(rootfs)
    packaged = {users[CEPH]} if CEPH in users else set()
    return frozenset(packaged | ({CEPH_UID_IN_IMAGES} - set(users.values())))


def named_uids(names: Iterable[str | int], rootfs: Path) -> Collection[int]:
    """Return the uids of users given by name or uid. Raises LookupError with a name that the host does not have."""
    known = _uids(rootfs)
    return [name if isinstance(name, int) else known[name] for name in names]


def read_subuid(rootfs: Path) -> Sequence[Subordinates]:
    """Return the subordinate uids of a host's users, none where there is no such list."""
    known = _uids(rootfs)
    try:
        return parse_subuid(read_bytes(rootfs / "etc" / "subuid"), known)
    except OSError:
        return ()


def _uids(rootfs: Path) -> dict[str, int]:
    """Return the uids of a host's users by name, none where it has no list."""
    try:
        return parse_passwd(read_bytes(rootfs / "etc" / "passwd"))
    except OSError:
        return {}


def parse_passwd(raw: bytes) -> dict[str, int]:
    """Return the uids in ``/etc/passwd`` by name (passwd(5)), the first line of a name; other lines are left out."""
    users: dict[str, int] = {}
    for line in raw.splitlines():
        name, *fields = line.split(b":", 3)
        if len(fields) == 3 and fields[1].isdigit() and len(fields[1]) <= MAX_UID_DIGITS:
            users.setdefault(decode(name), int(fields[1]))
    return users


def parse_subuid(raw: bytes, known: dict[str, int]) -> list[Subordinates]:
    """Return the ranges of ``/etc/subuid`` (subuid(5)), whose lines begin with a name or a uid.

    Lines of users that are not `known`, and damaged ones, are left out.
    """
    found: list[Subordinates] = []
    for line in raw.splitlines():
        name, *numbers = line.split(b":")
        if len(numbers) != 2 or not all(number.isdigit() and len(number) <= MAX_UID_DIGITS for number in numbers):
            continue
        user = known.get(decode(name))
        if user is None and name.isdigit() and len(name) <= MAX_UID_DIGITS:
            user = int(name)
        if user is not None and len(found) < MAX_RANGES:
            found.append(Subordinates(user, int(numbers[0]), int(numbers[1])))
    return found
