from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from machine import Machine
from pinchpoint.host.netns import namespace_of
from pinchpoint.model import Snapshot
from pinchpoint.probes import Host, NotPresent
from pinchpoint.probes import namespaces as module
from pinchpoint.probes.namespaces import MAX_LINKS, MAX_NAMESPACES, TOO_MANY, Namespaces
from pinchpoint.threads.processes import Processes
from polling import until

PROC = Path("/proc")
HIDDEN = "pinchpoint_network_namespace_hidden_info"
SHAPED = "ip link set lo up && tc qdisc add dev lo root tbf rate 64kbit burst 4kb latency 60s"
SENDS = """
import ctypes, socket, sys, time
ctypes.CDLL(None).prctl(15, b"ior", 0, 0, 0)
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for line in sys.stdin:
    for _ in range(50):
        sender.sendto(bytes(1000), ("127.0.0.1", 9))
"""


@pytest.fixture
def here(machine: Machine) -> Host:
    """The real host, with only the processes of interest that a test names."""
    return replace(machine.host(), procfs=PROC, processes=Processes(PROC, machine.host().roles))


@pytest.fixture
def elsewhere() -> Iterator[subprocess.Popen[str]]:
    """A benchmark in another network namespace, whose link is shaped; it sends once per line of input."""
    for tool in ("unshare", "ip", "tc"):
        if shutil.which(tool) is None:
            pytest.skip(f"no {tool} on this machine")
    prepared = subprocess.run(["unshare", "-n", "sh", "-c", SHAPED], capture_output=True, text=True, check=False)
    if os.geteuid() != 0 or prepared.returncode:
        pytest.skip(f"no network namespace with a token bucket can be made: {prepared.stderr.strip() or 'not root'}")
    script = f'{SHAPED} && exec "$0" -c "$1"'
    command = ["unshare", "-n", "sh", "-c", script, sys.executable, SENDS]
    with subprocess.Popen(command, stdin=subprocess.PIPE, text=True) as child:
        yield child
        child.kill()


def read(probe: Namespaces) -> Snapshot:
    return Snapshot.of(0, probe.points())


def busy(probe: Namespaces, kind: str = "busy") -> dict[str, float]:
    series = read(probe).series(f"pinchpoint_resource_{kind}_seconds_total")
    return {labels["owner"]: value for labels, value in series if labels["resource"] == "link"}


def sampled(probe: Namespaces, now: float) -> bool:
    """Take a sample, and return whether any process is in another namespace."""
    try:
        probe.sample(now)
    except NotPresent:
        return False
    return True


def test_the_link_of_a_container_is_full_while_packets_wait_in_front_of_it(
    here: Host, elsewhere: subprocess.Popen[str]
) -> None:
    assert elsewhere.stdin is not None
    probe = Namespaces(here)
    assert until(30, lambda: sampled(probe, time.monotonic()) and "lo/ior" in busy(probe))
    assert busy(probe)["lo/ior"] == 0.0
    elsewhere.stdin.write("send\n")
    elsewhere.stdin.flush()
    # The queue holds packets for six seconds.
    assert until(30, lambda: sampled(probe, time.monotonic()) and busy(probe, "saturated")["lo/ior"] > 0, pause=0.1)
    assert busy(probe)["lo/ior"] > 0
    probe.close()


def test_this_process_stays_in_its_own_namespace(here: Host, elsewhere: subprocess.Popen[str]) -> None:
    before = namespace_of(PROC, "self")
    probe = Namespaces(here)
    assert until(30, lambda: sampled(probe, time.monotonic()))

    assert namespace_of(PROC, f"self/task/{os.getpid()}") == before
    assert namespace_of(PROC, elsewhere.pid) != before
    probe.close()
    # The thread that reads there ends after the read.
    tasks = Path("/proc/self/task")
    assert until(30, lambda: {namespace_of(PROC, f"self/task/{task.name}") for task in tasks.iterdir()} == {before})


def test_a_host_whose_processes_are_all_in_one_namespace_has_no_such_links(machine: Machine) -> None:
    machine.process(10, "ior")
    link(machine, 10, "own")
    probe = Namespaces(machine.host())
    probe._own = namespace_of(machine.procfs, 10)

    with pytest.raises(NotPresent):
        probe.sample(0.0)


