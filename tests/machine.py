"""A fake machine in a folder: builds the files that probes read from a few lines that describe it."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

from msgspec.structs import replace

from pinchpoint.benchmarks.markers import RunDirectory
from pinchpoint.benchmarks.tree import Tree
from pinchpoint.host.procfs import PF_KTHREAD, PF_WQ_WORKER, parse_stat, read_bytes
from pinchpoint.probes import Host
from pinchpoint.threads.processes import Processes
from pinchpoint.threads.roles import Roles, load_roles

KERNEL_THREAD = PF_KTHREAD
KWORKER = PF_KTHREAD | PF_WQ_WORKER
NAME = re.compile(r"[\w.-]+")
STATUS = "Name:\tx\nTgid:\t{pid}\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\nGid:\t0\t0\t0\t0\nGroups:\t0 \n"
"""The beginning of ``/proc/PID/status``."""
SEPARATOR = "==> "
LINK = "-> "
CEPH = 64045
"""The uid of Ceph's daemons (Debian's packages)."""


def stat_line(
    pid: int,
    comm: str | bytes,
    *,
    state: str = "S",
    ppid: int = 1,
    flags: int = 0,
    utime: int = 0,
    stime: int = 0,
    children: int = 0,
    start: int = 100,
) -> bytes:
    """Return a line as ``do_task_stat`` (fs/proc/array.c, Linux 6.1) writes it, with zeros in unread fields."""
    name = comm if isinstance(comm, bytes) else comm.encode()
    times = [utime, stime, children, 0]
    fields = [state, ppid, pid, pid, 0, -1, flags, 0, 0, 0, 0, *times, 20, 0, 1, 0, start] + [0] * 30
    return b"%d (%s) " % (pid, name) + " ".join(map(str, fields)).encode() + b"\n"


class Machine:
    """A folder that looks like a host."""

    def __init__(self, root: Path) -> None:
        self.procfs = root / "proc"
        self.sysfs = root / "sys"
        self.runs = root / "runs"
        self.procfs.mkdir(parents=True)
        self.sysfs.mkdir()
        self._newest = 0
        self.loadavg()
        # Whoever runs the tests owns the programs of the machine.
        self.write("etc/passwd", f"root:x:0:0::/root:/bin/sh\nceph:x:{os.geteuid() or CEPH}:{CEPH}::/:/bin/false\n")

    def loadavg(self) -> None:
        """Write /proc/loadavg with the newest PID in its last field."""
        self.write("proc/loadavg", f"0.10 0.20 0.30 1/100 {self._newest}\n")

    def write(self, path: str, content: str | bytes) -> Path:
        """Write a file; `path` begins with proc/ or sys/."""
        file = self.procfs.parent / path
        raw = content if isinstance(content, bytes) else content.encode()
        try:
            file.write_bytes(raw)
        except FileNotFoundError:
            file.parent.mkdir(parents=True)
            file.write_bytes(raw)
        return file

    def load(self, archive: str) -> None:
        """Write the files of an archive made by `record_machine.py`."""
        for entry in archive.split(SEPARATOR)[1:]:
            path, _, content = entry.partition("\n")
            target = content.removeprefix(LINK).rstrip("\n")
            if target != content.rstrip("\n"):
                link = self.procfs.parent / path
                link.parent.mkdir(parents=True, exist_ok=True)
                link.unlink(missing_ok=True)
                link.symlink_to(target)
            else:
                self.write(path, content)
                if path.endswith("/stat") and path.count("/") == 2:  # recordings have no users: all is root's
                    self.write(path + "us", STATUS.format(pid=path.split("/")[1], uid=0))

    def process(
        self,
        pid: int,
        comm: str | bytes,
        *,
        threads: Mapping[int, str | bytes] | None = None,
        argv: tuple[str, ...] = (),
        ppid: int = 1,
        flags: int = 0,
        start: int = 100,
        uid: int = 0,
        program: str = "",
    ) -> None:
        """Add a process; `threads` gives the names of its threads by TID (only its leader by default).

        `program` is the file that it runs, by default one of its name.
        """
        self._newest = max(self._newest, pid, *(threads or {0: ""}))
        self.write(f"proc/{pid}/stat", stat_line(pid, comm, ppid=ppid, flags=flags, start=start))
        self.write(f"proc/{pid}/comm", (comm if isinstance(comm, bytes) else comm.encode()) + b"\n")
        self.write(f"proc/{pid}/cmdline", "".join(f"{word}\0" for word in argv))
        self.write(f"proc/{pid}/schedstat", "0 0 0\n")
        self.write(f"proc/{pid}/status", STATUS.format(pid=pid, uid=uid))
        if not flags:
            self.runs_as(
                pid, uid, program or f"usr/bin/{comm if isinstance(comm, str) and NAME.fullmatch(comm) else 'x'}"
            )
        for tid, name in {pid: comm, **(threads or {})}.items():
            task = f"proc/{pid}/task/{tid}"
            raw = name if isinstance(name, bytes) else name.encode()
            self.write(f"{task}/comm", raw + b"\n")
            self.write(f"{task}/stat", stat_line(tid, name, ppid=ppid, flags=flags, start=start))
            self.ran(pid, tid, 0, 0)
        self.loadavg()

    def runs_as(self, pid: int, uid: int, program: str) -> Path:
        """Give a process a real uid and the file that it runs, in the machine's root directory; return that file."""
        self.write(f"proc/{pid}/status", STATUS.format(pid=pid, uid=uid))
        file = self.procfs.parent / program
        if not file.exists():
            self.write(program, "").chmod(0o755)
        link = self.procfs / str(pid) / "exe"
        link.unlink(missing_ok=True)
        link.symlink_to(file)
        return file

    def opens(self, pid: int, descriptor: int, path: str, *, position: int = 0, flags: int = 0, mount: int = 1) -> None:
        """Have a process hold a file open; `path` is its name in procfs, `mount` the id of its mount."""
        link = self.procfs / str(pid) / "fd" / str(descriptor)
        link.parent.mkdir(exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(path)
        text = f"pos:\t{position}\nflags:\t0{flags:o}\nmnt_id:\t{mount}\nino:\t1\n"
        self.write(f"proc/{pid}/fdinfo/{descriptor}", text)

    def lives_in(self, pid: int, root: Path, cwd: str = "/") -> None:
        """Give a process a root directory, and a working directory as the process sees it."""
        for name, target in (("root", str(root)), ("cwd", cwd)):
            (self.procfs / str(pid) / name).unlink(missing_ok=True)
            (self.procfs / str(pid) / name).symlink_to(target)

    def uptime(self, seconds: float) -> None:
        """Set the seconds since boot, from which the age of a thread is calculated."""
        self.write("proc/uptime", f"{seconds:.2f} 0.00\n")

    def end(self, pid: int, tid: int | None = None) -> None:
        """Remove a process, or one of its threads."""
        shutil.rmtree(self.procfs / str(pid) / ("" if tid is None else f"task/{tid}"))

    def ran(self, pid: int, tid: int, run: float, wait: float = 0.0) -> None:
        """Set the total use of a thread: seconds on a CPU and seconds of run-queue wait."""
        line = f"{int(run * 1e9)} {int(wait * 1e9)} 7\n"
        self.write(f"proc/{pid}/task/{tid}/schedstat", line)
        if pid == tid:
            self.write(f"proc/{pid}/schedstat", line)

    def moved(self, task: str, asked: int, stored: int) -> None:
        """Set the bytes that a process or a thread has moved by calls, and to storage; `task` is ``PID[/task/TID]``."""
        counters = f"rchar: 0\nwchar: {asked}\nsyscr: 0\nsyscw: 9\nread_bytes: 0\nwrite_bytes: {stored}\n"
        self.write(f"proc/{task}/io", f"{counters}cancelled_write_bytes: 0\n")

    def tree(self) -> Tree:
        """Return its processes."""
        pids = [int(path.name) for path in self.procfs.iterdir() if path.name.isdigit()]
        return Tree(self.procfs, {pid: parse_stat(read_bytes(self.procfs / str(pid) / "stat")) for pid in pids})

    def host(self, roles: Roles | None = None) -> Host:
        """Return the host that a probe gets."""
        roles = roles or load_roles()
        processes = Processes(self.procfs, roles, rootfs=self.procfs.parent)
        runs = RunDirectory(self.runs, self.procfs)
        return Host(
            procfs=self.procfs, sysfs=self.sysfs, rootfs=self.procfs.parent, roles=roles, processes=processes, runs=runs
        )

    def host_with_runs(self, now: float) -> Host:
        """Return a host whose processes also belong to its runs at the Unix time `now`."""
        host = self.host()
        adopting = Processes(
            self.procfs,
            host.roles,
            adopted=lambda: host.runs.command_pids(now),
            rootfs=self.procfs.parent,
        )
        return replace(host, processes=adopting)
