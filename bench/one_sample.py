"""Takes a sample of all threads of the host whenever it is asked, and prints its cost.

``one_sample.py bpf|bpf-iter|kept|plain|psutil|psutil-names``. For each byte of standard input it prints the nanoseconds
of CPU of a sample and the number of threads that had changed, as the loops in C do.
"""

from __future__ import annotations

import gc
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

PROC = Path("/proc")


def source_sampler(kind: str) -> Callable[[], int]:
    """Return a function that samples with one of the exporter's own sources; all processes are followed.

    It samples as it does some time after its start, when threads count as having their final names.
    """
    from pinchpoint.bpf.choice import choose_source
    from pinchpoint.threads.task_source import NAME_SETTLED_SECONDS, raise_file_limit

    limit = raise_file_limit()
    source = choose_source(PROC, lambda tgid, comm: 1, kind)
    source.follow([int(name) for name in os.listdir(PROC) if name.isdigit()], time.monotonic() - NAME_SETTLED_SECONDS)
    if kind == "kept" and len(list(source.tasks())) > limit:
        sys.exit("too few files may be open")
    return lambda: len(source.sample(time.monotonic(), all_tasks=True))


def psutil_sampler(*, names: bool) -> Callable[[], int]:
    """Return a function that samples as a small exporter would; psutil itself does not give names of threads."""
    import psutil

    before: dict[int, float] = {}
    comms: dict[int, bytes] = {}

    def sample() -> int:
        changed = 0
        for process in psutil.process_iter():
            try:
                threads = process.threads()
            except psutil.Error:
                continue
            for thread in threads:
                if names:
                    try:
                        comms[thread.id] = (PROC / f"{process.pid}/task/{thread.id}/comm").read_bytes()
                    except OSError:
                        continue
                used = thread.user_time + thread.system_time
                if before.get(thread.id) != used:
                    before[thread.id] = used
                    changed += 1
        return changed

    return sample


def main() -> None:
    """Answer until standard input ends."""
    kind = sys.argv[1]
    try:
        sample = psutil_sampler(names=kind == "psutil-names") if "psutil" in kind else source_sampler(kind)
    except Exception as error:
        sys.exit(str(error))
    sample()
    gc.freeze()
    print("ready", flush=True)
    while os.read(0, 1):
        before = time.process_time_ns()
        changed = sample()
        print(time.process_time_ns() - before, changed, flush=True)


if __name__ == "__main__":
    main()
