"""Parsers of procfs' formats: pure functions over bytes, each with the kernel file that writes them.

Other processes can influence what they read: a thread can choose any name, so fields are counted from the *last*
closing parenthesis, and text is decoded with replacement.
"""

from __future__ import annotations

import os
import re
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from pinchpoint.text import printable

__all__ = [
    "MAX_SOCKET_DESCRIPTORS",
    "CpuTimes",
    "FileInfo",
    "FormatError",
    "Mount",
    "ProcessIo",
    "Stat",
    "decode",
    "first_names",
    "kworker_work",
    "parse_cpu_list",
    "parse_cpu_times",
    "parse_cpus_allowed",
    "parse_file_info",
    "parse_mounts",
    "parse_process_io",
    "parse_real_uid",
    "parse_schedstat",
    "parse_sleeps",
    "parse_stat",
    "parse_thread_group",
    "read_bytes",
    "read_mounts",
    "shows_own_pids",
]

PF_KTHREAD = 0x00200000
"""Flag of a kernel thread (include/linux/sched.h; unchanged since Linux 2.6.27)."""
PF_WQ_WORKER = 0x00000020
"""Flag of a workqueue worker (include/linux/sched.h; since Linux 3.1)."""

MAX_CPU_NUMBERS = 1 << 14
"""More CPUs than any kernel can have (NR_CPUS, arch/*/Kconfig: at most 8192)."""

MAX_SOCKET_DESCRIPTORS = 1 << 14
"""Descriptors of one process among which its sockets are looked for."""
MAX_READ_BYTES = 1 << 20
"""The kernel writes no longer file for us, in bytes; anything longer is not what we expect."""
READ_CHUNK_BYTES = 1 << 14
"""Bytes of one read of a file."""


class FormatError(ValueError):
    """A file or an answer does not have the format that its parser knows."""


class Stat(NamedTuple):
    """The fields of ``/proc/PID/stat`` that Pinchpoint uses (``do_task_stat`` in fs/proc/array.c)."""

    comm: str
    state: str
    ppid: int
    flags: int
    utime: int
    """User time in clock ticks."""
    stime: int
    """System time in clock ticks."""
    start: int
    """Clock ticks from boot to the start of the task: with the id, its identity."""

    @property
    def ended(self) -> bool:
        """Whether it has ended, and its parent may not have noticed."""
        return self.state in ("Z", "X")

    @property
    def kernel_thread(self) -> bool:
        """Whether it is a kernel thread: no name of a user's process can imitate this."""
        return bool(self.flags & PF_KTHREAD)

    @property
    def kworker(self) -> bool:
        """Whether it is a worker of a workqueue."""
        return bool(self.flags & PF_WQ_WORKER)


def shows_own_pids(procfs: Path) -> bool:
    """Return whether a procfs shows the numbers of our own PID namespace. Raises OSError if it has no ``self``."""
    return os.readlink(f"{procfs}/self") == str(os.getpid())


def read_bytes(path: Path | str, limit: int = MAX_READ_BYTES) -> bytes:
    """Return at most `limit` bytes of the file `path`. Raises OSError where it can't be read."""
    # A file object costs 3 us more, where all of this takes 8 to 24.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        chunks = []
        while limit > 0 and (chunk := os.read(descriptor, min(limit, READ_CHUNK_BYTES))):
            chunks.append(chunk)
            limit -= len(chunk)
    finally:
        os.close(descriptor)
    return b"".join(chunks)


def first_names(directory: Path | str, limit: int) -> list[str]:
    """Return at most `limit` names in a directory: a process may have a million descriptors. Raises OSError."""
    with os.scandir(directory) as entries:
        return [entry.name for entry in islice(entries, limit)]


def decode(raw: bytes) -> str:
    """Decode bytes that anybody may have chosen; what is not UTF-8 or not printable becomes U+FFFD."""
    return printable(raw.decode("utf-8", "replace"))


