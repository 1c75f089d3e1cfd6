"""Capabilities (man 7 capabilities): which ones this process has, and how it gives up those that it does not need."""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from collections.abc import Collection, Iterable, Mapping
from enum import IntEnum
from typing import NamedTuple

__all__ = ["Capability", "CapabilitySets", "drop_all_but", "effective", "losses", "missing", "names", "without_rights"]


class Capability(IntEnum):
    """A capability that a probe may need, by its number (include/uapi/linux/capability.h)."""

    DAC_OVERRIDE = 1
    DAC_READ_SEARCH = 2
    KILL = 5
    SETGID = 6
    SETUID = 7
    SYS_PTRACE = 19
    SYS_ADMIN = 21
    SYS_NICE = 23
    SYSLOG = 34
    PERFMON = 38
    BPF = 39


NAMES = (
    "CHOWN", "DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID", "SETPCAP",
    "LINUX_IMMUTABLE", "NET_BIND_SERVICE", "NET_BROADCAST", "NET_ADMIN", "NET_RAW", "IPC_LOCK", "IPC_OWNER",
    "SYS_MODULE", "SYS_RAWIO", "SYS_CHROOT", "SYS_PTRACE", "SYS_PACCT", "SYS_ADMIN", "SYS_BOOT", "SYS_NICE",
    "SYS_RESOURCE", "SYS_TIME", "SYS_TTY_CONFIG", "MKNOD", "LEASE", "AUDIT_WRITE", "AUDIT_CONTROL", "SETFCAP",
    "MAC_OVERRIDE", "MAC_ADMIN", "SYSLOG", "WAKE_ALARM", "BLOCK_SUSPEND", "AUDIT_READ", "PERFMON", "BPF",
    "CHECKPOINT_RESTORE",
)  # fmt: skip
"""Names by number (include/uapi/linux/capability.h, Linux 5.9 to 6.18)."""
INCLUDED_IN = {
    Capability.BPF: Capability.SYS_ADMIN,
    Capability.PERFMON: Capability.SYS_ADMIN,
    Capability.DAC_READ_SEARCH: Capability.DAC_OVERRIDE,
}
"""Capabilities that another one includes: ``bpf_capable`` and ``perfmon_capable`` (include/linux/capability.h, since
Linux 5.8; before, only SYS_ADMIN exists) and ``generic_permission`` (fs/namei.c)."""
WITHOUT: Mapping[tuple[Capability, ...], str] = {
    (Capability.BPF, Capability.PERFMON): "threads are read through procfs, only those of processes that a rule names; "
    "kernel workers are told apart by their names",
    (Capability.SYS_PTRACE,): "of other users' processes only CPU time, name, user and cgroup are seen",
    (Capability.DAC_READ_SEARCH,): "no open files and connections of other users, no requests of kernel clients",
    (Capability.DAC_OVERRIDE,): "no counters of Ceph daemons and clients of other users",
    (
        Capability.SYS_ADMIN,
    ): "of waits only the innermost kernel function is known; no queues of links in other network namespaces",
    (Capability.SETUID, Capability.SETGID, Capability.KILL): "the files of benchmarks are read by the exporter itself",
    (Capability.SYSLOG,): "functions of the kernel have no names in profiles where it can't be asked for them by BPF",
    (Capability.SYS_NICE,): "no real-time priority: on a full host half of the samples are lost",
}
"""What an exporter does not see or do without these capabilities; docs/install.md has the same at length."""
MAX_CAPABILITIES = 64
"""The sets are 64 bits wide."""

HEADER = struct.Struct("=Ii")
"""``struct __user_cap_header_struct``: version and pid, 0 for the calling thread."""
SETS = struct.Struct("=6I")
"""Two ``struct __user_cap_data_struct``, low and high bits: effective, permitted, inheritable of each."""
VERSION_3 = 0x20080522
"""_LINUX_CAPABILITY_VERSION_3: two structures (since Linux 2.6.26)."""
PR_CAPBSET_READ, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 23, 24, 38
"""include/uapi/linux/prctl.h."""


