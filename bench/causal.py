"""Is a suspect the limit? Holds its threads for a millisecond again and again, and sees what that costs the benchmark.

A limit that is held for a share of the time loses that share of its capacity, and so the whole loses it: the elasticity
is 1. What is not the limit catches up: 0. Only threads are held (ptrace(2): if the holder dies, the kernel lets them
go), for a quarter of the response time at most, in blocks with and without holds in random order; a null control goes
through the same blocks and holds nothing. Each case has a limit that is known by how it is made: its threads have a CPU
of their own and more work than it can do.

This is an experiment about a method, not a part of the product: docs/experiments.md says what came of it.
"""

from __future__ import annotations

import contextlib
import json
import math
import mmap
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from lab import loads
from lab.cluster import PYTHON, Cluster, Daemon, lacking
from lab.locks import TAKERS, stopped
from page import machine, parser, publish, table
from pinchpoint.diagnosis.student import quantile
from pinchpoint.host.confine import end_with_parent

PAGE = Path(__file__).resolve().parent.parent / "docs" / "experiments.md"
SHARE = 0.1
"""Share of the time for which a suspect is held."""
HOLD_SECONDS = 1e-3
BLOCK_SECONDS, SETTLE_SECONDS = 0.5, 0.05
PAIRS = 16
MAX_DEVIATIONS = 3.0
"""Pairs that are further from the median than so many median absolute deviations are pulled in to there."""
LIMIT, INNOCENT = 0.5, 0.35
"""An interval above the first is that of a limit, one below the second that of an innocent."""
MAX_NULL = 0.2
"""Half-width around 0 within which the null control's mean has to be."""
MIN_BUSY = 0.85
"""Share of its CPU that a known limit uses, or it is none."""
OTHERS, OWN = 0, 1
"""The CPUs: one for all the rest, one for the limit."""
NULL = "null control"

Count = Callable[[], float]
"""Returns how many operations the benchmark has done."""


@dataclass(frozen=True)
class Case:
    """A load whose limit is known."""

    name: str
    limit: str
    suspects: Mapping[str, Sequence[int]]
    """The threads of each suspect, the limit among them."""
    count: Count


@dataclass(frozen=True)
class Found:
    """What holding a suspect cost."""

    mean: float
    half: float
    """Half-width of the 95 % interval of the mean."""
    held: float
    """Share of the time for which it was held."""
    longest: float
    """Longest hold in seconds."""
    rate: float
    """Mean rate without holds, in operations a second."""

    @property
    def word(self) -> str:
        """What the interval shows."""
        if self.mean - self.half > LIMIT:
            return "limit"
        return "innocent" if self.mean + self.half < INNOCENT else "undecided"


class Holder:
    """Another process that holds threads: it is the tracer, and has a real-time priority."""

    def __init__(self) -> None:
        own = os.getpid()
        ask, self._ask = os.pipe()
        self._answers, answer = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            end_with_parent(own)
            os.close(self._ask)
            with contextlib.suppress(OSError):
                os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
            with open(ask) as asked:
                for line in asked:
                    tids, seconds = json.loads(line)
                    os.write(answer, f"{json.dumps(_hold(tids, seconds))}\n".encode())
            os._exit(0)
        os.close(ask)
        os.close(answer)
        self._said = os.fdopen(self._answers)

    def begin(self, tids: Sequence[int], seconds: float) -> None:
        """Hold these threads for `SHARE` of so many seconds."""
        os.write(self._ask, f"{json.dumps([list(tids), seconds])}\n".encode())

    def end(self) -> tuple[float, float]:
        """Return for how long they were held, in all and at most, in seconds."""
        held, longest = json.loads(self._said.readline())
        return held, longest

    def close(self) -> None:
        """End it."""
        os.close(self._ask)
        self._said.close()
        os.waitpid(self.pid, 0)