def parse_stat(raw: bytes) -> Stat:
    """Return the fields of ``/proc/PID/stat`` or ``/proc/PID/task/TID/stat``.

    The name is everything between the first opening and the last closing parenthesis, as it may hold both
    (``do_task_stat``, fs/proc/array.c). Raises FormatError.
    """
    begin, end = raw.find(b"("), raw.rfind(b")")
    fields = raw[end + 1 :].split()
    if begin < 0 or end < begin or len(fields) < 21:  # one more than is used, as the last could be cut
        raise FormatError(f"not a stat line: {raw[:80]!r}")
    try:
        return Stat(
            comm=decode(raw[begin + 1 : end]),
            state=decode(fields[0]),
            ppid=int(fields[1]),
            flags=int(fields[6]),
            utime=int(fields[11]),
            stime=int(fields[12]),
            start=int(fields[19]),
        )
    except ValueError as error:
        raise FormatError(f"not a stat line: {raw[:80]!r}") from error


def parse_schedstat(raw: bytes) -> tuple[int, int]:
    """Return the nanoseconds on a CPU and the nanoseconds of run-queue wait of ``/proc/PID/task/TID/schedstat``.

    Written by ``proc_pid_schedstat`` (fs/proc/base.c): sum_exec_runtime, run_delay, pcount. The wait includes the
    time in which a CFS quota kept the thread off the CPU. Raises FormatError.
    """
    fields = raw.split()
    if len(fields) == 3:  # no loop: it is called hundreds of times a second
        run, wait, slices = fields
        if run.isdigit() and wait.isdigit() and slices.isdigit() and max(len(run), len(wait), len(slices)) <= 20:
            return int(run), int(wait)
    raise FormatError(f"not a schedstat line: {raw[:80]!r}")


def kworker_work(comm: str) -> str:
    """Return what a worker does or did last, from its name: ``kworker/u8:1+flush-254:0`` gives ``flush-254:0``.

    ``wq_worker_comm`` (kernel/workqueue.c, since Linux 4.18) appends ``+WORK`` while the worker runs and ``-WORK``
    afterwards. A rescuer (``kworker/R-QUEUE``, since Linux 6.8) works only for its own queue, and shows ``+WORK``
    meanwhile. Returns "" if the name contains no work.
    """
    head, _, tail = comm.partition(":")
    if not head.startswith("kworker/"):
        return ""
    if head.startswith("kworker/R-"):
        queue, _, work = comm.removeprefix("kworker/R-").partition("+")
        return work or queue
    signs = [index for index in (tail.find("+"), tail.find("-")) if index >= 0]
    return tail[min(signs) + 1 :] if signs else ""


class CpuTimes(NamedTuple):
    """What one CPU did since boot, in clock ticks (``show_stat`` in fs/proc/stat.c)."""

    user: int
    """User time, with that of guests, which the kernel counts here too (account_guest_time)."""
    nice: int
    system: int
    idle: int
    iowait: int
    """Idle while an I/O was under way; it may go backwards (Documentation/filesystems/proc.rst)."""
    irq: int
    softirq: int
    steal: int
    """Time in which the hypervisor ran another guest while this CPU had work."""

    @property
    def busy(self) -> int:
        """Ticks in which the CPU was not free for anybody else."""
        return self.user + self.nice + self.system + self.irq + self.softirq + self.steal

    def since(self, before: CpuTimes) -> CpuTimes:
        """Return the times since `before`, none of them negative.

        Idle time may be corrected backwards (get_cpu_idle_time_us), and a CPU that came back may begin at 0.
        """
        return CpuTimes(*(max(0, now - then) for then, now in zip(before, self, strict=True)))


def parse_cpu_times(raw: bytes) -> dict[int, CpuTimes]:
    """Return the times of each online CPU, from ``/proc/stat``; truncated and damaged lines are left out.

    Raises FormatError if no CPU's line is left.
    """
    found: dict[int, CpuTimes] = {}
    for line in raw.splitlines():
        name, *fields = line.split()[:9] or (b"",)
        number = name[3:]
        if not name.startswith(b"cpu") or not number.isdigit() or len(number) > 6:
            continue
        if len(fields) == 8 and all(field.isdigit() and len(field) <= 20 for field in fields):
            found[int(number)] = CpuTimes(*map(int, fields))
    if not found:
        raise FormatError(f"no CPU in stat: {raw[:80]!r}")
    return found


