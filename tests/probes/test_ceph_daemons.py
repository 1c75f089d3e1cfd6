from __future__ import annotations

import pytest

from machine import Machine
from pinchpoint.model import Snapshot
from pinchpoint.probes import NotPresent
from pinchpoint.probes.ceph_daemons import CephDaemons


def test_monitors_and_managers_that_cannot_be_asked_are_blind_and_those_of_other_kinds_are_not_looked_at(
    machine: Machine,
) -> None:
    machine.process(10, "ceph-mon", argv=("ceph-mon", "-i", "a"))
    machine.process(11, "ceph-mgr", argv=("ceph-mgr", "-i", "x"))
    machine.process(12, "ceph-osd", argv=("ceph-osd", "-i", "0"))
    probe = CephDaemons(machine.host())
    for now in (0.0, 1.0):
        probe.sample(now)

    found = Snapshot.of(0.0, probe.points()).series("pinchpoint_ceph_socket_up")

    assert list(found) == [({"daemon": "mon.a"}, 0), ({"daemon": "mgr.x"}, 0)]
    probe.close()


def test_a_host_without_them_has_nothing_to_read(machine: Machine) -> None:
    with pytest.raises(NotPresent, match="ceph-mon"):
        CephDaemons(machine.host()).sample(0.0)