def _hold(tids: Sequence[int], seconds: float) -> tuple[float, float]:
    until = time.monotonic() + seconds
    held = longest = 0.0
    while time.monotonic() < until:
        if not tids:
            time.sleep(HOLD_SECONDS / SHARE)
            continue
        with contextlib.ExitStack() as stack:
            for tid in tids:
                with contextlib.suppress(ProcessLookupError):  # it has ended
                    stack.enter_context(stopped(tid))
            began = time.monotonic()
            time.sleep(HOLD_SECONDS)
            lasted = time.monotonic() - began
        held, longest = held + lasted, max(longest, lasted)
        time.sleep(lasted * (1 / SHARE - 1) * random.uniform(0.7, 1.3))
    return held, longest


def block(case: Case, holder: Holder, tids: Sequence[int]) -> tuple[float, float, float]:
    """Return the rate in a block, the share of it for which the threads were held, and the longest hold."""
    whole = SETTLE_SECONDS + BLOCK_SECONDS
    holder.begin(tids, whole)
    time.sleep(SETTLE_SECONDS)
    began, before = time.monotonic(), case.count()
    time.sleep(BLOCK_SECONDS - 0.02)
    rate = (case.count() - before) / (time.monotonic() - began)
    held, longest = holder.end()
    return rate, held / whole, longest


def measured(case: Case) -> dict[str, Found]:
    """Hold each suspect in turn, and nothing; return what each cost."""
    suspects: dict[str, Sequence[int]] = {**case.suspects, NULL: ()}
    costs: dict[str, list[float]] = {name: [] for name in suspects}
    rates: list[float] = []
    shares: dict[str, list[float]] = {name: [] for name in suspects}
    longest = dict.fromkeys(suspects, 0.0)
    holder = Holder()
    try:
        for _ in range(PAIRS):
            for name in random.sample(list(suspects), len(suspects)):
                sides = {}
                for on in random.sample((True, False), 2):
                    sides[on] = block(case, holder, suspects[name] if on else ())
                share = sides[True][1] if suspects[name] else SHARE
                rates.append(sides[False][0])
                shares[name].append(share)
                longest[name] = max(longest[name], sides[True][2])
                if sides[False][0] and share:
                    costs[name].append((1 - sides[True][0] / sides[False][0]) / share)
    finally:
        holder.close()
    return {
        name: Found(*_mean(costs[name]), statistics.fmean(shares[name]), longest[name], statistics.fmean(rates))
        for name in suspects
    }


def _mean(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean of values without far outliers, and the half-width of its 95 % interval."""
    middle = statistics.median(values)
    limit = MAX_DEVIATIONS * 1.4826 * statistics.median(abs(value - middle) for value in values)
    pulled = [min(max(value, middle - limit), middle + limit) for value in values]
    return statistics.fmean(pulled), quantile(0.05, len(pulled) - 1) * statistics.stdev(pulled) / math.sqrt(len(pulled))


def threads(pid: int, *names: str) -> list[int]:
    """Return the threads of a process whose names begin so; all of them without names."""
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):
            if not names or (task / "comm").read_text().startswith(names):
                found.append(int(task.name))
    return found


def move(tids: Sequence[int], cpu: int) -> None:
    """Let threads run on one CPU only."""
    for tid in tids:
        with contextlib.suppress(ProcessLookupError):
            os.sched_setaffinity(tid, {cpu})


def cpu_seconds(tids: Sequence[int]) -> float:
    """Return the CPU time of threads so far."""
    found = 0
    for tid in tids:
        with contextlib.suppress(OSError):
            found += int(Path(f"/proc/{tid}/schedstat").read_text().split()[0])
    return found / 1e9


def busy(tids: Sequence[int], seconds: float = 2.0) -> float:
    """Return the share of one CPU that threads use."""
    before, began = cpu_seconds(tids), time.monotonic()
    time.sleep(seconds)
    return (cpu_seconds(tids) - before) / (time.monotonic() - began)


def alone(limit: Sequence[int], *pids: int) -> None:
    """Give the threads of the limit a CPU of their own, and all others of these processes the other one."""
    for pid in pids:
        move([tid for tid in threads(pid) if tid not in limit], OTHERS)
    move(limit, OWN)


STAGE = """
import mmap, os, sys, time
cpu, ms, files = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3:]
os.sched_setaffinity(0, {cpu})
source, target = int(files[0]), int(files[1])
counter = memoryview(mmap.mmap(int(files[2]), 8)).cast("Q") if len(files) > 2 else None
while os.read(source, 1):
    end = time.thread_time() + ms / 1e3
    while time.thread_time() < end:
        pass
    if counter is not None:
        counter[0] += 1
    os.write(target, b"x")