def parse_cpu_list(raw: bytes) -> frozenset[int]:
    """Return the CPUs of a list like ``0-3,8,10-11`` (bitmap_list_string, lib/vsprintf.c). Raises FormatError."""
    found: set[int] = set()
    for part in raw.strip().split(b",") if raw.strip() else ():
        first, dash, last = part.partition(b"-")
        if not dash:
            last = first
        if not all(number.isdigit() and len(number) <= 8 and int(number) < MAX_CPU_NUMBERS for number in (first, last)):
            raise FormatError(f"not a list of CPUs: {raw[:80]!r}")
        found.update(range(int(first), int(last) + 1))
    return frozenset(found)


def parse_cpus_allowed(raw: bytes) -> frozenset[int]:
    """Return the CPUs on which a thread may run, from ``/proc/PID/status`` or ``/proc/PID/task/TID/status``.

    That is its own affinity within the cpuset of its cgroup (task_cpus_allowed, fs/proc/array.c). A name can't imitate
    the line: a newline in it is written as a backslash and n (proc_task_name). Raises FormatError.
    """
    _, found, rest = raw.partition(b"\nCpus_allowed_list:")
    if found:
        return parse_cpu_list(rest.partition(b"\n")[0])
    raise FormatError(f"no Cpus_allowed_list in status: {raw[:80]!r}")


def parse_real_uid(raw: bytes) -> int:
    """Return the real uid of a process from ``/proc/PID/status``, as the reader's user namespace counts.

    The line has real, effective, saved and file system uid (task_state, fs/proc/array.c). Only the
    real one says who started a set-user-ID program. The owner of ``/proc/PID`` does not: it is root for every process
    that may not be dumped (task_dump_owner, fs/proc/base.c). As with CPUs, a name can't imitate the line. Raises
    FormatError.
    """
    _, found, rest = raw.partition(b"\nUid:\t")
    uid = rest.partition(b"\t")[0]
    if found and uid.isdigit() and len(uid) <= 10:
        return int(uid)
    raise FormatError(f"no Uid in status: {raw[:80]!r}")


def parse_thread_group(raw: bytes) -> int:
    """Return the process that a process or thread belongs to, from its ``status`` (proc_pid_status, fs/proc/array.c).

    As with CPUs, a name can't imitate the line. Raises FormatError.
    """
    _, found, rest = raw.partition(b"\nTgid:\t")
    group = rest.partition(b"\n")[0]
    if found and group.isdigit() and len(group) <= 10:
        return int(group)
    raise FormatError(f"no Tgid in status: {raw[:80]!r}")


class ProcessIo(NamedTuple):
    """What a process has read and written so far, in bytes."""

    asked: int
    """By system calls, from wherever: ``rchar`` and ``wchar``."""
    stored: int
    """From and to storage: ``read_bytes`` and ``write_bytes``. Asynchronous I/O (io_submit) counts only here."""


def parse_process_io(raw: bytes) -> ProcessIo:
    """Return the counters of ``/proc/PID/io`` (do_io_accounting, fs/proc/base.c). Raises FormatError."""
    fields = dict(line.partition(b": ")[::2] for line in raw.splitlines())
    names = (b"rchar", b"wchar", b"read_bytes", b"write_bytes")
    if all((value := fields.get(name, b"")).isdigit() and len(value) <= 20 for name in names):
        read, written, fetched, stored = (int(fields[name]) for name in names)
        return ProcessIo(read + written, fetched + stored)
    raise FormatError(f"not the counters of a process' I/O: {raw[:80]!r}")


def parse_sleeps(raw: bytes) -> int:
    """Return how often a thread has gone to sleep, from its ``status`` (task_context_switch_counts, fs/proc/array.c).

    A switch is voluntary if the thread sleeps; one that yields its CPU does not (__schedule, kernel/sched/core.c). As
    with CPUs, a name can't imitate the line. Raises FormatError.
    """
    _, found, rest = raw.partition(b"\nvoluntary_ctxt_switches:\t")
    count = rest.partition(b"\n")[0]
    if found and count.isdigit() and len(count) <= 20:
        return int(count)
    raise FormatError(f"no voluntary_ctxt_switches in status: {raw[:80]!r}")


