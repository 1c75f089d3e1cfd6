"""What kernel stacks would cost the waits probe through BPF, beside the files that it reads: the section "stacks".

Both ways look in turns at the same threads of a process that counts as a benchmark: what each used since the last look,
and the stacks of those that ran. The BPF program does the minimum (stacks.bpf.c), without what a source would need: new
threads, reused ids, PID namespaces. Threads in known waits show whether the stacks agree. Costs are CPU time of the
looking thread.
"""

from __future__ import annotations

import os
import shutil
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from compiled import HERE, MissingError
from page import machine, parser, publish, table
from pinchpoint.bpf.libbpf import OBJECTS, BpfError, Loaded, load
from pinchpoint.build import build_host
from pinchpoint.config import Config
from pinchpoint.host.procfs import read_bytes
from pinchpoint.probes.waits import CEPH_NAME_SETTLED_SECONDS, Waits
from pinchpoint.threads.kernel_stacks import StackFile
from pinchpoint.threads.task_source import ProcfsSource, raise_file_limit
from pinchpoint.waits.stack_rules import Stacks, load_waits, parse_stack
from workload import EVERY_SAMPLE, Group, running

PROC = Path("/proc")
THREADS = (1, 8, 32, 256, 1000)
INTERVAL = 0.1
BEGUN = CEPH_NAME_SETTLED_SECONDS + 1.0
"""Seconds until threads have their final names and the probe was told which run the processes belong to: both are asked
for again and again until then."""
THREAD = struct.Struct("=IiQQ512x")
"""``struct thread`` of stacks.bpf.c: tid, size, run, wait, frames."""
FRAMES = 24
"""Offset of the frames."""
NUMBER = struct.Struct("=II")
ADDRESS = struct.Struct("=Q")
NAME = NUMBER.size + ADDRESS.size
"""Offset of the name of an address."""
ENTRIES = 1024
"""Maximum number of threads."""
KINDS = """
import ctypes, mmap, os, select, sys, threading, time
directory = sys.argv[1]
name = ctypes.CDLL(None).prctl
lock = threading.Lock()
lock.acquire()
there = threading.Barrier(7)
def futex(): lock.acquire()
def pipe(): os.read(os.pipe()[0], 1)
def sleep(): time.sleep(0.003)
def epoll(waiter=select.epoll()): waiter.poll(0.005)
def fsync(file=os.open(directory + "/fsync", os.O_RDWR | os.O_CREAT)):
    os.pwrite(file, bytes(4096), 0)
    os.fsync(file)
def direct(file=os.open(directory + "/direct", os.O_RDWR | os.O_CREAT | os.O_DIRECT), block=mmap.mmap(-1, 65536)):
    os.pwritev(file, [block], 0)
def endless(kind):
    name(15, kind.__name__.encode(), 0, 0, 0)  # PR_SET_NAME
    there.wait()
    while True:
        kind()
for kind in (futex, pipe, sleep, epoll, fsync, direct):
    threading.Thread(target=endless, args=(kind,), daemon=True).start()
there.wait()
print(flush=True)
sys.stdin.read()
"""


class BpfStacks:
    """Looks at threads by BPF."""

    def __init__(self, loaded: Loaded) -> None:
        self._loaded = loaded
        self._asked = loaded.memory(".bss")
        self._threads = loaded.memory("threads")
        self._seen = memoryview(self._threads)
        self._number = 0
        self._names: dict[bytes, bytes] = {}
        self._texts: dict[bytes, bytes] = {}

    def follow(self, tids: list[int]) -> None:
        """Look at these threads from now on."""
        self._number = min(len(tids), ENTRIES)
        for number, tid in enumerate(tids[:ENTRIES]):
            THREAD.pack_into(self._threads, number * THREAD.size, tid, -1, 0, 0)

    def look(self, *, every: bool = False) -> Iterator[tuple[int, int, int, bytes]]:
        """Yield the use so far of the threads that ran, and their stacks as procfs writes them."""
        NUMBER.pack_into(self._asked, 0, self._number, every)
        self._loaded.run("look")
        at = FRAMES
        for tid, size, run, wait in THREAD.iter_unpack(self._seen[: self._number * THREAD.size]):
            if size >= 0:
                yield tid, run, wait, self._text(self._threads[at : at + size])
            at += THREAD.size

    def _text(self, frames: bytes) -> bytes:
        text = self._texts.get(frames)
        if text is None:
            addresses = [frames[at : at + ADDRESS.size] for at in range(0, len(frames), ADDRESS.size)]
            text = self._texts[frames] = b"".join(b"[<0>] %b\n" % self._name(address) for address in addresses)
        return text

    def _name(self, address: bytes) -> bytes:
        if address not in self._names:
            self._asked[NUMBER.size : NAME] = address
            length = self._loaded.run("name")
            self._names[address] = self._asked[NAME : NAME + length - 1]
        return self._names[address]


