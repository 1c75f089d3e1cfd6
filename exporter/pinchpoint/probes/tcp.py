"""Round trips, retransmissions and send queues of TCP connections of Ceph's daemons and clients, and of benchmarks.

A socket belongs to the process that has its inode among its descriptors. So a daemon's connections are known whatever
its ports; all of them are to other daemons and to clients. A client or a benchmark has others too (a Samba server,
MPI): where some of its connections lead to ports of Ceph, only these count. Sockets of the kernel's own Ceph clients
belong to no process: on a host that has such clients, ownerless connections to a port of Ceph are theirs.

Connections of another network namespace (pods with a network of their own) can't be seen from here.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from pinchpoint.host.capabilities import Capability
from pinchpoint.host.procfs import MAX_SOCKET_DESCRIPTORS, first_names
from pinchpoint.host.qdisc import QdiscReader
from pinchpoint.host.sockdiag import Connection, read_connections
from pinchpoint.metrics import (
    KEEP_ENDED_SECONDS,
    TCP_CONNECTIONS,
    TCP_RETRANSMITS,
    TCP_RTT_MIN_SECONDS,
    TCP_RTT_SECONDS,
    TCP_SENT_BYTES,
    TCP_UNSENT_BYTES,
)
from pinchpoint.model import Point
from pinchpoint.probes.base import Host, NotPresent, Probe
from pinchpoint.threads.processes import Process

__all__ = ["KERNEL", "Tcp", "weighted_median"]

KERNEL = "kernel"
"""Owner of the connections of the kernel's own Ceph clients, of all mounts and RBD devices together."""
DAEMONS = frozenset({"ceph-mds", "ceph-osd", "ceph-mon", "ceph-mgr", "sheepdog"})
"""Process classes whose connections all count."""
MONITOR_PORTS = frozenset({3300, 6789})
DAEMON_PORTS = range(6800, 7569)
"""ms_bind_port_min to ms_bind_port_max (src/common/options); up to Ceph 17 the last one was 7300."""
SEARCH_INTERVAL_SECONDS = 4.0
"""Seconds between searches for owners of new connections: each reads the descriptors of processes."""
MAX_OWNER_SEARCHES = 2
"""Searches before a connection counts as ownerless: at the first its process may be too young to be known."""
RECENTLY_SENT_SECONDS = 2.0
"""Seconds after its last data up to which a connection counts if its segments aren't known (yet)."""
MAX_COST_SHARE = 0.02
"""Largest share of time that this probe takes: on a host with very many connections it looks more rarely."""
ABSENT = frozenset({errno.ENOENT, errno.EPROTONOSUPPORT, errno.EAFNOSUPPORT, errno.EPERM, errno.EACCES})
"""Errors of a kernel without sock_diag, or that denies it."""
SOCKET = "socket:["

Key = tuple[int, int]
"""Pid and start of a process."""


def weighted_median(values: Iterable[tuple[float, int]]) -> float | None:
    """Return the value with half of the weight on either side; None if nothing has any."""
    ordered = sorted((value, weight) for value, weight in values if weight > 0)
    half = sum(weight for _, weight in ordered) / 2
    passed = 0
    for value, weight in ordered:
        passed += weight
        if passed >= half:
            return value
    return None


class _Seen:
    """What is remembered of a connection."""

    __slots__ = ("arrived", "holder", "looks", "retransmits", "sent")

    def __init__(self, retransmits: int, arrived: int) -> None:
        self.holder: Key | str | None = None
        """Its owner: a process, or `KERNEL`; None while that is not known."""
        self.looks = 0
        """How often its holder was looked for among all processes of interest."""
        self.retransmits = retransmits
        self.arrived = arrived
        self.sent: int | None = None

    def weigh(self, connection: Connection) -> int:
        """Return the segments of data that the connection has sent since the last look."""
        if connection.sent is None or self.sent is None:
            return int(connection.since_sent <= RECENTLY_SENT_SECONDS)
        # A socket that was connected anew counts from zero, as one does whose count has wrapped.
        return connection.sent - self.sent if connection.sent >= self.sent else connection.sent


class _OwnerConnections:
    """The connections of one owner at the last look, and its counter."""

    def __init__(self) -> None:
        self.seen = 0.0
        self.retransmits = 0
        self.arrived = 0
        self.clear()

    def clear(self) -> None:
        self.connections = 0
        self.rtt: float | None = None
        self.min_rtt: float | None = None
        self.unsent: int | None = None


