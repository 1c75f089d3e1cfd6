"""Steps of Slurm jobs: which srun of this host started the processes below a slurmstepd.

srun does not start the processes of its step: slurmd, on each host of the step, starts a slurmstepd for it, and that
starts them (src/slurmd/slurmd/req.c of Slurm 22.05). What they print goes through a connection to a port on which srun
listens (src/slurmd/slurmstepd/io.c, src/api/step_io.c). That connection shows, whatever any user says, that both belong
together.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from pinchpoint.expressions import expression
from pinchpoint.host.procfs import FormatError, Stat, first_names, parse_stat, read_bytes
from pinchpoint.host.tcptable import TcpSocket, parse_tcp_table
from pinchpoint.host.users import ROOT, process_user

__all__ = ["SLURMSTEPD", "SRUN", "SlurmSteps", "find_slurmstepds"]

SRUN, SLURMSTEPD = "srun", "slurmstepd"
SLURMD = "slurmd"
"""What a slurmstepd is called before its exec."""
MAX_TRIES = 40
"""Scans at which the srun of a step is looked for: a step is connected to it within a second of its start."""
MAX_SRUNS = 64
"""Processes of a user called srun that are looked at: the newest ones."""
MAX_DESCRIPTORS = 256
"""Descriptors of one process that are looked at."""
MAX_TCP_TABLE_BYTES = 4 << 20
"""Bytes of a table of sockets that are read: 27,000 lines."""
SOCKET = expression(r"socket:\[(\d{1,20})\]")
PORT = expression(rb"(?:^|\0)SLURM_SRUN_COMM_PORT=(\d{1,5})\0")

Identity = tuple[int, int]
"""Pid, and start in clock ticks since boot."""


class SlurmSteps:
    """The sruns of the steps of this host."""

    def __init__(self, procfs: Path) -> None:
        self._procfs = procfs
        self._launchers: dict[Identity, Identity] = {}
        self._tries: dict[Identity, int] = {}
        self._users: dict[Identity, int] = {}

    def attached(self, processes: Mapping[int, Stat]) -> dict[int, Stat]:
        """Return the processes; a slurmstepd whose srun is among them is that one's child."""
        attached = dict(processes)
        steps = [(pid, stat) for pid, stat in processes.items() if stat.comm == SLURMSTEPD]
        present = {(pid, stat.start) for pid, stat in steps}
        self._launchers = {step: srun for step, srun in self._launchers.items() if step in present}
        self._tries = {step: tries for step, tries in self._tries.items() if step in present}
        if not steps:
            return attached
        sruns = self._sruns(processes)
        for pid, stat in steps:
            step = pid, stat.start
            if step not in self._launchers and sruns and self._tries.get(step, 0) < MAX_TRIES:
                self._tries[step] = self._tries.get(step, 0) + 1
                if (found := self._launcher(pid, processes, sruns)) is not None:
                    self._launchers[step] = found
            srun = self._launchers.get(step)
            if srun is not None and srun[0] in processes and processes[srun[0]].start == srun[1]:
                attached[pid] = stat._replace(ppid=srun[0])
        return attached

    def _sruns(self, processes: Mapping[int, Stat]) -> Mapping[int, list[Identity]]:
        """Return the sruns by their users. Each has a child of its name, which does not count."""
        found = {
            (pid, stat.start)
            for pid, stat in processes.items()
            if stat.comm == SRUN and (stat.ppid not in processes or processes[stat.ppid].comm != SRUN)
        }
        self._users = {
            srun: self._users[srun] if srun in self._users else process_user(self._procfs, srun[0]) for srun in found
        }
        by_user: dict[int, list[Identity]] = {}
        for srun in sorted(found, key=lambda srun: -srun[1]):
            if len(ours := by_user.setdefault(self._users[srun], [])) < MAX_SRUNS:
                ours.append(srun)
        return by_user

    def _launcher(
        self, step: int, processes: Mapping[int, Stat], sruns: Mapping[int, list[Identity]]
    ) -> Identity | None:
        """Return the srun of the user of a step that listens where the step is connected; None if none is seen to."""
        if process_user(self._procfs, step) != ROOT:
            return None
        children = [pid for pid, stat in processes.items() if stat.ppid == step]
        users = {process_user(self._procfs, child) for child in children}
        candidates = [srun for user in users for srun in sruns.get(user, ())]
        if not candidates:
            return None
        above = set(_ancestors(step, processes))
        connected = self._connected(step, children)
        for srun in candidates:
            below = step in _ancestors(srun[0], processes)
            if not below and srun[0] not in above and connected & self._ports(srun[0]):
                return srun
        return None

    def _connected(self, step: int, children: Iterable[int]) -> set[int]:
        """Return the ports to which a slurmstepd is connected: if only root sees it, those our processes were told."""
        try:
            inodes = self._sockets(step)
        except PermissionError:
            return {port for child in children for port in self._told(child)}
        return {socket.remote_port for socket in self._table(step) if socket.inode in inodes and not socket.listens}

    def _told(self, pid: int) -> Iterator[int]:
        """Yield the port that srun gave to one of our processes. The memory of others is not read: that may hang."""
        if process_user(self._procfs, pid) == os.getuid():
            with suppress(OSError):
                yield from map(int, PORT.findall(read_bytes(f"{self._procfs}/{pid}/environ")))

    def _ports(self, pid: int) -> set[int]:
        """Return the ports on which a process listens; none if it can't be seen."""
        try:
            inodes = self._sockets(pid)
        except PermissionError:
            return set()
        return {socket.port for socket in self._table(pid) if socket.inode in inodes and socket.listens}

    def _sockets(self, pid: int) -> set[int]:
        """Return the inodes of a process' sockets. Raises PermissionError."""
        directory = f"{self._procfs}/{pid}/fd"
        try:
            names = first_names(directory, MAX_DESCRIPTORS)
        except FileNotFoundError:
            return set()
        found = set()
        for name in names:
            with suppress(FileNotFoundError):
                if match := SOCKET.fullmatch(os.readlink(f"{directory}/{name}")):
                    found.add(int(match[1]))
        return found

    def _table(self, pid: int) -> list[TcpSocket]:
        found: list[TcpSocket] = []
        for name in ("tcp", "tcp6"):
            with suppress(OSError):
                found += parse_tcp_table(read_bytes(f"{self._procfs}/{pid}/net/{name}", MAX_TCP_TABLE_BYTES))
        return found


def _ancestors(pid: int, processes: Mapping[int, Stat]) -> Iterator[int]:
    seen = {pid}
    while (stat := processes.get(pid)) is not None and stat.ppid not in seen:
        pid = stat.ppid
        seen.add(pid)
        yield pid


def find_slurmstepds(procfs: Path, others: set[int]) -> dict[int, Stat]:
    """Return every slurmstepd; `others` has the pids that are known to be something else, and is brought up to date."""
    found: dict[int, Stat] = {}
    pids = {int(name) for name in os.listdir(procfs) if name.isdigit()}
    others &= pids
    for pid in pids - others:
        try:
            stat = parse_stat(read_bytes(f"{procfs}/{pid}/stat"))
        except (OSError, FormatError):
            continue
        if stat.comm == SLURMSTEPD:
            found[pid] = stat
        elif stat.comm != SLURMD:
            others.add(pid)
    return found
