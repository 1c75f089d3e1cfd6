"""Ceph's monitors and managers: whether they answer. Ceph's own exporter covers the rest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pinchpoint.ceph import follower
from pinchpoint.ceph.asok import Question
from pinchpoint.ceph.follower import DaemonReader
from pinchpoint.model import Point
from pinchpoint.probes.daemon import DaemonProbe

__all__ = ["CephDaemons"]


class CephDaemons(DaemonProbe):
    """Admin sockets of monitors and managers."""

    name = "ceph_daemons"
    classes = ("ceph-mon", "ceph-mgr")
    metrics = follower.METRICS

    def reader(self) -> DaemonReader:
        """Return a reader for one more daemon."""
        return _Alive()


class _Alive(DaemonReader):
    """Asks the cheapest question, only to get an answer."""

    questions = (Question("version", every=2.0),)

    def take(self, now: float, answers: Mapping[str, bytes]) -> None:
        pass

    def points(self, daemon: str) -> Iterator[Point]:
        return iter(())
