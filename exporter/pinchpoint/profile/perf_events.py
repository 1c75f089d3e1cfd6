"""Samples of a thread's stack: perf events on the CPU clock of one thread (man 2 perf_event_open), by ctypes.

The event's timer runs only while the thread runs: a sample stands for CPU time, and other threads cost nothing. It
needs no PMU and no BPF. The kernel copies the user part of the stack into the sample. It holds the program's data, so
that nothing but `pinchpoint.profile.unwind` may see it, and nobody may keep it.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
import platform
import struct
from pathlib import Path
from typing import NamedTuple

from pinchpoint.profile.unwind import REGISTERS
from pinchpoint.units import NANOSECONDS_PER_SECOND

__all__ = ["STACK_BYTES", "PerfError", "RawSample", "Records", "ThreadEvent", "parse_records"]

SYS_PERF_EVENT_OPEN = 298
"""arch/x86/entry/syscalls/syscall_64.tbl."""
MACHINE = "x86_64"
PERF_TYPE_SOFTWARE, PERF_COUNT_SW_CPU_CLOCK = 1, 0
PERF_FLAG_FD_CLOEXEC = 8
SAMPLE_TID, SAMPLE_CALLCHAIN, SAMPLE_REGS_USER, SAMPLE_STACK_USER = 1 << 1, 1 << 5, 1 << 12, 1 << 13
DISABLED, EXCLUDE_CALLCHAIN_USER = 1 << 0, 1 << 22
"""Bits of ``struct perf_event_attr``; the size of its third version has all that is needed (Linux 3.7)."""
ATTRIBUTES = struct.Struct("<IIQQQQQIIQQQQIi")
RECORD_LOST, RECORD_SAMPLE = 2, 9
HEADER = struct.Struct("<IHH")
IOC_ENABLE = 0x2400
DATA_HEAD = 1024
"""Offset of ``data_head`` in ``struct perf_event_mmap_page``; ``data_tail`` follows."""
USER_REGISTERS = 0xFF01FF
"""Mask of ax to ip and r8 to r15 (arch/x86/include/uapi/asm/perf_regs.h). All of them: the assembly of libcrypto keeps
its frame address in any register."""
IN_DWARF_ORDER = (0, 3, 2, 1, 4, 5, 6, 7, 9, 10, 11, 12, 13, 14, 15, 16, 8)
"""Where each register in DWARF's order is among those of a sample."""
STACK_BYTES = 16384
"""Bytes of the user stack that are copied: a walk ends where the copy does."""
RING_BYTES = 256 << 10
"""15 samples: 0.3 s at 49 Hz."""
CONTEXT_MAX = (1 << 64) - 4095
"""Values in a call chain from here on are marks (PERF_CONTEXT_MAX)."""
MAX_KERNEL_FRAMES = 127
"""Frames of the kernel that are kept (kernel.perf_event_max_stack is 127 by default)."""


class PerfError(Exception):
    """Perf events can't be used here, or not on this thread; the message says why."""


class RawSample(NamedTuple):
    """One sample as the kernel wrote it."""

    tid: int
    kernel: tuple[int, ...]
    """Addresses in the kernel, innermost first."""
    registers: tuple[int, ...]
    """User registers in DWARF's order; empty for a thread of the kernel."""
    stack: bytes
    """The user stack from the stack pointer on: never keep it."""


class Records(NamedTuple):
    """What was read from a ring."""

    samples: list[RawSample]
    lost: int
    """Samples for which the ring had no room."""


def parse_records(raw: bytes) -> Records:
    """Return the samples among the records of a ring; a damaged record ends it."""
    samples = []
    lost = at = 0
    while at + HEADER.size <= len(raw):
        type_, _, size = HEADER.unpack_from(raw, at)
        if size < HEADER.size or at + size > len(raw):
            break
        body = raw[at + HEADER.size : at + size]
        at += size
        if type_ == RECORD_LOST and len(body) >= 16:
            lost += int.from_bytes(body[8:16], "little")
        elif type_ == RECORD_SAMPLE:
            try:
                samples.append(_sample(body))
            except (struct.error, OverflowError):  # a length that leads beyond the record, or beyond any
                lost += 1
    return Records(samples, lost)


