"""Whether a process is the daemon that it is named after.

Anybody can give a process any name and any command line. What an unprivileged user can't choose is the real uid of a
process; and where a program with more rights runs on his behalf (sudo by a link named ``ceph-osd``), its executable
shows what it is.
"""

from __future__ import annotations

import os
import re
import stat
from collections import Counter
from collections.abc import Collection, Iterable
from pathlib import Path

from pinchpoint.host.procfs import FormatError, parse_real_uid, read_bytes
from pinchpoint.metrics import KEEP_ENDED_SECONDS
from pinchpoint.user_labels import user_mark

__all__ = ["NOT_THE_PROGRAM", "ShownOwners", "mark"]

NOT_THE_PROGRAM = "@unverified"
"""Ends the owner of a process of a trusted user that runs, or seems to run, another program."""
DELETED = " (deleted)"
"""Ends the path of an executable that was replaced, as an upgrade does (d_path, fs/d_path.c)."""
UNTRUSTED_MODE = stat.S_IWGRP | stat.S_IWOTH | stat.S_ISUID | stat.S_ISGID
"""Bits that the executable of a daemon does not have: others may not change it, nor become its user by running it."""
MAX_SHOWN = 32
"""Owners of unverified processes that are shown ..."""
MAX_SHOWN_PER_USER = 4
"""... and those of one user: whoever starts such processes chooses their names."""


def mark(procfs: Path, pid: int, name: re.Pattern[str], users: Collection[int]) -> str:
    """Return what the owner of a process ends with: nothing for a daemon, ``@uidN`` or ``@unverified`` for another one.

    A daemon is a process whose real uid is one of `users`, and whose executable has a `name` that fits, belongs to one
    of `users` and can be changed by nobody else. In a container too, this shows the uids of the host. Where we lack the
    right to see the executable (CAP_SYS_PTRACE), the uid suffices.
    """
    directory = f"{procfs}/{pid}"
    try:
        user = parse_real_uid(read_bytes(f"{directory}/status"))
    except (OSError, FormatError):
        return NOT_THE_PROGRAM
    if user not in users:
        return user_mark(user)
    try:
        program = os.path.basename(os.readlink(f"{directory}/exe"))
        found = os.stat(f"{directory}/exe")  # the very file that runs, whatever is at its path now
    except PermissionError:
        return ""
    except OSError:
        return NOT_THE_PROGRAM
    fits = name.fullmatch(program.removesuffix(DELETED)) is not None
    untouched = stat.S_ISREG(found.st_mode) and found.st_uid in users and not found.st_mode & UNTRUSTED_MODE
    return "" if fits and untouched else NOT_THE_PROGRAM


class ShownOwners:
    """Which owners of unverified processes are shown: the first ones, until their series are gone."""

    def __init__(self) -> None:
        self._seen: dict[str, float] = {}

    def choose(self, owners: Iterable[str], now: float) -> Collection[str]:
        """Return those of the present owners that are shown; `now` is a monotonic time in seconds."""
        self._seen = {owner: seen for owner, seen in self._seen.items() if now - seen < KEEP_ENDED_SECONDS}
        numbers = Counter(map(_user, self._seen))
        for owner in owners:
            if owner not in self._seen:
                user = _user(owner)
                if len(self._seen) >= MAX_SHOWN or numbers[user] >= MAX_SHOWN_PER_USER:
                    continue
                numbers[user] += 1
            self._seen[owner] = now
        return self._seen.keys()


def _user(owner: str) -> str:
    """Return what `mark` added to an owner: a name before it may have such an end too."""
    return owner.rpartition("@")[2]