@contextmanager
def bpf() -> Iterator[BpfStacks]:
    """Load the BPF program for stacks. Raises MissingError, BpfError."""
    if shutil.which("clang") is None:
        raise MissingError("no clang")
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        shutil.copy(HERE / "stacks.bpf.c", folder)
        shutil.copy(OBJECTS / "Makefile", folder)
        done = subprocess.run(["make", "-s", "-C", folder], capture_output=True, text=True)
        if done.returncode:
            raise MissingError(f"stacks.bpf.c is not compiled: {done.stderr.splitlines()[0]}")
        loaded = load("stacks", folder=Path(folder))
    try:
        yield BpfStacks(loaded)
    finally:
        loaded.close()


def spent(begin: int) -> float:
    """Return the microseconds of CPU that this thread has used since then."""
    return (time.thread_time_ns() - begin) / 1e3


def costs(found: BpfStacks, pid: int, seconds: float) -> dict[str, float]:
    """Return the microseconds of a look at the threads of a process: the median of each way, and of its parts."""
    config = Config()
    config.path.runs = os.devnull  # no directory of markers
    probe = Waits(build_host(config))
    rules = load_waits()
    source, stacks, others = ProcfsSource(PROC, settled=CEPH_NAME_SETTLED_SECONDS), Stacks(rules), Stacks(rules)
    source.follow([pid], time.monotonic())
    files = {task.tid: StackFile(f"{PROC}/{pid}/task/{task.tid}") for task in source.tasks()}
    found.follow(list(files))
    took: dict[str, list[float]] = {"times": [], "stacks": [], "files": [], "bpf": [], "probe": []}
    end = time.monotonic() + BEGUN + seconds
    while (now := time.monotonic()) < end:
        begin = time.thread_time_ns()
        used = source.sample(now, all_tasks=True)
        times = spent(begin)
        begin = time.thread_time_ns()
        for use in used:
            stacks.look(files[use.task.tid].read() or b"", now)
        read = spent(begin)
        time.sleep(INTERVAL / 3)
        begin = time.thread_time_ns()
        for _, _, _, text in found.look():
            others.look(text, now)
        by_bpf = spent(begin)
        time.sleep(INTERVAL / 3)
        probe.host.processes.current(time.monotonic())  # the exporter makes this pass anyway
        begin = time.thread_time_ns()
        probe.sample(time.monotonic())
        whole = spent(begin)
        time.sleep(INTERVAL / 3)
        if now > end - seconds:
            for name, value in zip(took, (times, read, times + read, by_bpf, whole), strict=True):
                took[name].append(value)
    probe.close()
    source.close()
    for file in files.values():
        file.close()
    return {name: statistics.median(values) for name, values in took.items()}


