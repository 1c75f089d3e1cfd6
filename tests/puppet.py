"""A real process that runs, waits, forks and renames itself on command."""

from __future__ import annotations

import json
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

PROGRAM = """
import ctypes, json, os, queue, sys, threading, time

libc = ctypes.CDLL(None)
threading.stack_size(32768)
threads = {}

def spin(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass

def bursts(count, seconds):
    for _ in range(count):
        spin(seconds)
        time.sleep(seconds)

def rename(name):
    libc.prctl(15, name, 0, 0, 0)  # PR_SET_NAME

def serve(orders, answers):
    answers.put(threading.get_native_id())
    while (order := orders.get()) is not None:
        answers.put(eval(order))

def touch():
    # Has each thread run for a moment.
    for tid in threads:
        on(tid, "None")

def start(count=1):
    # Returns the ids of new threads.
    found = []
    for _ in range(count):
        orders, answers = queue.SimpleQueue(), queue.SimpleQueue()
        thread = threading.Thread(target=serve, args=(orders, answers), daemon=True)
        thread.start()
        found.append(answers.get())
        threads[found[-1]] = thread, orders, answers
    return found

def on(tid, order):
    thread, orders, answers = threads[tid]
    orders.put(order)
    return answers.get()

def end(tid):
    thread, orders, answers = threads.pop(tid)
    orders.put(None)
    thread.join()

def fork(work=lambda: None):
    # Runs a child to its end.
    if not (child := os.fork()):
        work()
        os._exit(0)
    os.waitpid(child, 0)
    return child

def brief(seconds):
    # Runs a thread to its end.
    thread = threading.Thread(target=spin, args=(seconds,))
    thread.start()
    thread.join()

for line in sys.stdin:
    print(json.dumps(eval(line)), flush=True)
"""


class Puppet:
    """The process; as a context manager, one that ends with the block."""

    def __init__(self, comm: bytes = b"puppet", *, before: tuple[str, ...] = ()) -> None:
        self._process = subprocess.Popen(
            [*before, sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.pid = self._process.pid
        self.do(f"rename({comm!r})")

    def __enter__(self) -> Puppet:
        return self

    def __exit__(self, *what: object) -> None:
        self._process.kill()
        self._process.communicate()

    def begin(self, order: str) -> None:
        """Start something in it: an expression."""
        assert self._process.stdin is not None
        self._process.stdin.write(order + "\n")
        self._process.stdin.flush()

    def done(self) -> Any:
        """Wait until it is done and idle; return the result."""
        assert self._process.stdout is not None
        answer = json.loads(self._process.stdout.readline())
        self.used()
        return answer

    def busy(self) -> bool:
        """Return whether its last order is still in progress."""
        assert self._process.stdout is not None
        return not select.select([self._process.stdout], [], [], 0)[0]

    def do(self, order: str) -> Any:
        """Run an expression in it and wait for the result."""
        self.begin(order)
        return self.done()

    def on(self, tid: int, order: str) -> Any:
        """Run an expression in one of its threads and wait for the result."""
        return self.do(f"on({tid}, {order!r})")

    def used(self) -> dict[int, tuple[int, int]]:
        """Return the total use of each of its threads, nanoseconds of run and wait, once they all sleep."""
        while True:
            tasks = list(Path(f"/proc/{self.pid}/task").iterdir())
            try:
                before = {int(task.name): schedstat(task) for task in tasks}
                asleep = all(stat(task)[0] == b"S" for task in tasks)
                if asleep and before == {int(task.name): schedstat(task) for task in tasks}:
                    return before
            except OSError:
                pass  # a thread was about to end
            time.sleep(0.001)

    def whole(self) -> tuple[int, int]:
        """Return the clock ticks of CPU used by the process, including its ended threads, and by its children."""
        fields = stat(Path(f"/proc/{self.pid}"))
        return int(fields[11]) + int(fields[12]), int(fields[13]) + int(fields[14])


def schedstat(task: Path) -> tuple[int, int]:
    run, wait, _ = map(int, (task / "schedstat").read_text().split())
    return run, wait


def stat(task: Path) -> list[bytes]:
    """Return the fields of stat from the state on: what comes before can contain anything."""
    return (task / "stat").read_bytes().rpartition(b")")[2].split()