def test_whose_links_can_not_be_seen_is_told_with_the_reason(machine: Machine) -> None:
    machine.process(10, "ceph-osd", argv=("ceph-osd", "-i", "3"))
    link(machine, 10, "container")  # a file that is not a namespace
    probe = Namespaces(machine.host())
    probe.sample(0.0)

    hidden = read(probe).series("pinchpoint_network_namespace_hidden_info")
    assert [(labels["owner"], labels["reason"]) for labels, _ in hidden] in (
        [("osd.3", "Invalid argument")],
        [("osd.3", "Operation not permitted")],
    )


def test_only_so_many_namespaces_are_looked_into(machine: Machine) -> None:
    """Any user may make one."""
    for pid in range(10, 10 + 2 * MAX_NAMESPACES):
        machine.process(pid, f"qemu-{pid}")
        link(machine, pid, f"container{pid}")
    probe = Namespaces(machine.host())
    probe.sample(0.0)

    assert len(probe._found) == MAX_NAMESPACES
    reasons = {labels["reason"] for labels, _ in read(probe).series(HIDDEN)}
    assert TOO_MANY in reasons


def test_those_of_untrusted_users_take_no_trusted_users_place(machine: Machine) -> None:
    for pid in range(10, 10 + 2 * MAX_NAMESPACES):
        machine.process(pid, "rbd", uid=1000)
        link(machine, pid, f"container{pid}")
    probe = Namespaces(machine.host())
    probe.sample(0.0)
    machine.process(200, "qemu-mine")
    link(machine, 200, "mine")
    probe.sample(60.0)

    assert ["qemu-mine"] in [list(namespace.owners) for namespace in probe._found.values()]


def test_those_of_daemons_are_looked_into_however_many_others_there_are(machine: Machine) -> None:
    for pid in range(10, 10 + 2 * MAX_NAMESPACES):
        machine.process(pid, f"qemu-{pid}")
        link(machine, pid, f"container{pid}")
    probe = Namespaces(machine.host())
    probe.sample(0.0)
    machine.process(200, "ceph-osd", argv=("ceph-osd", "-i", "0"))
    link(machine, 200, "osd")
    probe.sample(60.0)

    hidden = {labels["owner"]: labels["reason"] for labels, _ in read(probe).series(HIDDEN)}
    assert TOO_MANY in hidden.values()
    assert hidden.get("osd.0") != TOO_MANY
    assert ["osd.0"] in [list(namespace.owners) for namespace in probe._found.values()]


def test_another_users_namespaces_hide_none_of_ours(machine: Machine) -> None:
    for pid in range(10, 10 + 2 * MAX_NAMESPACES):
        machine.process(pid, "fio", uid=1000)
        link(machine, pid, f"container{pid}")
    machine.process(100, "fio")
    link(machine, 100, "ours")
    probe = Namespaces(machine.host())
    probe.sample(0.0)

    assert len(probe._found) == MAX_NAMESPACES + 1
    assert ("fio",) in {namespace.owners for namespace in probe._found.values()}


def link(machine: Machine, pid: int, name: str) -> None:
    """Put a process into a namespace of the fake machine."""
    machine.write(f"proc/{pid}/ns/{name}", "")
    os.link(machine.procfs / str(pid) / "ns" / name, machine.procfs / str(pid) / "ns" / "net")


def test_the_links_of_a_users_namespace_leave_those_of_trusted_users_their_room(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Ceph client has no mark in its name, whoever started it."""
    machine.process(50, "rbd", uid=1000)
    machine.process(60, "fio", uid=0)
    links = {2: {f"x{number}": 0 for number in range(MAX_LINKS)}, 3: {"eth0": 1000}}
    monkeypatch.setattr(module, "namespace_of", lambda procfs, pid: {"self": 1, 50: 2, 60: 3}[pid])
    monkeypatch.setattr(module._Namespace, "waiting", lambda self, now, path, number: links[number])
    probe = Namespaces(machine.host())

    for now in (1.0, 1.2):
        probe.sample(now)

    assert busy(probe)["eth0/fio"] == pytest.approx(0.2)
    assert len(busy(probe)) == MAX_LINKS + 1
