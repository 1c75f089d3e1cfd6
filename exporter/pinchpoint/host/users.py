"""Users of the host that mean something by their names."""

from __future__ import annotations

from pathlib import Path

from pinchpoint.host.procfs import decode, read_bytes

__all__ = ["ceph_uids", "parse_passwd"]

CEPH = "ceph"
"""The user that Ceph's packages create."""
CEPH_UID_IN_IMAGES = 167
"""Its uid in Ceph's own container images (CEPH_USER_ID in ceph.spec.in)."""
MAX_UID_DIGITS = 10
"""Digits of the largest uid (uid_t, 32 bits)."""


def ceph_uids(rootfs: Path) -> frozenset[int]:
    """Return the uids that Ceph daemons have on a host besides root's: in packages, and in containers.

    The one of containers does not count where the host gave it to another user.
    """
    try:
        users = parse_passwd(read_bytes(rootfs / "etc" / "passwd"))
    except OSError:
        users = {}
    packaged = {users[CEPH]} if CEPH in users else set()
    return frozenset(packaged | ({CEPH_UID_IN_IMAGES} - set(users.values())))


def parse_passwd(raw: bytes) -> dict[str, int]:
    """Return the uids in ``/etc/passwd`` by name (passwd(5)), the first line of a name; other lines are left out."""
    users: dict[str, int] = {}
    for line in raw.splitlines():
        name, *fields = line.split(b":", 3)
        if len(fields) == 3 and fields[1].isdigit() and len(fields[1]) <= MAX_UID_DIGITS:
            users.setdefault(decode(name), int(fields[1]))
    return users