@contextmanager
def kinds() -> Iterator[dict[str, tuple[int, int]]]:
    """Run a thread in each of some waits: process and thread by the kind of wait."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:  # a disk: /tmp may be in memory
        processes = [
            subprocess.Popen([sys.executable, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            for words in (["-c", KINDS, folder], ["-c", "while True: pass"], ["-c", "import time; time.sleep(9999)"])
        ]
        waiting, busy, stopped = processes
        try:
            assert waiting.stdout is not None
            waiting.stdout.readline()
            os.kill(stopped.pid, signal.SIGSTOP)
            named = {
                read_bytes(f"{PROC}/{waiting.pid}/task/{thread.id}/comm").decode().strip(): (waiting.pid, thread.id)
                for thread in psutil.Process(waiting.pid).threads()
                if thread.id != waiting.pid
            }
            yield {**named, "running": (busy.pid, busy.pid), "stopped": (stopped.pid, stopped.pid)}
        finally:
            for process in processes:
                process.kill()
                process.wait()


def compare(found: BpfStacks, looks: int) -> list[list[str]]:
    """Return, by the kind of wait, how often both ways agreed on threads that had not run in between."""
    rules = load_waits()
    counts: dict[str, Counter[str]] = {}
    with kinds() as threads:
        files = {}
        for kind, (pid, tid) in threads.items():
            files[tid] = kind, StackFile(f"{PROC}/{pid}/task/{tid}"), f"{PROC}/{pid}/task/{tid}/schedstat"
            counts[kind] = Counter()
        for _ in range(looks):
            time.sleep(0.001)
            for tid, (kind, file, times) in files.items():
                found.follow([tid])
                before = read_bytes(times), file.read()
                by_bpf = next((text for *_, text in found.look(every=True)), None)
                after = read_bytes(times), file.read()
                text = before[1]
                if text is None or by_bpf is None:
                    continue
                count = counts[kind]
                count["looks"] += 1
                count["same class"] += rules.decide(parse_stack(text)) == rules.decide(parse_stack(by_bpf))
                if (before[0], text) == (after[0], after[1]):
                    count["still"] += 1
                    count["same"] += text == by_bpf
        for _, file, _ in files.values():
            file.close()
    return [
        [f"`{kind}`", *(f"{count[what]}" for what in ("still", "same", "looks", "same class"))]
        for kind, count in sorted(counts.items())
    ]


def measure(seconds: float, looks: int) -> str:
    """Return the section. Raises MissingError, BpfError."""
    rows = []
    raise_file_limit()
    with bpf() as found:
        for awake in (False, True):
            for threads in THREADS:
                with running([Group(1, "ior", f"ior={threads}", threads * awake, EVERY_SAMPLE)]):
                    pid = next(child.pid for child in psutil.Process().children() if child.name() == "ior")
                    cost = costs(found, pid, seconds)
                rest = cost["probe"] - cost["files"] + cost["bpf"]
                rows.append([
                    f"{threads}", "run" if awake else "sleep",
                    *(f"{cost[name]:.0f}" for name in ("times", "stacks", "bpf")),
                    f"{cost['files'] / cost['bpf']:.1f}", f"{cost['probe'] / 1e4 / INTERVAL:.2f}",
                    f"{rest / 1e4 / INTERVAL:.2f}", f"{cost['probe'] / rest:.1f}",
                ])  # fmt: skip
        right = compare(found, looks)
    head = ["threads", "they", "`schedstat`", "`stack`", "BPF", "ratio", "probe, %", "estimate, %", "ratio"]
    return f"""
Microseconds of CPU for a look at a process' threads, of which all or none ran since the last one: by files and by BPF.
Beside it the whole probe in per cent of a CPU at {1 / INTERVAL:.0f} looks a second, and an estimate of it with BPF:
less the files, and the pass added.

{table(head, rows)}
A stack by BPF between two reads of the file: how often the thread was still meanwhile, and the stack the same; and how
often the class was that of the first read, still or not.

{table(["wait", "still", "the same stack", "looks", "the same class"], right)}
{machine()}
"""


def main() -> None:
    """Measure and write the section."""
    options = parser(__doc__)
    options.add_argument("--seconds", type=float, default=4.0, help="for each number of threads")
    options.add_argument("--looks", type=int, default=2000, help="at each kind of wait")
    arguments = options.parse_args()
    try:
        body = measure(arguments.seconds, arguments.looks)
    except (MissingError, BpfError, OSError) as error:
        body = f"Not measured: {error}"
    publish("stacks", body, arguments)


if __name__ == "__main__":
    main()
