"""A host full of threads: processes that are named like Ceph's daemons, a benchmark and bystanders, and do little.

Every process is a Python interpreter whose threads sleep, but for a few that wake up often, as messengers do.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

__all__ = ["CEPH_HOST", "Group", "running"]

Group = tuple[int, str, str, int]
"""Number of processes, name of each, NAME=NUMBER of their threads, and how many of these are active."""

# Threads of a Ceph 16.2.15 OSD (59) and MDS (26) beside their leaders, as counted on a real cluster.
OSD = (
    "safe_timer=8 ms_dispatch=7 ms_local=7 tp_osd_tp=5 ceph-osd=2 io_context_pool=2 fn_anonymous=2 bstore_aio=2 "
    "bstore_discard=2 bstore_kv_sync=1 bstore_kv_final=1 bstore_mempool=1 cfin=1 finisher=1 OpHistorySvc=1 "
    "osd_srv_agent=1 osd_srv_heartbt=1 rocksdb:low0=1 rocksdb:low1=1 rocksdb:high0=1 rocksdb:dump_st=1 "
    "rocksdb:pst_st=1 msgr-worker-0=1 msgr-worker-1=1 msgr-worker-2=1 log=1 service=1 signal_handler=1 "
    "admin_socket=1 ceph_timer=1"
)
MDS = (
    "safe_timer=4 ms_dispatch=4 io_context_pool=2 ceph-mds=1 signal_handler=1 service=1 msgr-worker-0=1 "
    "msgr-worker-1=1 msgr-worker-2=1 ms_local=1 mds_rank_progr=1 md_submit=1 log=1 ceph_timer=1 admin_socket=1 "
    "PQ_Finisher=1 OpHistorySvc=1 MR_Finisher=1"
)

CEPH_HOST: list[Group] = [
    (8, "ceph-osd", OSD, 6),
    (4, "ceph-mds", MDS, 4),
    (4, "ior", "ior=1", 1),
    (34, "bystander", "bystander=100", 2),
]
"""8 OSDs, 4 MDSs, 4 benchmark processes and 34 processes of 100 threads that are nobody's concern: 4,020 threads."""

PR_SET_NAME = 15
ACTIVE_PERIOD = 0.02
"""Seconds that an active thread sleeps between two wake-ups."""


def _name(name: str) -> None:
    ctypes.CDLL(None).prctl(PR_SET_NAME, name.encode(), 0, 0, 0)


def _main(name: str, active: int, *threads: str) -> None:
    """Be one process of the workload."""
    threading.stack_size(64 << 10)
    wake = threading.Event()
    left = active

    def body(thread: str, busy: bool) -> None:
        _name(thread)
        while busy and not wake.wait(ACTIVE_PERIOD):
            pass
        wake.wait()

    for word in threads:
        thread, _, count = word.rpartition("=")
        for _ in range(int(count)):
            threading.Thread(target=body, args=(thread, left > 0), daemon=True).start()
            left -= 1
    _name(name)
    print("ready", flush=True)
    sys.stdin.read()


@contextmanager
def running(groups: Sequence[Group]) -> Iterator[int]:
    """Run the workload and give its number of threads."""
    processes = []
    try:
        for count, name, threads, active in groups:
            for index in range(count):
                # The index is where a Ceph daemon has its id.
                command = [sys.executable, "-S", "-E", __file__, name, str(active), *threads.split(), "-i", str(index)]
                processes.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE))
        for process in processes:
            assert process.stdout is not None
            process.stdout.readline()
        yield sum(len(os.listdir(f"/proc/{process.pid}/task")) for process in processes)
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.communicate()


if __name__ == "__main__":
    arguments = sys.argv[1 : sys.argv.index("-i")]
    _main(arguments[0], int(arguments[1]), *arguments[2:])
