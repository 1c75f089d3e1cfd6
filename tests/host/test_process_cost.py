from __future__ import annotations

import mmap
import os
import signal
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinchpoint.host.process_cost import cpu_seconds, parse_private, private_bytes
from pinchpoint.host.procfs import FormatError

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