class CapabilitySets(NamedTuple):
    """The capability sets of a thread, by number."""

    effective: frozenset[int]
    permitted: frozenset[int]
    inheritable: frozenset[int]

    @classmethod
    def unpack(cls, raw: bytes) -> CapabilitySets:
        """Return the sets as ``capget`` writes them. Raises ValueError for another length."""
        if len(raw) != SETS.size:
            raise ValueError(f"capability sets have {SETS.size} bytes, not {len(raw)}")
        words = SETS.unpack(raw)
        masks = [words[place] | words[place + 3] << 32 for place in range(3)]
        return cls(*(frozenset(n for n in range(MAX_CAPABILITIES) if mask >> n & 1) for mask in masks))

    def pack(self) -> bytes:
        """Return the sets as ``capset`` reads them."""
        masks = [sum(1 << number for number in numbers) for numbers in self]
        return SETS.pack(*(mask & 0xFFFFFFFF for mask in masks), *(mask >> 32 for mask in masks))


def covering(needed: Iterable[Capability], held: Collection[int]) -> frozenset[int]:
    """Return the part of `held` that covers `needed`: each capability itself, or the one that includes it."""
    return frozenset(one if one in held else INCLUDED_IN.get(one, one) for one in needed) & frozenset(held)


def missing(needed: Iterable[Capability], held: Collection[int]) -> list[Capability]:
    """Return the capabilities of `needed` that `held` neither has nor includes, by number."""
    return sorted(one for one in needed if one not in held and INCLUDED_IN.get(one) not in held)


def losses(lacking: Collection[Capability]) -> list[str]:
    """Return what is lost without each group of these capabilities, in sentences for a log."""
    return [
        f"lacks {names(group)}: {loss}"
        for capabilities, loss in WITHOUT.items()
        if (group := [one for one in capabilities if one in lacking])
    ]


def without_rights() -> bool:
    """Return whether this is a user like any other: not root, and with none of the capabilities that probes need."""
    return os.geteuid() != 0 and not effective() & set(Capability)


def names(numbers: Iterable[int]) -> str:
    """Return the names of capabilities in the order of their numbers: ``CAP_SYS_PTRACE, CAP_BPF``; or ``none``."""
    known = (f"CAP_{NAMES[number]}" if number < len(NAMES) else f"capability {number}" for number in sorted(numbers))
    return ", ".join(known) or "none"


def effective() -> frozenset[int]:
    """Return the effective capabilities of this thread; all of them where a seccomp filter hides them."""
    try:
        return _get().effective
    except OSError:
        return frozenset(range(MAX_CAPABILITIES))


def drop_all_but(needed: Iterable[Capability]) -> CapabilitySets:
    """Keep `needed` as permitted and effective, drop everything else from every set, and return the sets from before.

    It is for this thread and those that it starts later. A program that they execute gets no other capability, neither
    with uid 0 nor from a setuid file (no_new_privs). With uid 0 the files of root remain accessible: that right is the
    owner's. The bounding set stays where CAP_SETPCAP is missing. Raises OSError.
    """
    before = _get()
    keep = covering(needed, before.permitted)
    _prctl(PR_SET_NO_NEW_PRIVS, 1)
    for number in range(MAX_CAPABILITIES):
        try:
            if number not in keep and _prctl(PR_CAPBSET_READ, number):
                _prctl(PR_CAPBSET_DROP, number)
        except OSError as error:
            # EINVAL: the kernel has no more of them; EPERM: no CAP_SETPCAP.
            if error.errno not in (errno.EINVAL, errno.EPERM):
                raise
            break
    # What is not inheritable leaves the ambient set too (cap_capset, security/commoncap.c).
    _capset(CapabilitySets(effective=keep, permitted=keep, inheritable=frozenset()))
    return before


def _get() -> CapabilitySets:
    sets = ctypes.create_string_buffer(SETS.size)
    if ctypes.CDLL(None, use_errno=True).capget(_header(), sets):
        raise _error("capget")
    return CapabilitySets.unpack(sets.raw)


def _capset(sets: CapabilitySets) -> None:
    if ctypes.CDLL(None, use_errno=True).capset(_header(), sets.pack()):
        raise _error("capset")


def _header() -> ctypes.Array[ctypes.c_char]:
    return ctypes.create_string_buffer(HEADER.pack(VERSION_3, 0), HEADER.size)


def _prctl(option: int, argument: int) -> int:
    # The arguments are unsigned long, and those that an option does not use have to be 0.
    words = [ctypes.c_ulong(word) for word in (argument, 0, 0, 0)]
    result: int = ctypes.CDLL(None, use_errno=True).prctl(option, *words)
    if result < 0:
        raise _error("prctl")
    return result


def _error(call: str) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number), call)
