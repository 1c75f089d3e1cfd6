"""Links in other network namespaces: those of daemons and benchmarks in containers.

The probe devices reads the links of the exporter's own namespace. In another one neither procfs nor sysfs is ours, so
only queues in front of links are seen, over netlink sockets that are opened there: a shaper, or a link that is full.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path

from pinchpoint import resources
from pinchpoint.model import Metric, Point
from pinchpoint.netns import namespace_file, namespace_of, opener_in
from pinchpoint.probes.base import Host, NotPresent, Probe
from pinchpoint.procfs import FormatError
from pinchpoint.qdisc import QdiscReader
from pinchpoint.resources import Resource

__all__ = ["Namespaces"]

HIDDEN = Metric(
    "pinchpoint_network_namespace_hidden_info",
    "Owner whose links are in another network namespace and can't be seen, and why.",
    labels=("owner", "reason"),
)
LIMIT = 16
"""Other namespaces that are looked into: any user may make some."""
LINKS = 64
"""Links of all of them that are told apart."""
NAME_INTERVAL = 10.0
"""Seconds between two looks at what the links are called."""
WINDOW = 5
"""Looks over which fullness is judged: a second."""
OWN = Path("/proc")


class _Namespace:
    """A network namespace that somebody of interest is in."""

    def __init__(self, path: Path) -> None:
        self.owners: set[str] = set()
        self.reason = ""
        """Why it can't be seen."""
        self._reader = QdiscReader(opener_in(path))
        self._names: Mapping[int, str] = {}
        self._named = float("-inf")

    def waiting(self, now: float) -> dict[str, int]:
        """Return the bytes that wait for each link that has a queue, by its name."""
        try:
            if now - self._named >= NAME_INTERVAL:
                self._names, self._named = self._reader.names(), now
            found = self._reader.ask()
        except OSError as error:
            self.reason = error.strerror or str(error)
            return {}
        except FormatError as error:
            self.reason = str(error)
            return {}
        self.reason = ""
        return {self._names[index]: waiting for index, waiting in found.items() if index in self._names}

    def close(self) -> None:
        """Close its socket."""
        self._reader.close()


class Namespaces(Probe):
    """Queues in front of links of other network namespaces."""

    name = "namespaces"
    help = "queues in front of links in other network namespaces (netlink sockets opened there)"
    metrics = (resources.BUSY, resources.SATURATED, HIDDEN)
    interval = 0.2
    # A request waits as long as anybody reconfigures an interface (see QdiscReader).
    urgent = True

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._own = namespace_of(OWN, "self")
        self._of: dict[tuple[int, int], int | None] = {}
        self._found: dict[int, _Namespace] = {}
        self._links: dict[str, Resource] = {}
        self._looks: dict[str, deque[bool]] = {}
        self._last: float | None = None
        self._generation = -1

    def sample(self, now: float) -> None:
        """Look at every queue. Raises NotPresent where all are in the exporter's own namespace."""
        elapsed = 0.0 if self._last is None else now - self._last
        self._last = now
        self._find(now)
        for namespace in self._found.values():
            for link, waiting in namespace.waiting(now).items():
                self._add(f"{link}@{min(namespace.owners)}", elapsed, waits=waiting > 0)
        if not self._found:
            raise NotPresent("no process of interest is in another network namespace")

    def _find(self, now: float) -> None:
        """Find the namespaces that processes of interest are in, where there are other processes than before."""
        processes = self.host.processes.current(now)
        if self.host.processes.generation == self._generation:
            return
        self._generation = self.host.processes.generation
        there = {(process.pid, process.start): process for process in processes.values()}
        self._of = {key: self._of[key] if key in self._of else namespace_of(self.host.procfs, key[0]) for key in there}
        members: dict[int, list[tuple[int, str]]] = {}
        for key, number in self._of.items():
            if number is not None and number != self._own:
                members.setdefault(number, []).append((key[0], there[key].owner))
        for number in self._found.keys() - members.keys():
            self._found.pop(number).close()
        for number, those in islice(members.items(), LIMIT):
            if number not in self._found:
                self._found[number] = _Namespace(namespace_file(self.host.procfs, those[0][0]))
            self._found[number].owners = {owner for _, owner in those}

    def _add(self, owner: str, elapsed: float, *, waits: bool) -> None:
        if owner not in self._links:
            if len(self._links) >= LINKS:
                return
            roles = self.host.roles
            self._links[owner] = Resource("link", owner, roles.serves["link"], roles.thresholds["link"])
            self._looks[owner] = deque(maxlen=WINDOW)
        looks = self._looks[owner]
        looks.append(waits)
        full = sum(looks) >= self._links[owner].threshold * WINDOW
        resource = self._links[owner]
        resource.busy += elapsed * waits
        resource.saturated += elapsed * full

    def points(self) -> Iterable[Point]:
        """Yield the integrals of each link, and whose links are not seen."""
        yield from resources.points(self._links.values())
        yield from self._hidden()

    def _hidden(self) -> Iterator[Point]:
        for namespace in list(self._found.values()):
            if namespace.reason:
                for owner in sorted(namespace.owners):
                    yield HIDDEN.point(1, owner, namespace.reason)

    def close(self) -> None:
        """Close the sockets."""
        for namespace in self._found.values():
            namespace.close()
        self._found.clear()