class Tcp(Probe):
    """Round trips, retransmissions and send queues of TCP connections, by the owner of the process."""

    name = "tcp"
    metrics = (TCP_RTT_SECONDS, TCP_RTT_MIN_SECONDS, TCP_CONNECTIONS, TCP_RETRANSMITS, TCP_SENT_BYTES, TCP_UNSENT_BYTES)
    capabilities = (Capability.DAC_READ_SEARCH, Capability.SYS_PTRACE)
    interval = 2.0
    rest_interval = 10.0

    def __init__(self, host: Host, read: Callable[[], Sequence[Connection]] = read_connections) -> None:
        super().__init__(host)
        self._read = read
        self._seen: dict[int, _Seen] = {}
        self._owners: dict[str, _OwnerConnections] = {}
        self._began = False
        self._searched: set[Key] = set()
        self._last_search = self._rest_until = float("-inf")
        self._denied = False

    def sample(self, now: float) -> None:
        """Read every connection. Raises NotPresent if these or their owners can't be read."""
        if not QdiscReader.sees(self.host.procfs):
            raise NotPresent("procfs is of another network namespace")
        if now < self._rest_until:
            return
        began = time.thread_time()
        try:
            self._add_up(now, self._read())
        except OSError as error:
            if error.errno in ABSENT:
                raise NotPresent(f"the kernel does not list TCP connections: {error.strerror}") from error
            raise
        finally:
            self._rest_until = now + (time.thread_time() - began) / MAX_COST_SHARE
        if self._denied and not self._owners:
            raise NotPresent("no right to read processes' descriptors, which show who owns a connection")

    def _add_up(self, now: float, connections: Sequence[Connection]) -> None:
        # What connections did before the first look does not count; new ones since then count from zero.
        seen = {
            connection.cookie: self._seen.get(connection.cookie)
            or (_Seen(0, 0) if self._began else _Seen(connection.retransmits, connection.arrived or 0))
            for connection in connections
        }
        self._seen, self._began = seen, True
        processes = self.host.processes.current(now)
        owners = self._held(connections, processes)
        if now - self._last_search >= SEARCH_INTERVAL_SECONDS and (where := self._where(processes)) is not None:
            self._last_search = now
            self._search(now, connections, where)
            self._searched = {(process.pid, process.start) for process in processes.values()}
            owners = self._held(connections, processes)
        for known in self._owners.values():
            known.clear()
        for name, found in owners.items():
            owner = self._owners.setdefault(name, _OwnerConnections())
            owner.seen = now
            self._measure(owner, found)
        for connection in connections:
            seen[connection.cookie].sent = connection.sent
        for name in [name for name, owner in self._owners.items() if now - owner.seen > KEEP_ENDED_SECONDS]:
            del self._owners[name]

    def _held(
        self, connections: Iterable[Connection], processes: Mapping[int, Process]
    ) -> Mapping[str, list[Connection]]:
        """Return the connections that count, by owner; a connection whose process is gone has no owner again."""
        found: dict[str, list[Connection]] = {}
        chosen: set[str] = set()
        for connection in connections:
            seen = self._seen[connection.cookie]
            if seen.holder is None:
                continue
            if isinstance(seen.holder, str):
                found.setdefault(seen.holder, []).append(connection)
                continue
            pid, start = seen.holder
            process = processes.get(pid)
            if process is None or process.start != start:
                seen.holder, seen.looks = None, 0
                continue
            found.setdefault(process.owner, []).append(connection)
            if process.class_ not in DAEMONS:
                chosen.add(process.owner)
        for owner in chosen:
            if to_ceph := [connection for connection in found[owner] if _leads_to_ceph(connection)]:
                found[owner] = to_ceph
        return found

    def _where(self, processes: Mapping[int, Process]) -> set[Key] | None:
        """Return the processes that may hold ownerless connections: all, if some are new; None: no need."""
        keys = {(process.pid, process.start) for process in processes.values()}
        unheld = [seen.looks for seen in self._seen.values() if seen.holder is None]
        if not unheld:
            return None
        return keys if min(unheld) < MAX_OWNER_SEARCHES else keys - self._searched or None

    def _search(self, now: float, connections: Iterable[Connection], where: Iterable[Key]) -> None:
        """Look for the holders of connections in the descriptors of processes."""
        wanted = {
            connection.inode: connection
            for connection in connections
            if connection.inode and self._seen[connection.cookie].holder is None
        }
        everything = self.host.processes.everything(now)
        denied = reached = False
        for key in sorted(where):
            if (stat := everything.get(key[0])) is not None and stat.kernel_thread:
                continue
            try:
                inodes = self._inodes(key[0])
            except PermissionError:
                denied = True
                continue
            reached = True
            for inode in inodes & wanted.keys():
                self._seen[wanted.pop(inode).cookie].holder = key
        self._denied = denied and not reached
        last_looks: dict[int, _Seen] = {}
        for inode, connection in wanted.items():
            seen = self._seen[connection.cookie]
            seen.looks += 1
            if seen.looks == MAX_OWNER_SEARCHES and _leads_to_ceph(connection):
                last_looks[inode] = seen
        if last_looks and self._kernel_clients():
            self._give_to_kernel(last_looks, everything)

    def _give_to_kernel(self, connections: dict[int, _Seen], everything: Iterable[int]) -> None:
        """Give to the kernel what no process has."""
        for pid in everything:
            try:
                for inode in self._inodes(pid) & connections.keys():
                    del connections[inode]
            except PermissionError:
                return  # they may be this one's
        for seen in connections.values():
            seen.holder = KERNEL

    def _kernel_clients(self) -> bool:
        """Return whether the kernel has a CephFS mount (ceph_setup_bdi, fs/ceph/super.c) or an RBD device."""
        names = _entries(self.host.sysfs / "class" / "bdi") + _entries(self.host.sysfs / "bus" / "rbd" / "devices")
        return any(name.startswith("ceph-") or name.isdecimal() for name in names)

    def _inodes(self, pid: int) -> set[int]:
        """Return the inodes of a process' sockets. Raises PermissionError."""
        directory = f"{self.host.procfs}/{pid}/fd"
        found = set()
        try:
            for descriptor in first_names(directory, MAX_SOCKET_DESCRIPTORS):
                try:
                    target = os.readlink(f"{directory}/{descriptor}")
                except FileNotFoundError:
                    continue
                if target.startswith(SOCKET):
                    found.add(int(target[len(SOCKET) : -1]))
        except (FileNotFoundError, NotADirectoryError, ProcessLookupError):
            pass  # it is gone
        return found

    def _measure(self, owner: _OwnerConnections, connections: Sequence[Connection]) -> None:
        owner.connections = len(connections)
        for connection in connections:
            seen = self._seen[connection.cookie]
            owner.retransmits += max(0, connection.retransmits - seen.retransmits)
            seen.retransmits = connection.retransmits
            owner.arrived += max(0, (connection.arrived or 0) - seen.arrived)
            seen.arrived = connection.arrived or 0
        # Connections within the host use no network; they only count if there are no others.
        apart = [connection for connection in connections if not connection.inside] or connections
        owner.rtt = weighted_median(
            (connection.rtt, self._seen[connection.cookie].weigh(connection))
            for connection in apart
            if connection.rtt is not None
        )
        owner.min_rtt = min(
            (connection.min_rtt for connection in apart if connection.min_rtt is not None), default=None
        )
        unsent = [connection.unsent for connection in connections if connection.unsent is not None]
        owner.unsent = sum(unsent) if unsent else None

    def points(self) -> Iterator[Point]:
        """Yield the series of each owner."""
        for name, owner in self._owners.items():
            if owner.rtt is not None:
                yield TCP_RTT_SECONDS.point(owner.rtt, name)
            if owner.min_rtt is not None:
                yield TCP_RTT_MIN_SECONDS.point(owner.min_rtt, name)
            yield TCP_CONNECTIONS.point(owner.connections, name)
            yield TCP_RETRANSMITS.point(owner.retransmits, name)
            if owner.unsent is not None:
                yield TCP_SENT_BYTES.point(owner.arrived, name)
                yield TCP_UNSENT_BYTES.point(owner.unsent, name)


def _leads_to_ceph(connection: Connection) -> bool:
    return connection.remote_port in MONITOR_PORTS or connection.remote_port in DAEMON_PORTS


def _entries(directory: os.PathLike[str]) -> list[str]:
    try:
        return os.listdir(directory)
    except OSError:
        return []
