"""Links in other network namespaces: those of daemons and benchmarks in containers.

The probe devices reads the links of the exporter's own namespace. Procfs and sysfs do not show another one, so only
queues in front of links are seen, over netlink sockets opened there: a shaper, or a link that is full.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Iterable, Mapping
from pathlib import Path

from pinchpoint import resources
from pinchpoint.host.capabilities import Capability
from pinchpoint.host.netns import namespace_file, namespace_of, opener_in
from pinchpoint.host.procfs import FormatError
from pinchpoint.host.qdisc import QdiscReader
from pinchpoint.host.users import process_user
from pinchpoint.metrics import (
    KEEP_ENDED_SECONDS,
    NETWORK_NAMESPACE_HIDDEN_INFO,
    RESOURCE_BUSY_SECONDS,
    RESOURCE_SATURATED_SECONDS,
)
from pinchpoint.model import Point
from pinchpoint.probes.base import Host, NotPresent, Probe
from pinchpoint.resources import ELSEWHERE, Resource
from pinchpoint.threads.processes import Process
from pinchpoint.user_labels import user_of

__all__ = ["Namespaces"]

MAX_NAMESPACES = 16
"""Other namespaces that are read: those with a process of a trusted user, and as many of other users together."""
MAX_LINKS = 64
"""Links that are shown of namespaces of trusted users, and of those of each other user."""
NAMESPACE_INTERVAL_SECONDS = 1.0
"""Seconds between two looks at who is where."""
RARE_INTERVAL_SECONDS = 10.0
"""Seconds between two looks at what the links are called, and until a namespace that can't be seen is tried again."""
SLOW_LOOK_CPU_SECONDS = 0.005
"""CPU seconds of one look, above which a namespace is not looked at again for `RARE_INTERVAL_SECONDS`."""
WINDOW_LOOKS = 5
"""Looks over which fullness is judged: a second."""
TOO_MANY = "too many network namespaces"
UNKNOWN = "its network namespace is not known: no right to read it"
OWN = Path("/proc")