"""
"""A stage of a pipeline: burns so many milliseconds of a CPU for each request."""


@contextlib.contextmanager
def pipeline() -> Iterator[Case]:
    """Three processes that pass four requests on in a ring; the second takes 1.8 ms for each, the others 0.4 ms."""
    pipes = [os.pipe() for _ in range(3)]
    counter = os.memfd_create("counter")
    os.ftruncate(counter, 8)
    shown = memoryview(mmap.mmap(counter, 8)).cast("Q")
    processes = {}
    for number, (name, ms) in enumerate({"A": 0.4, "B": 1.8, "C": 0.4}.items()):
        source, target = pipes[number][0], pipes[(number + 1) % 3][1]
        files = [source, target, *([counter] if name == "C" else [])]
        processes[name] = subprocess.Popen(
            [sys.executable, "-c", STAGE, str(OWN if name == "B" else OTHERS), str(ms), *map(str, files)],
            pass_fds=files,
        )
    os.write(pipes[0][1], b"xxxx")
    try:
        yield Case(
            "pipeline of three processes",
            "process B",
            {f"process {name}": [process.pid] for name, process in processes.items()},
            lambda: float(shown[0]),
        )
    finally:
        for process in processes.values():
            process.kill()
            process.wait()
        for pair in pipes:
            for end in pair:
                os.close(end)


NEIGHBOUR = """
import time
while True:
    end = time.thread_time() + 5e-3
    while time.thread_time() < end:
        pass
    time.sleep(5e-3)
"""
"""Uses half of a CPU."""
CHECKSUM = ("--verify=sha256", "--do_verify=0", "--verify_state_save=0")
"""Options of fio for a checksum of each block, and no file of its state in the working directory."""


@contextlib.contextmanager
def fio() -> Iterator[Case]:
    """One fio job that computes checksums, beside a process that uses half of the other CPU."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder, contextlib.ExitStack() as stack:
        job = ["fio", "--name=job", "--rw=randwrite", "--bs=16k", "--size=64m", "--time_based", "--runtime=600",
               "--ioengine=psync", "--thread", f"--directory={folder}", *CHECKSUM]  # fmt: skip
        processes = [
            subprocess.Popen(command, stdout=subprocess.DEVNULL) for command in (job, [sys.executable, "-c", NEIGHBOUR])
        ]
        for process in processes:
            stack.callback(process.wait)
            stack.callback(process.kill)
        time.sleep(2.0)
        worker = max(threads(processes[0].pid), key=lambda tid: cpu_seconds([tid]))
        alone([worker], *(process.pid for process in processes))

        def count() -> float:
            return float(psutil.Process(processes[0].pid).io_counters().write_count)

        neighbour = {"a busy neighbour": [processes[1].pid], "fio's main thread": [processes[0].pid]}
        yield Case("fio with sha256 in memory", "fio's job", {"fio's job": [worker], **neighbour}, count)


def counter(daemon: Daemon, logger: str, name: str) -> Count:
    """Return what reads a counter of a daemon."""
    return lambda: float(daemon.ask("perf dump", logger=logger)[logger][name])


def apart(cluster: Cluster, load: loads.Load, limit: Sequence[int]) -> None:
    """Give the limit a CPU of its own among the daemons and the load."""
    client = [load.pid, *(child.pid for child in psutil.Process(load.pid).children(recursive=True))]
    mounts = [mount.pid for mount in cluster.mounts]
    alone(limit, *(daemon.pid for daemon in cluster.daemons.values()), *mounts, *client)


ONE_WORKER = {"osd_op_num_shards": "1", "osd_op_num_threads_per_shard": "1", "ms_async_op_threads": "1"}
ZLIB = {
    "bluestore_compression_mode": "force", "bluestore_compression_algorithm": "zlib", "compressor_zlib_level": "9",
    "compressor_zlib_isal": "false",
}  # fmt: skip


