"""A host full of threads: processes named like Ceph's daemons, a benchmark and bystanders, which do little.

Every process is ``threads.c``, whose threads sleep, except for some that wake up often, as messengers do. Without a
compiler it is a Python interpreter that does the same, for only a few hundred wake-ups in a sample.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from compiled import MissingError, compiled

__all__ = ["CEPH_HOST", "EVERY_SAMPLE", "Group", "ceph_host", "running"]


class Group(NamedTuple):
    """A number of equal processes."""

    processes: int
    name: str
    threads: str
    """NAME=NUMBER of the threads of each, apart from its leader."""
    active: int = 0
    """Number of these that wake up."""
    hz: float = 50.0
    """Wake-ups of each of those per second."""
    duty: float = 0.0
    """Share of a CPU that it uses, apart from the cost of waking up."""

    @property
    def size(self) -> int:
        """Threads of each of its processes."""
        return 1 + sum(int(word.rpartition("=")[2]) for word in self.threads.split())


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
CEPH_HOST = [Group(8, "ceph-osd", OSD, 6), Group(4, "ceph-mds", MDS, 4), Group(4, "ior", "ior=1", 1)]
"""8 OSDs, 4 MDSs and 4 benchmark processes: 584 threads."""
CROWD = 100
"""Threads of a process that belongs to no role."""
EVERY_SAMPLE = 12.5
"""Wake-ups per second with which a thread runs between any two samples at 10 Hz."""

PR_SET_NAME = 15


def ceph_host(threads: int, awake: int | None = None, *, hz: float = EVERY_SAMPLE, duty: float = 0.0) -> list[Group]:
    """Return a host of about that many threads: `CEPH_HOST`, and bystanders in processes of a hundred threads.

    Two bystanders of each process wake up 50 times a second, and so do some threads of the daemons. With `awake`
    it is that many threads of the host instead, at `hz` and `duty`; the leaders of processes always sleep.
    """
    missing = threads - sum(group.processes * group.size for group in CEPH_HOST)
    if missing < 0:
        raise ValueError(f"the daemons alone have {threads - missing} threads")
    crowds, rest = divmod(missing, CROWD)
    groups = [*CEPH_HOST, Group(crowds, "bystander", f"bystander={CROWD - 1}", 2)]
    if rest:
        groups.append(Group(1, "bystander", f"bystander={rest - 1}"))
    if awake is None:
        return groups
    chosen = []
    # The names do not matter to programs that read all threads: bystanders first.
    for group in reversed(groups):
        for _ in range(group.processes):
            active = min(awake, group.size - 1)
            awake -= active
            chosen.append(group._replace(processes=1, active=active, hz=hz, duty=duty))
    return chosen[::-1]


def _name(name: str) -> None:
    ctypes.CDLL(None).prctl(PR_SET_NAME, name.encode(), 0, 0, 0)


def _main(name: str, active: int, hz: float, duty: float, *threads: str) -> None:
    """Act as one process of the workload, as threads.c does."""
    threading.stack_size(64 << 10)
    wake = threading.Event()
    there = threading.Barrier(1 + sum(int(word.rpartition("=")[2]) for word in threads))
    left = active

    def body(thread: str, busy: bool) -> None:
        _name(thread)
        there.wait()
        while busy and not wake.wait(1 / hz):
            end = time.thread_time() + duty / hz
            while time.thread_time() < end:
                pass
        wake.wait()

    for word in threads:
        thread, _, count = word.rpartition("=")
        for _ in range(int(count)):
            threading.Thread(target=body, args=(thread, left > 0), daemon=True).start()
            left -= 1
    _name(name)
    there.wait()
    print("ready", flush=True)
    sys.stdin.read()


@contextmanager
def running(groups: Sequence[Group]) -> Iterator[int]:
    """Run the workload and yield its number of threads."""
    arguments: list[str] = []
    try:
        program = compiled("threads")
    except MissingError:
        program, arguments = Path(sys.executable).resolve(), ["-S", "-E", __file__]
    processes = []
    folder = tempfile.mkdtemp(prefix="bench-")
    try:
        for group in groups:
            # What does not run a program of a daemon's name is not taken for that daemon.
            named = Path(folder, group.name)
            if not named.exists():
                shutil.copyfile(program, named)
                named.chmod(0o755)
            words = [group.name, *map(str, (group.active, group.hz, group.duty)), *group.threads.split()]
            for index in range(group.processes):
                # The index stands where a Ceph daemon has its id.
                command = [str(named), *arguments, *words, "-i", str(index)]
                processes.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE))
        for process in processes:
            assert process.stdout is not None
            if not process.stdout.readline():
                raise MissingError("this machine allows too few threads")
        yield sum(len(os.listdir(f"/proc/{process.pid}/task")) for process in processes)
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.communicate()
        shutil.rmtree(folder)


if __name__ == "__main__":
    arguments = sys.argv[1 : sys.argv.index("-i")]
    _main(arguments[0], int(arguments[1]), float(arguments[2]), float(arguments[3]), *arguments[4:])
