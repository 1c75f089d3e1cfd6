"""How a process gives up every right that reading another user's files does not need, for good.

It becomes that user, drops its capabilities, limits what it may use, and lets the kernel refuse all system calls but
those that read files and talk through descriptors that are open already.
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import resource
import signal
import struct
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from pinchpoint.host.capabilities import Capability, drop_all_but
from pinchpoint.host.exitstatus import PIDFD_GET_INFO

__all__ = ["User", "allow_cpu_seconds", "can_confine", "confine", "end_with_parent"]

MAX_MEMORY_BYTES = 64 << 20
"""Address space that a confined process may use on top of what it has when it is confined."""
MAX_CONFINED_FILES = 1024
OOM_SCORE = 1000
"""The kernel ends such a process first when memory runs out (oom_badness, mm/oom_kill.c)."""

PR_SET_PDEATHSIG, PR_GET_SECCOMP, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 1, 21, 22, 2
"""include/uapi/linux/prctl.h and seccomp.h."""
ALLOW, REFUSE, KILL = 0x7FFF0000, 0x00050000 | 1, 0x80000000
"""SECCOMP_RET_ALLOW, SECCOMP_RET_ERRNO with EPERM, and SECCOMP_RET_KILL_PROCESS (include/uapi/linux/seccomp.h)."""
NUMBER, ARCHITECTURE, ARGUMENTS = 0, 4, 16
"""Offsets in ``struct seccomp_data`` (include/uapi/linux/seccomp.h); each argument has 8 bytes, the low word first."""
LOAD, AND, IF_EQUAL, RETURN = 0x20, 0x54, 0x15, 0x06
"""BPF_LD|BPF_W|BPF_ABS, BPF_ALU|BPF_AND, BPF_JMP|BPF_JEQ and BPF_RET (include/uapi/linux/bpf_common.h)."""
INSTRUCTION = struct.Struct("=HBBI")
"""``struct sock_filter``: code, jumps if true and if false, operand (include/uapi/linux/filter.h)."""
WRITING = os.O_ACCMODE | os.O_CREAT | os.O_TRUNC | (os.O_TMPFILE & ~os.O_DIRECTORY)


class User(NamedTuple):
    """Whose rights a process has."""

    uid: int
    gid: int
    groups: tuple[int, ...] = ()


class Argument(NamedTuple):
    """What one argument of a system call must be, by its low 32 bits: `argument & mask` is one of `values`."""

    place: int
    values: tuple[int, ...]
    mask: int = 0xFFFFFFFF


class Architecture(NamedTuple):
    """What differs between architectures."""

    audit: int
    """AUDIT_ARCH_... (include/uapi/linux/audit.h)."""
    calls: Mapping[str, int]
    """Numbers of system calls (arch/x86/entry/syscalls/syscall_64.tbl, include/uapi/asm-generic/unistd.h); they never
    change."""


ARCHITECTURES = {
    "x86_64": Architecture(
        0xC000003E,
        {
            "read": 0, "pread64": 17, "openat": 257, "close": 3, "readlink": 89, "readlinkat": 267, "newfstatat": 262,
            "fstat": 5, "stat": 4, "lstat": 6, "statx": 332, "lseek": 8, "getdents64": 217, "fcntl": 72, "ioctl": 16,
            "recvfrom": 45, "sendto": 44, "poll": 7, "ppoll": 271, "mmap": 9, "mprotect": 10, "munmap": 11,
            "mremap": 25, "madvise": 28, "brk": 12, "futex": 202, "sched_yield": 24, "clock_gettime": 228,
            "gettimeofday": 96, "uname": 63, "getpid": 39, "gettid": 186, "getuid": 102, "geteuid": 107,
            "getrandom": 318, "prlimit64": 302, "pidfd_open": 434, "rt_sigaction": 13, "rt_sigprocmask": 14,
            "rt_sigreturn": 15, "sigaltstack": 131, "restart_syscall": 219, "exit": 60, "exit_group": 231,
        },
    ),
    "aarch64": Architecture(
        0xC00000B7,
        {
            "read": 63, "pread64": 67, "openat": 56, "close": 57, "readlinkat": 78, "newfstatat": 79, "fstat": 80,
            "statx": 291, "lseek": 62, "getdents64": 61, "fcntl": 25, "ioctl": 29, "recvfrom": 207, "sendto": 206,
            "ppoll": 73, "mmap": 222, "mprotect": 226, "munmap": 215, "mremap": 216, "madvise": 233, "brk": 214,
            "futex": 98, "sched_yield": 124, "clock_gettime": 113, "gettimeofday": 169, "uname": 160, "getpid": 172,
            "gettid": 178, "getuid": 174, "geteuid": 175, "getrandom": 278, "prlimit64": 261, "pidfd_open": 434,
            "rt_sigaction": 134, "rt_sigprocmask": 135, "rt_sigreturn": 139, "sigaltstack": 132,
            "restart_syscall": 128, "exit": 93, "exit_group": 94,
        },
    ),
}  # fmt: skip
"""The system calls that are allowed, the frequent ones first; all others fail with EPERM."""
CONDITIONS = {
    "openat": Argument(2, (0,), WRITING),
    "mmap": Argument(2, (0,), mmap.PROT_EXEC),
    "mprotect": Argument(2, (0,), mmap.PROT_EXEC),
    "fcntl": Argument(1, (fcntl.F_DUPFD, fcntl.F_DUPFD_CLOEXEC, fcntl.F_GETFD, fcntl.F_SETFD, fcntl.F_GETFL)),
    "ioctl": Argument(1, (PIDFD_GET_INFO,)),
    "prlimit64": Argument(0, (0,)),
}
"""Reading only; no new code; no locks, leases or signals through descriptors; no limits of other processes."""


def can_confine() -> bool:
    """Return whether this kernel has seccomp, and its system calls are known here."""
    with suppress(OSError):
        return os.uname().machine in ARCHITECTURES and _prctl(PR_GET_SECCOMP) >= 0
    return False


def end_with_parent(parent: int, number: int = signal.SIGKILL) -> None:
    """Have the kernel send this process a signal when the process `parent`, which has started it, ends.

    A later change of user undoes this (commit_creds, kernel/cred.c). Raises OSError.
    """
    _prctl(PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:
        raise ProcessLookupError("the parent has ended")


def confine(user: User, keep: Iterable[Capability] = (), *, memory: int = MAX_MEMORY_BYTES) -> None:
    """Become `user`, with no capabilities but `keep`, and read from now on.

    The change of user makes the process undumpable: the user may end it, but not trace it or see what it inherited.
    Raises OSError.
    """
    parent = os.getppid()
    with suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write(str(OOM_SCORE))
    os.setgroups(user.groups)
    os.setresgid(user.gid, user.gid, user.gid)
    os.setresuid(user.uid, user.uid, user.uid)
    drop_all_but(keep)
    end_with_parent(parent)
    _limit(memory)
    _filter(program(ARCHITECTURES[os.uname().machine]))


def allow_cpu_seconds(seconds: int) -> None:
    """Have the kernel end this process when it has used so much more CPU time."""
    limit, hard = int(time.process_time()) + 1 + seconds, resource.getrlimit(resource.RLIMIT_CPU)[1]
    resource.setrlimit(resource.RLIMIT_CPU, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))


def _limit(memory: int) -> None:
    with open("/proc/self/statm", "rb") as file:
        size = int(file.read().split()[0]) * mmap.PAGESIZE
    for what, limit in (
        (resource.RLIMIT_AS, size + memory),
        (resource.RLIMIT_NOFILE, MAX_CONFINED_FILES),
        (resource.RLIMIT_NPROC, 0),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
    ):
        hard = resource.getrlimit(what)[1]
        limit = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
        resource.setrlimit(what, (limit, limit))


def program(architecture: Architecture) -> bytes:
    """Return the filter as classic BPF: allowed system calls, with their `CONDITIONS`; the others are refused."""
    code = [(LOAD, 0, 0, ARCHITECTURE), (IF_EQUAL, 1, 0, architecture.audit), (RETURN, 0, 0, KILL)]
    code.append((LOAD, 0, 0, NUMBER))
    for name, number in architecture.calls.items():
        then = [(RETURN, 0, 0, ALLOW)]
        if (condition := CONDITIONS.get(name)) is not None:
            then = list(_checked(condition))
        code.append((IF_EQUAL, 0, len(then), number))
        code += then
    code.append((RETURN, 0, 0, REFUSE))
    return b"".join(INSTRUCTION.pack(*instruction) for instruction in code)


def _checked(condition: Argument) -> Sequence[tuple[int, int, int, int]]:
    left = len(condition.values)
    return [
        (LOAD, 0, 0, ARGUMENTS + 8 * condition.place),
        (AND, 0, 0, condition.mask),
        # Each comparison that holds skips the others and the refusal.
        *((IF_EQUAL, left - index, 0, value) for index, value in enumerate(condition.values)),
        (RETURN, 0, 0, REFUSE),
        (RETURN, 0, 0, ALLOW),
    ]


class _Program(ctypes.Structure):
    """``struct sock_fprog`` (include/uapi/linux/filter.h)."""

    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def _filter(code: bytes) -> None:
    """Apply a filter to this thread; it takes no_new_privs. Raises OSError."""
    filter_ = _Program(len(code) // INSTRUCTION.size, code)
    _prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.addressof(filter_))


def _prctl(option: int, *arguments: int) -> int:
    words = [ctypes.c_ulong(word) for word in (*arguments, 0, 0, 0, 0)[:4]]
    result: int = ctypes.CDLL(None, use_errno=True).prctl(option, *words)
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), "prctl")
    return result
