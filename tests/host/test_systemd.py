from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from pinchpoint.host import systemd
from pinchpoint.host.systemd import Watchdog, activated_sockets, notify


class Manager:
    """The end of the socket that a service manager reads."""

    def __init__(self, address: str, environment: pytest.MonkeyPatch) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.setblocking(False)
        self.socket.bind(address)
        environment.setenv("NOTIFY_SOCKET", address.replace("\0", "@"))

    def read(self) -> list[str]:
        """Return what has arrived."""
        found = []
        while True:
            try:
                found.append(self.socket.recv(4096).decode())
            except BlockingIOError:
                return found


@pytest.fixture(params=["path", "abstract"])
def manager(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Manager]:
    monkeypatch.chdir(tmp_path)
    address = str(tmp_path / "notify") if request.param == "path" else f"\0pinchpoint-test-{os.getpid()}"
    found = Manager(address, monkeypatch)
    with closing(found.socket):
        yield found


def test_a_state_arrives_as_one_datagram(manager: Manager) -> None:
    notify("READY=1")
    notify("STOPPING=1")

    assert manager.read() == ["READY=1", "STOPPING=1"]


@pytest.mark.parametrize("address", ["", "relative", "/nowhere/notify", "@pinchpoint-test-nobody", "/" + "x" * 200])
def test_without_a_service_manager_nothing_happens(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", address)

    notify("READY=1")


def test_a_manager_that_does_not_read_cannot_block_us(manager: Manager) -> None:
    for _ in range(2000):
        notify("WATCHDOG=1")

    assert 0 < len(manager.read()) < 2000


def test_the_watchdog_is_told_at_half_of_its_interval(manager: Manager, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", "30000000")
    monkeypatch.setenv("WATCHDOG_PID", str(os.getpid()))
    now = 100.0
    watchdog = Watchdog(lambda: now)
    told = []
    for second in range(61):
        now = 100.0 + second
        watchdog.beat()
        told += [second] * len(manager.read())

    assert told == [0, 15, 30, 45, 60]


@pytest.mark.parametrize(("microseconds", "pid"), [("", ""), ("30000000", "1"), ("soon", ""), ("²", ""), ("-1", "")])
def test_without_a_watchdog_of_ours_nothing_is_said(
    microseconds: str, pid: str, manager: Manager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", microseconds)
    monkeypatch.setenv("WATCHDOG_PID", pid)
    Watchdog().beat()

    assert manager.read() == []


@pytest.mark.parametrize(("pid", "count"), [("", ""), ("1", "1"), ("self", "0"), ("self", "x"), ("self", "²")])
def test_sockets_that_are_not_for_this_process_are_not_taken(
    pid: str, count: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LISTEN_PID", str(os.getpid()) if pid == "self" else pid)
    monkeypatch.setenv("LISTEN_FDS", count)

    with pytest.raises(OSError, match="passes no socket to this process"):
        activated_sockets()
    assert "LISTEN_FDS" not in os.environ


@pytest.mark.parametrize(
    ("family", "kind"), [(socket.AF_UNIX, socket.SOCK_STREAM), (socket.AF_INET, socket.SOCK_DGRAM)]
)
def test_a_socket_of_another_kind_is_refused(
    family: socket.AddressFamily, kind: socket.SocketKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    passed = socket.socket(family, kind)
    monkeypatch.setattr(systemd, "FIRST_PASSED", passed.detach())
    monkeypatch.setenv("LISTEN_PID", str(os.getpid()))
    monkeypatch.setenv("LISTEN_FDS", "1")

    with pytest.raises(OSError, match="is not a TCP socket that listens"):
        activated_sockets()