def _sample(body: bytes) -> RawSample:
    _, tid, depth = struct.unpack_from("<IIQ", body)
    at = 16
    kept = min(depth, len(body) // 8)
    chain = struct.unpack_from(f"<{kept}Q", body, at)
    kernel = tuple(address for address in chain if address < CONTEXT_MAX)[:MAX_KERNEL_FRAMES]
    at += 8 * depth
    (abi,) = struct.unpack_from("<Q", body, at)
    at += 8
    registers: tuple[int, ...] = ()
    if abi:
        values = struct.unpack_from(f"<{REGISTERS}Q", body, at)
        registers = tuple(values[index] for index in IN_DWARF_ORDER)
        at += 8 * REGISTERS
    (size,) = struct.unpack_from("<Q", body, at)
    at += 8
    stack = b""
    if size:
        (copied,) = struct.unpack_from("<Q", body, at + size)
        stack = body[at : at + min(size, copied)]
    return RawSample(tid, kernel, registers, stack)


class ThreadEvent:
    """The event of one thread. Raises PerfError, and OSError if the thread has ended or no descriptor is left."""

    def __init__(self, tid: int, frequency: float) -> None:
        if platform.machine() != MACHINE:
            raise PerfError(f"stacks can be read on {MACHINE} only, not on {platform.machine()}")
        self.tid = tid
        period = int(NANOSECONDS_PER_SECOND / frequency)
        wanted = SAMPLE_TID | SAMPLE_CALLCHAIN | SAMPLE_REGS_USER | SAMPLE_STACK_USER
        attributes = ATTRIBUTES.pack(
            PERF_TYPE_SOFTWARE, ATTRIBUTES.size, PERF_COUNT_SW_CPU_CLOCK, period, wanted, 0,
            DISABLED | EXCLUDE_CALLCHAIN_USER, 0, 0, 0, 0, 0, USER_REGISTERS, STACK_BYTES, 0,
        )  # fmt: skip
        self._fd = _perf_event_open(attributes, tid)
        self._page = mmap.PAGESIZE
        try:
            self._ring = mmap.mmap(self._fd, self._page + RING_BYTES)
        except OSError as error:
            os.close(self._fd)
            raise PerfError(f"no memory for samples: {error.strerror}") from error
        fcntl.ioctl(self._fd, IOC_ENABLE, 0)

    def read(self) -> bytes:
        """Return the records that have come since the last call."""
        head = int.from_bytes(self._ring[DATA_HEAD : DATA_HEAD + 8], "little")
        tail = int.from_bytes(self._ring[DATA_HEAD + 8 : DATA_HEAD + 16], "little")
        begin, size = self._page + tail % RING_BYTES, head - tail
        end = self._page + RING_BYTES
        raw = self._ring[begin : min(begin + size, end)]
        if begin + size > end:
            raw += self._ring[self._page : begin + size - RING_BYTES]
        self._ring[DATA_HEAD + 8 : DATA_HEAD + 16] = head.to_bytes(8, "little")
        return raw

    def close(self) -> None:
        """End it."""
        self._ring.close()
        os.close(self._fd)


def _perf_event_open(attributes: bytes, tid: int) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    buffer = ctypes.create_string_buffer(attributes, len(attributes))
    fd: int = libc.syscall(
        ctypes.c_long(SYS_PERF_EVENT_OPEN),
        buffer,
        ctypes.c_int(tid),
        ctypes.c_int(-1),
        ctypes.c_int(-1),
        ctypes.c_ulong(PERF_FLAG_FD_CLOEXEC),
    )
    if fd < 0:
        code = ctypes.get_errno()
        if code in (errno.ESRCH, errno.EMFILE, errno.ENFILE):
            raise OSError(code, os.strerror(code))
        raise PerfError(_refusal(code))
    return fd


def _refusal(code: int) -> str:
    if code in (errno.EACCES, errno.EPERM):
        paranoid = _paranoid()
        return f"perf_event_open is refused: no CAP_PERFMON{paranoid}, or a seccomp filter, security module or lockdown"
    if code == errno.ENOSYS:
        return "this kernel has no perf events, or a seccomp filter hides them"
    return f"perf_event_open: {os.strerror(code)}"


def _paranoid() -> str:
    try:
        return f" (kernel.perf_event_paranoid is {Path('/proc/sys/kernel/perf_event_paranoid').read_text().strip()})"
    except OSError:
        return ""
