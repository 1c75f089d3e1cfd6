from __future__ import annotations

import mmap
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from machine import Machine, stat_line
from pinchpoint.host.process_cost import CpuClocks, cpu_seconds, parse_private, private_bytes
from pinchpoint.host.procfs import FormatError, parse_stat, read_bytes
from pinchpoint.units import TICKS_PER_SECOND
from polling import until

ROLLUP = b"""55d0-7ffe ---p 00000000 00:00 0    [rollup]
Rss:               25772 kB
Pss:                9498 kB
Shared_Clean:      10000 kB
Private_Clean:         8 kB
Private_Dirty:      3792 kB
"""


def test_cpu_time_of_a_process_is_what_it_says_itself() -> None:
    before = time.process_time()
    found = cpu_seconds(os.getpid())

    assert before <= found <= time.process_time()


def test_private_memory_is_clean_and_dirty() -> None:
    assert parse_private(ROLLUP) == 3800 << 10


@given(st.binary())
def test_any_other_text_has_none(raw: bytes) -> None:
    with pytest.raises(FormatError):
        parse_private(raw)


def test_a_forked_process_has_only_what_it_has_written() -> None:
    shared = bytearray(os.urandom(1 << 20) * 32)
    pid = os.fork()
    if not pid:
        own = mmap.mmap(-1, 8 << 20)
        own.write(bytes(8 << 20))
        os.kill(os.getpid(), signal.SIGSTOP)
        os._exit(0)
    try:
        os.waitpid(pid, os.WUNTRACED)
        found = private_bytes(pid)
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)

    assert 8 << 20 <= found < 32 << 20
    assert len(shared) == 32 << 20


def test_clocks_say_what_stat_says_only_finer() -> None:
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as process:
        try:
            assert until(10, lambda: CpuClocks(Path("/proc")).nanoseconds(process.pid) > 50_000_000)
            process.send_signal(signal.SIGSTOP)
            assert until(10, lambda: parse_stat(read_bytes(f"/proc/{process.pid}/stat")).state == "T")
            stat = parse_stat(read_bytes(f"/proc/{process.pid}/stat"))
            ticks = CpuClocks(Path("/proc")).nanoseconds(process.pid) * TICKS_PER_SECOND / 1e9
        finally:
            process.kill()

    assert stat.utime + stat.stime == pytest.approx(ticks, abs=2)


def test_of_a_procfs_that_shows_other_numbers_they_read_stat(machine: Machine) -> None:
    machine.process(os.getpid(), "other")
    machine.write(f"proc/{os.getpid()}/stat", stat_line(os.getpid(), "other", utime=TICKS_PER_SECOND - 30, stime=30))

    assert CpuClocks(machine.procfs).nanoseconds(os.getpid()) == 1_000_000_000


def test_a_process_that_is_gone_has_no_clock() -> None:
    with pytest.raises(OSError, match="Invalid argument"):
        CpuClocks(Path("/proc")).nanoseconds((1 << 22) + 1)
