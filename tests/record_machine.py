"""Records what the probes read of this machine, twice, a second apart: ``record_machine.py NAME [COMM...]``.

It writes NAME-0.txt and NAME-1.txt. Of processes it records only names and times, and only those of kernel threads and
of processes called COMM: no command lines, no environment. Read both files before you share them.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from machine import LINK, SEPARATOR
from pinchpoint.host.procfs import parse_stat

FILES = (
    "proc/loadavg proc/stat proc/diskstats proc/vmstat proc/meminfo proc/cpuinfo proc/pressure/memory proc/net/dev "
    "proc/sys/kernel/osrelease proc/sys/kernel/numa_balancing proc/sys/vm/dirty_* proc/sys/vm/watermark_scale_factor "
    "proc/sys/net/core/[rw]mem_max proc/sys/net/ipv4/tcp_congestion_control "
    "sys/block/*/dev sys/dev/block/* sys/class/net/*/ifindex sys/class/net/*/flags sys/class/net/*/operstate "
    "sys/class/net/*/speed sys/class/net/*/mtu sys/devices/system/cpu/online sys/devices/system/cpu/smt/active "
    "sys/devices/system/cpu/cpu[0-9]*/cpuidle/state*/* sys/devices/system/cpu/cpufreq/* "
    "sys/devices/system/cpu/intel_pstate/* sys/devices/system/node/online "
    "sys/devices/system/clocksource/clocksource0/current_clocksource sys/kernel/mm/transparent_hugepage/enabled"
)


def entry(path: Path) -> str:
    """Return the record of one file or link; nothing if it cannot be read."""
    try:
        content = f"{LINK}{os.readlink(path)}\n" if path.is_symlink() else path.read_text(errors="replace")
    except OSError:
        return ""
    return f"{SEPARATOR}{str(path).lstrip('/')}\n{content}"


def record(comms: list[str]) -> Iterator[str]:
    """Yield the records of the machine, with the processes called `comms`."""
    root = Path("/")
    for pattern in FILES.split():
        for path in sorted(root.glob(pattern)):
            if path.is_symlink() or path.is_file():
                yield entry(path)
    for path in sorted(root.glob("proc/[0-9]*")):
        try:
            stat = parse_stat((path / "stat").read_bytes())
        except OSError:
            continue
        if stat.kernel_thread or stat.comm in comms:
            for file in ("stat", "comm", "schedstat", "task/*/stat", "task/*/comm", "task/*/schedstat"):
                for found in sorted(path.glob(file)):
                    yield entry(found)


if __name__ == "__main__":
    begin = time.monotonic()
    for number in range(2):
        time.sleep(max(0.0, begin + number - time.monotonic()))
        Path(f"{sys.argv[1]}-{number}.txt").write_text("".join(record(sys.argv[2:])))
