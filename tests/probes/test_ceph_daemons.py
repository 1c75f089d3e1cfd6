from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

import pytest

from ceph_answers import run_daemon
from daemon_socket import DaemonSocket
from machine import Machine
from pinchpoint.model import Snapshot
from pinchpoint.probes import NotPresent
from pinchpoint.probes.ceph_daemons import CephDaemons
from polling import until


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


@pytest.mark.parametrize(("uid", "owner"), [(0, "osd.0@aaaaaaaa"), (65534, "osd.0")])
def test_another_cluster_on_the_host_names_daemons_by_their_cluster_and_a_users_imitation_does_not(
    machine: Machine, tmp_path: Path, uid: int, owner: str
) -> None:
    machine.process(10, "ceph-osd", argv=("ceph-osd", "-i", "0"))
    path = tmp_path / "ceph-mon.a.asok"
    with DaemonSocket(path, {"version": {"version": "16"}, "config get fsid": {"fsid": "bbbbbbbb-2222"}}) as mon:
        run_daemon(machine, "ceph-mon", "a", path)
        machine.runs_as(os.getpid(), uid, "usr/bin/ceph-mon")
        host = machine.host()
        host.processes.assign_cluster(host.processes.current(0.0)[10], "aaaaaaaa-1111")
        probe = CephDaemons(host)

        def sampled() -> str:
            with suppress(NotPresent):
                probe.sample(time.monotonic())
            return host.processes.current(time.monotonic())[10].owner

        assert until(5, lambda: sampled() == owner)
        if uid:
            with pytest.raises(NotPresent):
                probe.sample(time.monotonic())
            assert mon.asked == []
        probe.close()
