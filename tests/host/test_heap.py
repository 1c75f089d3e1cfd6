"""How many heaps a process with threads has."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import re, sys, threading
from pinchpoint.host.heap import share_one_heap
if sys.argv[1] == "shared":
    share_one_heap()
kept, ready = [], threading.Barrier(9)
def work():
    kept.append(bytearray(4096))
    ready.wait()
    ready.wait()
for _ in range(8):
    threading.Thread(target=work, daemon=True).start()
ready.wait()
# Heaps other than the first begin at multiples of 64 MiB (HEAP_MAX_SIZE, malloc/arena.c, glibc 2.36).
starts = (int(line.split("-")[0], 16) for line in open("/proc/self/maps") if " rw-p " in line)
print(sum(start % (64 << 20) == 0 for start in starts))
"""


@pytest.mark.parametrize(("how", "several"), [("shared", False), ("default", True)])
def test_threads_that_share_one_heap_have_none_of_their_own(how: str, several: bool) -> None:
    found = subprocess.run([sys.executable, "-c", PROGRAM, how], capture_output=True, text=True, check=True)

    assert (int(found.stdout) > 0) == several