class _Namespace:
    """A network namespace with a process of interest."""

    def __init__(self) -> None:
        self.owners: tuple[str, ...] = ()
        self.daemon = False
        """Whether a daemon is in it."""
        self.trusted = False
        """Whether a process of a trusted user is in it."""
        self.reason = ""
        """Why it can't be seen."""
        self._reader: QdiscReader | None = None
        self._names: Mapping[int, str] = {}
        self._named = self._next = float("-inf")

    def waiting(self, now: float, path: Path, number: int) -> Mapping[str, int]:
        """Return the bytes that wait for each link that has a queue, by its name; `path` stands for the namespace."""
        if now < self._next:
            return {}
        began = time.thread_time()
        try:
            if self._reader is None:
                self._reader = QdiscReader(opener_in(path, number))
            if now - self._named >= RARE_INTERVAL_SECONDS:
                self._names, self._named = self._reader.names(), now
            found = self._reader.ask()
        except (OSError, FormatError) as error:
            self.reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
            self._next = now + RARE_INTERVAL_SECONDS
            self.close()
            return {}
        self.reason = ""
        if time.thread_time() - began > SLOW_LOOK_CPU_SECONDS:
            self._next = now + RARE_INTERVAL_SECONDS
        return {self._names[index]: waiting for index, waiting in found.items() if index in self._names}

    def close(self) -> None:
        """Close its socket; the next look opens another one."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None


_Group = tuple[bool, bool, int | None]
"""Links that share a limit: whether a daemon is in their namespace, a trusted user, and whose mark their names have."""


class _Link:
    """A link of another namespace."""

    def __init__(self, resource: Resource, group: _Group) -> None:
        self.resource = resource
        self.group = group
        self.seen = 0.0
        self._looks: deque[bool] = deque(maxlen=WINDOW_LOOKS)

    def add(self, now: float, elapsed: float, *, waits: bool) -> None:
        """Add a look: whether packets waited in front of it."""
        self.seen = now
        self._looks.append(waits)
        full = sum(self._looks) >= self.resource.threshold * WINDOW_LOOKS
        self.resource.busy += elapsed * waits
        self.resource.saturated += elapsed * full


class Namespaces(Probe):
    """Queues in front of links of other network namespaces."""

    name = "namespaces"
    metrics = (RESOURCE_BUSY_SECONDS, RESOURCE_SATURATED_SECONDS, NETWORK_NAMESPACE_HIDDEN_INFO)
    capabilities = (Capability.SYS_PTRACE, Capability.SYS_ADMIN, Capability.SYS_NICE)
    interval = 0.2
    rest_interval = 10.0
    # A request waits while an interface is reconfigured (see QdiscReader).
    urgent = True

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._own = namespace_of(OWN, "self")
        self._found: dict[int, _Namespace] = {}
        self._members: dict[int, dict[int, str]] = {}
        """Owners by pid, by namespace."""
        self._hidden: dict[str, str] = {}
        self._links: dict[str, _Link] = {}
        self._last: float | None = None
        self._searched = float("-inf")

    def sample(self, now: float) -> None:
        """Look at every queue. Raises NotPresent where all are in the exporter's own namespace."""
        elapsed = 0.0 if self._last is None else now - self._last
        self._last = now
        if now - self._searched >= NAMESPACE_INTERVAL_SECONDS:
            self._searched = now
            self._find(self.host.processes.current(now).values())
        waiting: dict[str, bool] = {}
        groups: dict[str, _Group] = {}
        for number, namespace in self._found.items():
            path = namespace_file(self.host.procfs, next(iter(self._members[number])))
            for link, waits in namespace.waiting(now, path, number).items():
                name = f"{link}{ELSEWHERE}{namespace.owners[0]}"
                waiting[name] = waiting.get(name, False) or waits > 0
                group = namespace.daemon, namespace.trusted, user_of(name)
                groups[name] = max(groups.get(name, group), group, key=lambda group: group[:2])
        for name, waits in waiting.items():
            if (found := self._link(name, groups[name])) is not None:
                found.add(now, elapsed, waits=waits)
        self._links = {name: link for name, link in self._links.items() if now - link.seen <= KEEP_ENDED_SECONDS}
        if not self._found and not self._hidden:
            raise NotPresent("no process of interest is in another network namespace")

    def _find(self, processes: Iterable[Process]) -> None:
        """Find the namespaces that processes are in: they may move to another at any time (setns)."""
        self._members, self._hidden = {}, {}
        daemons = set()
        for process in processes:
            number = namespace_of(self.host.procfs, process.pid)
            if number is not None:
                self._members.setdefault(number, {})[process.pid] = process.owner
                if process.daemon:
                    daemons.add(number)
            elif os.path.exists(self.host.procfs / str(process.pid) / "ns"):
                self._hidden[process.owner] = UNKNOWN
        self._members.pop(self._own or 0, None)
        for number in self._found.keys() - self._members.keys():
            self._found.pop(number).close()
        for number, those in self._members.items():
            trusted = number in daemons or any(
                self.host.users.trusts(process_user(self.host.procfs, pid)) for pid in those
            )
            rank = number in daemons, trusted
            alike = sum((namespace.daemon, namespace.trusted) == rank for namespace in self._found.values())
            if number in self._found or alike < MAX_NAMESPACES:
                namespace = self._found.setdefault(number, _Namespace())
                # A trusted user's owners come first: the first one is in the names of the links.
                owners = sorted(set(those.values()), key=lambda owner: (user_of(owner) is not None, owner))
                namespace.owners, (namespace.daemon, namespace.trusted) = tuple(owners), rank
            else:
                self._hidden.update(dict.fromkeys(those.values(), TOO_MANY))

    def _link(self, name: str, group: _Group) -> _Link | None:
        alike = sum(link.group == group for link in self._links.values())
        if name not in self._links and (group[0] or alike < MAX_LINKS):
            roles = self.host.roles
            self._links[name] = _Link(Resource("link", name, roles.serves["link"], roles.thresholds["link"]), group)
        return self._links.get(name)

    def points(self) -> Iterable[Point]:
        """Yield the integrals of each link, and whose links are not seen."""
        yield from resources.points(link.resource for link in self._links.values())
        hidden = dict(self._hidden)
        for namespace in self._found.values():
            if namespace.reason:
                hidden |= dict.fromkeys(namespace.owners, namespace.reason)
        for owner, reason in sorted(hidden.items()):
            yield NETWORK_NAMESPACE_HIDDEN_INFO.point(1, owner, reason)

    def close(self) -> None:
        """Close the sockets."""
        for namespace in self._found.values():
            namespace.close()
        self._found.clear()
