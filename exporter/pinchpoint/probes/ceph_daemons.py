"""Ceph's monitors and managers: whether they answer. What they know is their own exporter's business."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pinchpoint.ceph import follower
from pinchpoint.ceph.asok import Question
from pinchpoint.ceph.follower import Followers, Reader
from pinchpoint.model import Point
from pinchpoint.probes.base import Host, NotPresent, Probe

__all__ = ["CephDaemons"]

CLASSES = ("ceph-mon", "ceph-mgr")


class CephDaemons(Probe):
    """Admin sockets of monitors and managers."""

    name = "ceph_daemons"
    help = "whether Ceph's monitors and managers on this host answer or are stuck (admin sockets)"
    metrics = follower.METRICS

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._followers = Followers(host.procfs, host.rootfs, host.processes, CLASSES, _Alive)

    def sample(self, now: float) -> None:
        """Look for daemons. Raises NotPresent where there is none."""
        if not self._followers.refresh(now):
            raise NotPresent("no ceph-mon and no ceph-mgr runs here")

    def points(self) -> Iterator[Point]:
        """Yield what is known of each daemon."""
        yield from self._followers.points()

    def close(self) -> None:
        """End the threads that ask."""
        self._followers.close()


class _Alive(Reader):
    """Asks the cheapest question there is, only to have an answer."""

    questions = (Question("version", every=2.0),)

    def take(self, now: float, answers: Mapping[str, bytes]) -> None:
        pass

    def points(self, daemon: str) -> Iterator[Point]:
        return iter(())