@contextlib.contextmanager
def osd_worker() -> Iterator[Case]:
    """An OSD with one worker, which compresses what it writes."""
    options = {"osd": {**ONE_WORKER, **ZLIB}}
    with (
        Cluster(store="bluestore", options=options) as cluster,
        loads.rados_bench(cluster, seconds=900, threads=16, block=64 << 10) as load,
    ):
        osd = cluster.daemon("osd.0")
        time.sleep(3.0)
        suspects = {
            "osd.0 tp_osd_tp": threads(osd.pid, "tp_osd_tp"),
            "osd.0 msgr-worker": threads(osd.pid, "msgr-worker"),
            "osd.0 bstore_kv": threads(osd.pid, "bstore_kv"),
        }
        apart(cluster, load, suspects["osd.0 tp_osd_tp"])
        yield Case("rados bench on an OSD that compresses", "osd.0 tp_osd_tp", suspects, counter(osd, "osd", "op"))


@contextlib.contextmanager
def client() -> Iterator[Case]:
    """A job of fio on an image, which computes a checksum of each block."""
    with Cluster(options={"osd": ONE_WORKER}) as cluster:
        job = ["--thread", *CHECKSUM]
        with loads.fio_rbd(cluster, seconds=900, bs="64k", size="64M", iodepth=16, extra=job) as load:
            osd = cluster.daemon("osd.0")
            time.sleep(5.0)
            worker = [max(threads(load.pid, "fio"), key=lambda tid: cpu_seconds([tid]))]
            suspects = {
                "fio's job": worker,
                "osd.0 tp_osd_tp": threads(osd.pid, "tp_osd_tp"),
                "osd.0 msgr-worker": threads(osd.pid, "msgr-worker"),
            }
            apart(cluster, load, worker)
            yield Case("fio with sha256 on an image", "fio's job", suspects, counter(osd, "osd", "op"))


WALK = """
import os, random, sys, cephfs
for _ in range(5 if sys.argv[1] == "walk" else 0):
    if not os.fork():
        break
fs = cephfs.LibCephFS(conffile=os.environ["CEPH_CONF"])
fs.conf_set("client_cache_size", "16")
fs.mount()
if sys.argv[1] == "make":
    for number in range(30):
        fs.mkdir(f"/{number}", 0o755)
        for file in range(20):
            fs.close(fs.open(f"/{number}/{file}", "w", 0o644))
    fs.unmount()
while sys.argv[1] == "walk":
    fs.stat(f"/{random.randrange(30)}/{random.randrange(20)}")
"""
"""Clients of libcephfs that stat random files, and cache hardly any of the answers."""


DEBUGGING = {
    "debug_mds": "0/20", "debug_mds_locker": "0/20", "mds_debug_subtrees": "true", "ms_async_op_threads": "1",
}  # fmt: skip


@contextlib.contextmanager
def mds_lock() -> Iterator[Case]:
    """An MDS whose debugging messages are made, under its lock, and thrown away."""
    with Cluster(
        options={
            "mds": {
                "debug_mds": "0/20",
                "debug_mds_locker": "0/20",
                "mds_debug_subtrees": "true",
                "ms_async_op_threads": "1",
            }
        }
    ) as cluster:
        subprocess.run([PYTHON, "-c", WALK, "make"], env=cluster.environment(), check=True)
        with loads.Load(cluster, "walk", [PYTHON, "-c", WALK, "walk"]) as load:
            mds = cluster.daemon("mds.a")
            time.sleep(5.0)
            suspects = {
                "mds.a mds_lock": threads(mds.pid, *TAKERS),
                "mds.a msgr-worker": threads(mds.pid, "msgr-worker"),
                "osd.0 tp_osd_tp": threads(cluster.daemon("osd.0").pid, "tp_osd_tp"),
            }
            apart(cluster, load, suspects["mds.a mds_lock"])
            count = counter(mds, "mds_server", "handle_client_request")
            yield Case("6 clients that stat files", "mds.a mds_lock", suspects, count)