class FileInfo(NamedTuple):
    """What ``/proc/PID/fdinfo/FD`` says of an open file without asking its file system (``seq_show``, fs/proc/fd.c)."""

    mount: int
    """Id of the mount that it was opened on: the first field of a line of ``mountinfo``."""
    flags: int
    """As in open(2)."""


def parse_file_info(raw: bytes) -> FileInfo:
    """Return the fields of ``/proc/PID/fdinfo/FD`` that Pinchpoint uses; mnt_id is there since Linux 3.15.

    Drivers add lines of their own after those. Raises FormatError.
    """
    fields: dict[bytes, bytes] = {}
    for line in raw.splitlines():
        key, colon, value = line.partition(b":")
        if colon:
            fields.setdefault(key, value.strip())
    mount, flags = fields.get(b"mnt_id", b""), fields.get(b"flags", b"")
    if re.fullmatch(rb"\d{1,10}", mount) and re.fullmatch(rb"[0-7]{1,16}", flags):
        return FileInfo(int(mount), int(flags, 8))
    raise FormatError(f"not an fdinfo: {raw[:80]!r}")


class Mount(NamedTuple):
    """One mount of a process' mount namespace."""

    root: str
    """The directory of the file system that is mounted: ``/`` unless it is a bind mount of a part of it."""
    point: str
    fstype: str
    options: tuple[str, ...]
    """The mount's and the file system's own options, in the kernel's order and each once."""
    number: int | None = None
    """Id of the mount, if read from ``mountinfo``."""
    device: str = ""
    """MAJOR:MINOR of the file system; major 0 belongs to no device (``get_anon_bdev``, fs/super.c)."""
    source: str = ""
    """What was mounted, in the words of the file system: a device, SERVER:/PATH, or any text."""


def parse_mounts(raw: bytes) -> list[Mount]:
    """Return the mounts of ``/proc/PID/mountinfo`` or of ``/proc/PID/mounts``; lines of neither format are left out.

    The formats are those of ``show_mountinfo`` and ``show_vfsmnt`` (fs/proc_namespace.c): only the first has a field
    that consists of a hyphen, and before it the root of the mount.
    """
    mounts = []
    # The kernel escapes blanks, tabs and newlines in names (mangle, fs/seq_file.c), and no other whitespace.
    for line in raw.split(b"\n"):
        fields = line.split(b" ")
        if b"-" in fields[6:]:
            end = fields.index(b"-", 6)
            root, point, options, rest = fields[3], fields[4], fields[5], fields[end + 1 :]
            if len(rest) < 3:
                continue
            fstype, source, options = rest[0], rest[1], options + b"," + rest[2]
            number, device = int(fields[0]) if re.fullmatch(rb"\d{1,10}", fields[0]) else None, decode(fields[2])
        elif len(fields) == 6:
            root, source, point, fstype, options = b"/", fields[0], fields[1], fields[2], fields[3]
            number, device = None, ""
        else:
            continue
        unique = dict.fromkeys(_unescape(option) for option in options.split(b","))
        mounts.append(
            Mount(
                root=_unescape(root),
                point=_unescape(point),
                fstype=_unescape(fstype),
                options=tuple(unique),
                number=number,
                device=device,
                source=_unescape(source),
            )
        )
    return mounts


def _unescape(raw: bytes) -> str:
    """Return a field of a mount table, in which a blank is a backslash and 040 (``mangle_path``, fs/seq_file.c)."""
    return decode(re.sub(rb"\\([0-3][0-7]{2})", lambda found: bytes((int(found[1], 8),)), raw))


def read_mounts(procfs: Path) -> bytes:
    """Return the host's mount table as its first process sees it or, where that may not be read, as we do."""
    for name in ("1/mountinfo", "self/mountinfo", "mounts"):
        try:
            return read_bytes(procfs / name)
        except OSError:
            continue
    return b""
