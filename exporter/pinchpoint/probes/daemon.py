"""What the probes of Ceph's daemons have in common: processes that are followed by their admin sockets."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import ClassVar

from pinchpoint.ceph.follower import DaemonReader, Followers
from pinchpoint.ceph.readings import option_points
from pinchpoint.host.capabilities import Capability
from pinchpoint.model import Point
from pinchpoint.probes.base import Host, NotPresent, Probe

__all__ = ["DaemonProbe"]

FIRST_ANSWERS_SECONDS = 0.3
"""Longest wait for the daemons' first answers. An OSD under load needed up to 90 ms for them."""


class DaemonProbe(Probe):
    """The daemons of some classes on this host. They are asked in a thread of its own, not by a sample."""

    capabilities = (Capability.DAC_OVERRIDE, Capability.SYS_PTRACE)
    classes: ClassVar[tuple[str, ...]]
    """Classes of their processes in the roles file."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._looked = False
        self._followers = Followers(
            host.procfs, host.rootfs, host.processes, self.classes, self.reader, asker=host.daemons
        )

    @abstractmethod
    def reader(self) -> DaemonReader:
        """Return a reader for one more daemon."""

    def sample(self, now: float) -> None:
        """Look for daemons. Raises NotPresent where there is none.

        The first sample waits for their answers: the first phase of a run begins with it, and their counters have to
        be known then.
        """
        first, self._looked = not self._looked, True
        if not self._followers.refresh(now):
            raise NotPresent(f"no {' and no '.join(self.classes)} runs on this host")
        if first:
            self._followers.settle(FIRST_ANSWERS_SECONDS)

    def points(self) -> Iterator[Point]:
        """Yield what is known of each daemon, and the options of all of them."""
        yield from self._followers.points()
        yield from option_points(self.name, (reader.options for reader in self._followers.readers()))

    def close(self) -> None:
        """Stop asking."""
        self._followers.close()