@contextlib.contextmanager
def fuse() -> Iterator[Case]:
    """A mount whose debugging messages are made, under its lock, and thrown away."""
    options = {"client": {"debug_client": "0/20", "fuse_disable_pagecache": "true"}}
    with Cluster(options=options) as cluster:
        mount = cluster.mount()
        job = ["fio", "--name=job", f"--directory={mount.path}", "--rw=randread", "--bs=4k", "--size=4m", "--numjobs=4",
               "--thread", "--time_based", "--runtime=900", "--ioengine=psync"]  # fmt: skip
        with loads.Load(cluster, "fio", job) as load:
            time.sleep(5.0)
            mds, osd = (cluster.daemon(name) for name in ("mds.a", "osd.0"))
            suspects = {
                "ceph-fuse": threads(mount.pid),
                "mds.a": threads(mds.pid, *TAKERS),
                "osd.0 tp_osd_tp": threads(osd.pid, "tp_osd_tp"),
            }
            apart(cluster, load, suspects["ceph-fuse"])

            def count() -> float:
                return float(psutil.Process(load.pid).io_counters().read_count)

            yield Case("fio through ceph-fuse", "ceph-fuse", suspects, count)


CASES: Mapping[str, Callable[[], contextlib.AbstractContextManager[Case]]] = {
    "pipeline": pipeline,
    "fio": fio,
    "osd": osd_worker,
    "client": client,
    "mds": mds_lock,
    "fuse": fuse,
}


def row(case: Case, name: str, found: Found, used: float) -> list[str]:
    """Return the row of a suspect in the table; `used` is the share of its CPU that the limit used."""
    truth = "limit" if name == case.limit else "-" if name == NULL else "innocent"
    if name == NULL:
        shown = "quiet" if abs(found.mean) <= MAX_NULL else "**not quiet**"
    else:
        shown = found.word if found.word == truth else f"**{found.word}**"
    return [
        case.name if name == case.limit else "", name, truth, f"{used:.0%}" if name == case.limit else "",
        f"{found.mean:+.2f} ± {found.half:.2f}", shown, f"{found.held:.1%}" if name != NULL else "-",
        f"{1e3 * found.longest:.1f} ms" if name != NULL else "-", f"{found.rate:,.0f}",
    ]  # fmt: skip


def outcome(rows: Sequence[Sequence[str]]) -> str:
    """Return what all cases together show, in a sentence."""
    shown = [(truth, word.strip("*")) for _, _, truth, _, _, word, *_ in rows if truth != "-"]
    right = {truth: shown.count((truth, truth)) for truth in ("limit", "innocent")}
    number = {truth: sum(one == truth for one, _ in shown) for truth in right}
    false = shown.count(("innocent", "limit")) + shown.count(("limit", "innocent"))
    return (
        f"{right['limit']} of {number['limit']} limits and {right['innocent']} of {number['innocent']} innocents were "
        f"shown as what they are, {false} as the opposite; the others are undecided after {PAIRS} pairs."
    )


HEAD = [
    "load", "held", "truth", "busy", "elasticity (95 % interval)", "shown as", "held for", "longest hold",
    "operations/s",
]  # fmt: skip


def main() -> None:
    """Measure all cases, and write the section."""
    arguments = parser(__doc__)
    arguments.set_defaults(page=PAGE)
    arguments.add_argument("case", nargs="*", help=f"{', '.join(CASES)} [default: all]")
    chosen = arguments.parse_args()
    if reason := lacking():
        publish("causal", f"Not measured: {reason}.", chosen)
        return
    rows: list[list[str]] = []
    for make in (CASES[name] for name in chosen.case or CASES):
        with make() as case:
            time.sleep(1.0)
            used = busy(case.suspects[case.limit])
            found = measured(case)
        if used < MIN_BUSY:
            sys.exit(f"causal: {case.name}: {case.limit} uses {used:.0%} of its CPU: it is not full on this machine")
        rows += [row(case, name, found[name], used) for name in (case.limit, *(found.keys() - {case.limit}))]
    publish("causal", f"{machine()}.\n\n{table(HEAD, rows)}\n{outcome(rows)}", chosen)


if __name__ == "__main__":
    main()
